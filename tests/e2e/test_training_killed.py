"""kill -9 in the middle of training: called again, it ends with the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_training.runs.record import RunRecord


def distil(base: Path, data: str, out: Path) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "cerberank", "train", "distil", "--recipe", "tiny"),
        *("--base", str(base), "--train", data, "--steps", "60", "--forms", "none", "--out", str(out)),
        *("--dev", dev_jsonl(out.parent)),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def steps_done(out: Path) -> int:
    log = out / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return max((json.loads(line)["step"] for line in lines), default=0)


def test_a_killed_training_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Killed after its first saved state and before its end, then called again, against a run that was left alone.

    Its log has every step once.
    """
    base = save_cross_encoder("electra", tmp_path / "base")
    data = jsonl(tmp_path)
    killed = distil(base, data, tmp_path / "killed")
    while not (tmp_path / "killed" / "state.pt").exists():
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    killed.kill()
    killed.wait()
    assert 0 < steps_done(tmp_path / "killed") < 60
    assert not (tmp_path / "killed" / "checkpoint").exists()
    for name in ("killed", "whole"):
        assert distil(base, data, tmp_path / name).wait() == 0
    again, whole = (torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("killed", "whole"))
    assert again["step"] == whole["step"] == 60
    for name, value in whole["ranker"].items():
        assert torch.equal(value, again["ranker"][name]), name
    logs = [
        [(row["step"], row.get("loss"), row.get("dev_map")) for row in map(json.loads, log.read_text().splitlines())]
        for log in (tmp_path / name / "log.jsonl" for name in ("killed", "whole"))
    ]
    assert logs[0] == logs[1]
    assert len(RunRecord.model_validate_json((tmp_path / "killed" / "record.json").read_bytes()).calls) == 2
