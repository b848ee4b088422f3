"""A contextual checkpoint in service (SSP): `previous` and `next` of the wire and the page reach the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.contextual import save_contextual, segments_score
from tests.program import program
from tools.browser import DESKTOP, open_browser
from tools.process import Process, serving

main = program("import")


QUESTION, TEXTS = "how tall ?", ["it was built in paris .", "330 metres", "what do bees make"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_contextual("bert", tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="module")
def contextual(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("contextual")
    assert main([str(source), str(folder / "checkpoint"), "--name", "contextual", "--precisions", ""]) == 0
    settings = {"CERBERANK_BACKEND": "torch", "CERBERANK_PRECISION": "fp32", "CERBERANK_THREADS": "1"}
    with serving(folder / "checkpoint", folder / "log", **settings) as running:
        yield running


def ranked(service: Process, candidates: list[Any]) -> tuple[list[float], list[str]]:
    """The scores in the order of the candidates, and the warnings."""
    body = {"question": QUESTION, "candidates": candidates}
    answer = httpx.post(f"{service.url}/v1/rank", json=body).raise_for_status().json()
    return [each["score"] for each in sorted(answer["results"], key=lambda each: each["index"])], answer["warnings"]


def neighbours() -> list[dict[str, str]]:
    padded = ["", *TEXTS, ""]
    return [{"text": text, "previous": padded[i], "next": padded[i + 2]} for i, text in enumerate(TEXTS)]


def test_context_changes_the_score_to_hugging_faces(source: Path, contextual: Process) -> None:
    """Without context and with it, the scores are the model's own on `q s c` with token types 0, 1 and 2."""
    (model,) = httpx.get(f"{contextual.url}/v1/models").json()["models"]
    assert model["context"] is True
    alone, silent = ranked(contextual, TEXTS)
    around, _ = ranked(contextual, neighbours())
    assert silent == []
    for candidate, got, without in zip(neighbours(), around, alone, strict=True):
        context = " ".join(filter(None, (candidate["previous"], candidate["next"])))
        assert abs(got - segments_score(source, [QUESTION, candidate["text"], context], [0, 1, 2])) <= 2e-3
        assert abs(without - segments_score(source, [QUESTION, candidate["text"], ""], [0, 1, 2])) <= 2e-3
    assert max(abs(a - b) for a, b in zip(alone, around, strict=True)) > 0.02


def test_the_playground_sends_a_lines_neighbours(contextual: Process) -> None:
    """For a model that reads context a box appears; with it, neighbours are sent and shown."""
    with open_browser() as browser:
        browser.look("light", DESKTOP)
        browser.driver.get(f"{contextual.url}/")
        browser.wait_for("#model", "contextual")
        for selector, text in (("#question", QUESTION), ("#candidates", "\n".join(TEXTS))):
            browser.find(selector).send_keys(text)
        browser.find("#rank").click()
        browser.wait_for("#summary", "3 candidates in")
        assert browser.texts("td.score b") == shown(ranked(contextual, TEXTS)[0])
        assert browser.texts(".beside") == []
        browser.driver.execute_script("document.getElementById('summary').textContent = ''")
        browser.find("#neighbours").click()
        browser.wait_for("#summary", "3 candidates in")
        assert browser.texts("td.score b") == shown(ranked(contextual, neighbours())[0])
        assert sorted(browser.texts(".beside")) == sorted([*TEXTS[:2], *TEXTS[1:]])
        assert browser.console() == []


def shown(scores: list[float]) -> list[str]:
    """Best first, as the page writes them."""
    return [f"{100 * score:.1f} %" for score in sorted(scores, reverse=True)]
