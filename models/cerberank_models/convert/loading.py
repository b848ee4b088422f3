"""Loads and writes transformers' models without its bars and tables of weights.

The tables name weights that a folder lacks, or that a model does not use. Our code compares them itself, and says in
its own words what starts from random values.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel
from transformers.utils import logging

from cerberank_models.checkpoint.regular import open_regular
from cerberank_models.convert.families import UnsupportedModelError

POOLER = "pooler."
"""The beginning of weights of encoders that many folders lack, and that no ranker uses."""


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Show only errors of transformers, and no bars of it, within the block. The process has one switch of each."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def stored_weights(place: str, file: Path, *, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors in a file of PyTorch, by their names; nothing but tensors is unpickled.

    `device` may be `meta` for their shapes alone. Raises UnsupportedModelError, which names the model's `place`.
    """
    try:
        with open_regular(file) as opened:
            stored = torch.load(opened, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise UnsupportedModelError(f"{place}: {file.name} cannot be read as weights alone: {reason}") from error
    if not isinstance(stored, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in stored.items()
    ):
        raise UnsupportedModelError(f"{place}: {file.name} is not a state dict, tensors by their names")
    return stored


def load_network(kind: Any, place: str, **options: Any) -> tuple[Any, Mapping[str, Any]]:
    """The network of a class of transformers from a folder or the hub, and transformers' report of its weights.

    `options` are those of `from_pretrained`. Code in a model's repository is never run. Raises UnsupportedModelError
    for damaged weights, and OSError if there is no file of weights.
    """
    try:
        with quiet_transformers():
            network, report = kind.from_pretrained(place, output_loading_info=True, trust_remote_code=False, **options)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UnsupportedModelError(f"{place}: its weights cannot be read: {error}") from error
    return network, report


def missing_weights(report: Mapping[str, Any], *, optional: str | None = None) -> list[str]:
    """The names of weights that the files lack, but for those that begin with `optional`."""
    return sorted(name for name in report["missing_keys"] if optional is None or not name.startswith(optional))


def load_encoder(place: str, **options: Any) -> Any:
    """The encoder in the folder `place` or on the hub, with `options` of `from_pretrained`.

    Raises UnsupportedModelError if weights are missing, which transformers would replace by random ones.
    """
    network, report = load_network(AutoModel, place, **options)
    if missing := missing_weights(report, optional=POOLER):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UnsupportedModelError(f"{place} lacks weights of its encoder: {missing[0]}{more}")
    return network
