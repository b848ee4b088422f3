"""Loads and writes transformers' models without its bars and tables of weights.

The tables name weights that a folder lacks, or that a model does not use. Our code compares them itself, and says in
its own words what starts from random values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import AutoModel
from transformers.utils import logging

from cerberank_models.convert.families import UnsupportedModelError

UNUSED = "pooler."
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


def load_encoder(place: str, **options: Any) -> Any:
    """The encoder in the folder `place` or on the hub, with `options` of `from_pretrained`.

    Raises UnsupportedModelError if weights are missing, which transformers would replace by random ones.
    """
    with quiet_transformers():
        network, report = AutoModel.from_pretrained(place, output_loading_info=True, **options)
    if missing := sorted(name for name in report["missing_keys"] if not name.startswith(UNUSED)):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UnsupportedModelError(f"{place} lacks weights of its encoder: {missing[0]}{more}")
    return network
