"""What transformers cannot load, or would run foreign code for, is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tiny import save_cross_encoder

from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.own_network import read_config, read_network
from cerberank_models.importing.source import find_source


def test_code_of_a_repository_is_not_run(tmp_path: Path) -> None:
    """A model type that only the repository's code knows; an unknown one without code has transformers' own message."""
    folder = save_cross_encoder("bert", tmp_path / "model")
    described = json.loads((folder / "config.json").read_text()) | {"model_type": "brand-new"}
    (folder / "config.json").write_text(json.dumps(described | {"auto_map": {"AutoConfig": "code.Config"}}))
    (folder / "code.py").write_text("raise SystemExit('run')")
    with pytest.raises(UnsupportedModelError, match=r"model needs Python code of its repository"):
        read_config(find_source(str(folder)))
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="`brand-new`"):
        read_config(find_source(str(folder)))


def test_damaged_and_missing_weights_are_refused(tmp_path: Path) -> None:
    """A file that ends early is named as such; without any file the error is the one of a missing file."""
    folder = save_cross_encoder("bert", tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(OSError, match="model"):
        read_network(find_source(str(folder)))
    for content in (b"PK\x03\x04 it ends here", b"", b"version https://git-lfs.github.com/spec/v1\n"):
        (folder / "pytorch_model.bin").write_bytes(content)
        with pytest.raises((UnsupportedModelError, OSError), match=r"weights cannot be read|git-lfs|pytorch_model"):
            read_network(find_source(str(folder)))
