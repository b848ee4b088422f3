"""The parts of Hugging Face's Trainer that teachers and pre-training share."""

from __future__ import annotations

from pathlib import Path

from cerberank_training.learning.trainer import STATE, last_checkpoint


def test_the_newest_whole_checkpoint_counts(tmp_path: Path) -> None:
    """One without the file that is written last, or with a part of it, is passed over."""
    assert last_checkpoint(tmp_path / "none") is None
    for step, content in ((2, "{}"), (10, "{}"), (100, '{"epo'), (200, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if content is not None:
            (folder / STATE).write_text(content)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
