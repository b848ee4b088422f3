"""openapi-python-client: a client made of the service's OpenAPI document."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import Task


def test_a_client_is_made_without_a_complaint_and_ranks(task: Task, tmp_path: Path) -> None:
    """Its requests and answers have types of their own."""
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}  # it looks for ruff
    arguments = [
        "generate",
        "--url",
        f"{task.url}/openapi.json",
        "--meta",
        "none",
        "--output-path",
        str(tmp_path / "made"),
    ]
    command = [programs / "openapi-python-client", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower(), done.stdout + done.stderr
    use = f"""
from made import Client
from made.api.cerberank import rank, rank_batch
from made.models import BatchQuestion, BatchRequest, RankRequest

client = Client(base_url={task.url!r}, raise_on_unexpected_status=True)
texts = ["It is old.", "It is 330 metres tall."]
question = RankRequest(question="How tall is it?", candidates=texts, top_k=1)
assert rank.sync(client=client, body=question).results[0].index == 1
batch = BatchRequest(questions=["How tall is it?", BatchQuestion(question="How old is it?")], candidates=texts)
answers = rank_batch.sync(client=client, body=batch).answers
assert [entry.answer.results[0].index for entry in answers] == [1, 0]
"""
    subprocess.run([sys.executable, "-c", use], check=True, cwd=tmp_path)
