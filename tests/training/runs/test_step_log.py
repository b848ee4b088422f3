"""The log of a run that goes on."""

from __future__ import annotations

from pathlib import Path

from cerberank_training.runs.step_log import cut_log, last_step


def test_steps_after_the_state_and_half_a_line_are_removed(tmp_path: Path) -> None:
    """Lines of the state's step stay, its evaluation too; a log that ends there is not written anew."""
    log = tmp_path / "log.jsonl"
    kept = '{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n{"step": 2, "dev_map": 50}\n'
    log.write_text(kept + '{"step": 3, "loss": 1}\n{"step": 4, "lo')
    assert last_step(log) == 3
    cut_log(log, 2)
    assert log.read_text() == kept
    before = log.stat().st_ino
    cut_log(log, 2)
    assert log.stat().st_ino == before
    cut_log(log, 0)
    assert log.read_text() == ""
    assert last_step(log) == last_step(tmp_path / "none") == 0
    cut_log(tmp_path / "none", 0)
