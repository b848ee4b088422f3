"""The files of examples/ run with the bundled model; `tests/clients` runs those of the vendors' clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.http_server import Asked, answering
from tests.service.observe import wait_until
from tests.tiny import save_cross_encoder
from tools.process import Process, installed, serving

from cerberank_benchmarks.clients.server import free_port
from cerberank_models.checkpoint.bundled import default_checkpoint

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BEST = "The Eiffel Tower is 330 metres tall."


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(default_checkpoint(), tmp_path_factory.mktemp("service") / "log") as running:
        yield running


def language_model(asked: Asked) -> tuple[int, object, dict[str, str]]:
    """OpenAI's chat interface, whose answer is the prompt."""
    return 200, {"choices": [{"message": json.loads(asked.body)["messages"][-1]}]}, {}


def test_the_rag_backend_answers_from_the_right_text(service: Process, tmp_path: Path) -> None:
    """The prompt has the text that answers; a question that no text answers never reaches the language model."""
    (tmp_path / "texts.txt").write_text(f"It was built for the fair of 1889.\n{BEST}\nBees make honey.\n")
    port = free_port()
    variables = {"TEXTS": str(tmp_path / "texts.txt"), "CERBERANK_URL": service.url, "LLM_MODEL": "any"}
    command = [sys.executable, "-m", "uvicorn", "rag_backend:app", "--app-dir", str(EXAMPLES), "--port", str(port)]
    with (
        answering(language_model) as url,
        subprocess.Popen(
            command, env=os.environ | variables | {"LLM": f"{url}/v1"}, stderr=subprocess.DEVNULL
        ) as backend,
    ):
        try:
            wait_until(lambda: _answers(port))
            answer = _ask(port, "How tall is the Eiffel Tower?")
            assert answer["sources"] == [BEST]
            assert answer["answer"].endswith(f"- {BEST}\n\nHow tall is the Eiffel Tower?")
            assert _ask(port, "Who painted the ceiling of the chapel?") == {"answer": None, "sources": []}
        finally:
            backend.terminate()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/openapi.json").is_success
    except httpx.ConnectError:
        return False


def _ask(port: int, question: str) -> dict[str, object]:
    return httpx.get(f"http://127.0.0.1:{port}/ask", params={"question": question}).raise_for_status().json()


@pytest.fixture
def promtool() -> str:
    return installed("promtool", "prometheus")


def test_prometheus_takes_the_configuration(promtool: str) -> None:
    """With the rules and alerts of deploy/, which it names by a pattern that must match."""
    command = [promtool, "check", "config", str(EXAMPLES / "prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "SUCCESS: 2 rule files found" in checked.stdout


def test_training_by_the_python_interface(tmp_path: Path) -> None:
    """On a tiny encoder: a checkpoint, its figures, and a version in a store."""
    base = save_cross_encoder("bert", tmp_path / "base", num_hidden_layers=4, max_position_embeddings=160)
    command = [sys.executable, EXAMPLES / "train.py", tmp_path / "out", base]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\nMAP " in printed
    assert "example@" in printed.splitlines()[-1]
