"""The options of verbs that run a checkpoint."""

from __future__ import annotations

import argparse

import pytest

from cerberank_models.commands.backend_options import BackendOptions, add_backend_options, backend_options


def chosen(*argv: str) -> BackendOptions:
    parser = argparse.ArgumentParser()
    add_backend_options(parser)
    return backend_options(parser.parse_args(argv))


def test_the_device_decides_what_is_not_named() -> None:
    """A GPU alone is enough for half precision in torch; what is named is taken."""
    assert chosen() == BackendOptions(kind="onnx", precision="int8", device="cpu")
    assert chosen("--device", "cuda:1") == BackendOptions(kind="torch", precision="fp16", device="cuda:1")
    assert chosen("--backend", "torch") == BackendOptions(kind="torch", precision="fp32", device="cpu")
    asked = chosen("--backend", "torch", "--precision", "bf16", "--device", "cuda")
    assert asked == BackendOptions(kind="torch", precision="bf16", device="cuda")


def test_a_precision_that_the_backend_lacks_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(ValueError, match="torch has no precision 'int8', only fp32, bf16, fp16"):
        chosen("--backend", "torch", "--precision", "int8")
