"""The checkpoint of CERBERUS's authors, by its folder, in a real service and in Python."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.authors_cerberus import save, twin
from tests.tiny import bert_tokenizer, save_tokenizer
from tools.process import SERVE, serving
from transformers import AutoTokenizer

from cerberank_models.ranker import Ranker

TEXTS = ["it was built in paris .", "330 metres", "bees make honey", "how tall is the tower ? " * 40]
QUESTION = "how tall is the tower ? " * 12


def test_the_service_and_python_give_the_paper_s_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is cut at 128 tokens, by a request that names no rule; another rule may be named."""
    authors, cache = twin(), tmp_path / "cache"
    folder = save(authors.state(), tmp_path / "authors")
    save_tokenizer(bert_tokenizer(), folder)
    wanted = authors.scores(AutoTokenizer.from_pretrained(folder), QUESTION, TEXTS)
    body = {"question": QUESTION, "candidates": TEXTS}
    program = (*SERVE, str(folder))
    with serving(
        Path(), tmp_path / "log", program=program, CERBERANK_CHECKPOINT="", XDG_CACHE_HOME=str(cache)
    ) as service:
        (model,) = httpx.get(f"{service.url}/v1/models").json()["models"]
        answers = [
            httpx.post(f"{service.url}/v1/rank", json=body | rule).raise_for_status().json()["results"]
            for rule in ({}, {"windows": "best"})
        ]
    assert (model["architecture"], model["max_length"], model["windows"]) == ("B2 3H1", 128, "off")
    served, windowed = (sorted(results, key=lambda result: result["index"]) for results in answers)
    assert np.abs(np.asarray([result["score"] for result in served]) - wanted).max() <= 1e-5
    assert ["window" in result for result in windowed] == [False, False, False, True]
    assert not any("window" in result for result in served)
    # The import of the service is found in the cache.
    monkeypatch.setattr("cerberank_models.convert.checkpoint_cache.import_elsewhere", None)
    ranked = Ranker.load(folder, cache=cache / "cerberank").rank(QUESTION, TEXTS)
    assert {each.index: each.score for each in ranked} == {each["index"]: each["score"] for each in served}
