"""PyTorch's exporter with a cache: equal networks are exported once by all tests and workers, and once between runs.

A call takes a third of a second to three seconds, and several hundred tests need some forty networks.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir
import pytest
import torch
from pydantic import BaseModel
from transformers import PreTrainedConfig, PreTrainedModel

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("torch", "transformers", "onnx", "onnx-ir", "onnxscript")
DAY = 86_400.0


def code_key() -> str:
    """A hash of the code that the exporter reads: that of the models and of these libraries."""
    code = hashlib.sha256(repr([importlib.metadata.version(name) for name in LIBRARIES]).encode())
    for path in (Path(__file__), *sorted((ROOT / "models").rglob("*.py"))):
        code.update(path.read_bytes())
    return code.hexdigest()[:32]


class _Described(pickle.Pickler):
    """Writes equal values as equal bytes in every process: sets have another order in each, and paths are temporary.

    A network of a test itself is refused, since `code_key` does not hold its code.
    """

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, torch.nn.Module) and type(value).__module__.startswith("tests."):
            raise pickle.PicklingError(type(value).__name__)
        if isinstance(value, BaseModel):
            return type(value), (value.model_dump_json(),)
        if isinstance(value, PreTrainedConfig | PreTrainedModel):
            return type(value), ({**vars(value), "_name_or_path": "", "name_or_path": ""},)
        if isinstance(value, torch.Tensor):
            return type(value), (value.dtype, value.shape, value.detach().numpy().tobytes())
        return NotImplemented


def call_key(*arguments: object) -> str | None:
    """A hash of the exporter's arguments; None if they cannot be pickled."""
    content = io.BytesIO()
    try:
        _Described(content).dump(arguments)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return hashlib.sha256(content.getvalue()).hexdigest()


@contextmanager
def exports_once(folder: Path) -> Iterator[None]:
    """Keep what the exporter makes below `folder`; what other code has made is deleted after a day."""
    kept = folder / code_key()
    kept.mkdir(exist_ok=True)
    os.utime(kept)
    for old in folder.iterdir():
        if time.time() - old.stat().st_mtime > DAY:
            shutil.rmtree(old, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.onnx.export", _export(torch.onnx.export, kept))
        yield


def _export(export: Callable[..., Any], kept: Path) -> Callable[..., Any]:
    def get(module: torch.nn.Module, **call: Any) -> Any:
        key = call_key(module, call)
        path = kept / f"{key}.onnx"
        if key is not None and path.exists():
            return torch.onnx.ONNXProgram(onnx_ir.load(path), None)
        program = export(module, **call)
        if key is not None and program is not None:
            written = path.with_suffix(f".{os.getpid()}")
            program.save(str(written))
            written.replace(path)
        return program

    return get
