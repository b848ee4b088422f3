"""openapi-python-client: a client made of the service's OpenAPI document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_client_is_made_without_a_complaint_and_ranks(url: str, tmp_path: Path) -> None:
    """Its requests and answers have types of their own."""
    program = Path(sys.executable).with_name("openapi-python-client")
    arguments = ["generate", "--url", f"{url}/openapi.json", "--meta", "none", "--output-path", str(tmp_path / "made")]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr, done.stdout
    use = f"""
from made import Client
from made.api.cerberank import rank_batch_v1_rank_batch_post as batch, rank_cerberank_v1_rank_post as single
from made.models import BatchRequest, ModelList, RankRequest

client = Client(base_url={url!r}, raise_on_unexpected_status=True)
question = RankRequest(question="How tall is it?", candidates=["It is old.", "It is 330 metres tall."], top_k=1)
assert single.sync(client=client, body=question).results[0].index == 1
answers = batch.sync(client=client, body=BatchRequest(questions=[question, question])).answers
assert [entry.answer.results[0].index for entry in answers] == [1, 1]
"""
    subprocess.run([sys.executable, "-c", use], check=True, cwd=tmp_path)
