"""`cerberank bench`: which of the two benchmark programs is meant. Each imports only what it needs."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run `bench gpu ...`, or the benchmarks of a processor; returns the exit code."""
    if argv[:1] == ["gpu"]:
        from cerberank_benchmarks.gpu.command import main as gpu  # noqa: PLC0415 - the other's libraries take seconds

        return gpu(argv[1:])
    from cerberank_benchmarks.command import main as processor  # noqa: PLC0415

    return processor(argv)
