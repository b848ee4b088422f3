"""`cerberank data embed --engine ray` on a local cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.program import program

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.first_stage.embedding import SHARD

main = program("data embed")

SINGLE = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_a_cluster_makes_the_same_store(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Two workers make a store of several shards that is equal byte for byte to that of one process."""
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(f"{json.dumps(f'tower {number % 5000} stone')}\n" for number in range(2 * SHARD + 10)))
    ran_by = ["--precision", "fp32", "--threads", "1"]
    call = [str(checkpoint.path), str(lines), str(tmp_path / "ray"), *ran_by, "--engine", "ray", "--copies", "2"]
    program = [sys.executable, "-m", "cerberank", "data", "embed", *call]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=SINGLE, timeout=240)
    assert done.returncode == 0, done.stderr
    assert main([str(checkpoint.path), str(lines), str(tmp_path / "local"), *ran_by]) == 0
    clustered, alone = (
        {each.name: each.read_bytes() for each in (tmp_path / name).iterdir()} for name in ("ray", "local")
    )
    assert clustered == alone
