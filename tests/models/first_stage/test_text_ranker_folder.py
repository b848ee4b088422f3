"""A text ranker's folder: what is read is what was written, and a damaged folder is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.text_rankers import NAMES, SHAPES, TWIN, text_ranker, texts
from tests.tiny import bert_tokenizer

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError
from cerberank_models.first_stage.text_ranker_folder import read_text_ranker, write_text_ranker


def write(path: Path, shape: dict[str, Any]) -> Path:
    write_text_ranker(path, text_ranker(shape), bert_tokenizer(), version="1", source="tests", metrics={"dev_map": 1.0})
    return path


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_read_is_written(shape: dict[str, Any], tmp_path: Path) -> None:
    """Config, every weight, scores and the encoder's tokens."""
    saved = read_text_ranker(write(tmp_path / "folder", shape))
    ranker = text_ranker(shape)
    assert saved.ranker.config == ranker.config
    state = saved.ranker.state_dict()
    assert all(torch.equal(state[name], value) for name, value in ranker.state_dict().items())
    questions, documents, owners = texts([[4]]), texts([[5, 3], [6]]), torch.tensor([0, 0])
    assert torch.equal(saved.ranker(questions, documents, owners).scores, ranker(questions, documents, owners).scores)
    assert saved.encoder().questions(["the tower"]).offsets.tolist() == [0, 4]
    assert saved.manifest.metrics == {"dev_map": 1.0}


def test_a_folder_is_never_replaced(tmp_path: Path) -> None:
    """An existing one stays, and nothing is left beside it."""
    write(tmp_path / "folder", TWIN)
    with pytest.raises(FileExistsError):
        write(tmp_path / "folder", TWIN)
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]


def test_damaged_folders_are_refused(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """A changed file, a missing one, and a checkpoint of pairs, each with its own error."""
    path = write(tmp_path / "folder", TWIN)
    tokenizer = path / "tokenizer.json"
    content = tokenizer.read_bytes()
    tokenizer.write_bytes(content + b" ")
    with pytest.raises(ChangedFileError, match=r"tokenizer\.json"):
        read_text_ranker(path)
    tokenizer.unlink()
    with pytest.raises(MissingFileError, match=r"tokenizer\.json"):
        read_text_ranker(path)
    with pytest.raises(CheckpointError, match="not a text ranker"):
        read_text_ranker(tiny_checkpoint)
