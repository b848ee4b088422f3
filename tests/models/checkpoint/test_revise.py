from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.config import RankerConfig, TunedSchedule


def test_a_revision_changes_what_is_given_and_nothing_else(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Weights, graphs, tokenizer and golden questions keep their hashes; config, card and version differ."""
    old = read_checkpoint(tiny_checkpoint)
    tuned = TunedSchedule(schedule=(0.3, 0.1), cost=0.8, metrics={"map": 90.0})
    config = old.config.model_copy(update={"drop_schedule": (0.3, 0.1), "tuned_schedules": (tuned,)})
    new = revise_checkpoint(
        old, tmp_path / "new", version="2", config=config, card="# new\n", files={"tune.json": b"{}"}
    )
    assert new.config == config
    assert new.manifest.version == "2"
    changed = {name for name, digest in new.manifest.files.items() if old.manifest.files.get(name) != digest}
    assert changed == {"config.json", "README.md", "tune.json"}
    assert set(old.manifest.files) <= set(new.manifest.files)


def test_a_revision_never_changes_the_network(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A config with another network is refused, because golden scores and graphs would be wrong."""
    old = read_checkpoint(tiny_checkpoint)
    other = RankerConfig.model_validate(
        {**old.config.model_dump(), "encoding": {"max_length": 32, "question_length": 8}}
    )
    with pytest.raises(ValueError, match="not its network"):
        revise_checkpoint(old, tmp_path / "new", version="2", config=other)
    assert list(tmp_path.iterdir()) == []
