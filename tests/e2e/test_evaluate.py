"""`cerberank evaluate --url` measures what clients of the real process get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.program import program
from tools.process import Process

main = program("evaluate")


@pytest.fixture
def data(tmp_path: Path) -> str:
    texts = ["it was built in paris", "330 metres", "bees make honey", "the tower is 330 metres tall", "a city"]
    texts.append(" ".join(["bees make honey ."] * 60) + " the tower is 330 metres tall")
    lines = [
        {
            "question": f"how tall is the {name} ?",
            "candidates": [{"text": text, "label": int(k == index)} for k, text in enumerate(texts)],
        }
        for index, name in enumerate(("tower", "city", "river"))
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"jsonl:{tmp_path / 'data.jsonl'}"


def test_a_service_gets_the_figures_of_its_checkpoint(
    shared_service: Process, tiny_checkpoint: Path, tmp_path: Path, data: str
) -> None:
    """Every head, and the final order with and without drops."""
    at, here = tmp_path / "service.json", tmp_path / "offline.json"
    offline = ["--data", data, "--checkpoint", str(tiny_checkpoint), "--schedule", "0.5,0.3", "--json", str(here)]
    assert main(offline) == 0
    expected = json.loads(here.read_text())["figures"]["clean"]
    assert main(["--data", data, "--url", shared_service.url, "--schedule", "0.0,0.0", "--json", str(at)]) == 0
    got = json.loads(at.read_text())["figures"]["clean"]
    assert list(got) == ["final", "head 1", "head 2", "head 3"]
    for name, figures in got.items():
        assert figures["mean"] == pytest.approx(expected[name]["mean"])
    assert main(["--data", data, "--url", shared_service.url, "--schedule", "0.5,0.3", "--json", str(at)]) == 0
    dropped = json.loads(at.read_text())["figures"]["clean"]["final"]["mean"]
    assert dropped == pytest.approx(expected["drop 0.5,0.3"]["mean"])


def test_a_service_that_is_not_there_is_an_error(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and no output."""
    out = tmp_path / "lines.jsonl"
    assert main(["--data", data, "--url", "http://127.0.0.1:9", "--per-question", str(out)]) == 1
    assert capsys.readouterr().err.startswith("cerberank evaluate: ")
    assert not out.exists()
