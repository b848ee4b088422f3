"""The checkpoints that Hugging Face's Trainer writes while it trains, from which a killed run goes on."""

from __future__ import annotations

from pathlib import Path

from transformers.trainer_callback import TrainerState

STATE = "trainer_state.json"


def last_checkpoint(run: Path) -> str | None:
    """The newest checkpoint that was written to its end; a process may have been killed while it wrote."""
    found = [path for path in run.glob("checkpoint-*") if (path / STATE).is_file()]
    for path in sorted(found, key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            TrainerState.load_from_json(str(path / STATE))
        except ValueError:
            continue
        return str(path)
    return None
