"""The checkpoints that Hugging Face's Trainer writes while it trains, from which a killed run resumes."""

from __future__ import annotations

from pathlib import Path

from transformers.trainer_callback import TrainerState

STATE = "trainer_state.json"


def last_checkpoint(run: Path) -> str | None:
    """The newest complete checkpoint; a killed process may have left an incomplete one."""
    found = [path for path in run.glob("checkpoint-*") if (path / STATE).is_file()]
    for path in sorted(found, key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            TrainerState.load_from_json(str(path / STATE))
        except ValueError:
            continue
        return str(path)
    return None


def dev_at_start(run: Path) -> float | None:
    """The dev MAP before the first step, read from the newest checkpoint; None if an earlier version wrote it."""
    newest = last_checkpoint(run)
    history = TrainerState.load_from_json(str(Path(newest) / STATE)).log_history if newest else []
    return next((line["eval_map"] for line in history if line["step"] == 0 and "eval_map" in line), None)
