"""Keeps an exporter's messages about its own internals from the terminal, and shows them when it fails."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = ("torch.onnx", "torch.export", "torch._export", "onnxscript", "onnx_ir")
"""The loggers of PyTorch's exporter and of what it writes with; loggers below them pass their messages on to them."""


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back warnings and log messages of the block; if it raises, they are shown before the error goes on."""
    held = _Held()
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [held], False
    failed = True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        failed = False
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
        if failed:
            for record in held.records:
                logging.getLogger(record.name).handle(record)
            for warning in caught:
                logging.getLogger(__name__).warning("%s: %s", warning.category.__name__, warning.message)


class _Held(logging.Handler):
    """Keeps records in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
