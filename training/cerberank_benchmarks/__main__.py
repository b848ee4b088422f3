"""`python -m cerberank_benchmarks`: the benchmarks of a processor or, with `gpu` as the first argument, of a GPU."""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    """Run the benchmarks; returns the exit code. Only the libraries of the chosen program are imported."""
    if argv[:1] == ["gpu"]:
        from cerberank_benchmarks.gpu.suite import main as gpu  # noqa: PLC0415 - the other's libraries take seconds

        return gpu(argv[1:])
    from cerberank_benchmarks.command import main as processor  # noqa: PLC0415

    return processor(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
