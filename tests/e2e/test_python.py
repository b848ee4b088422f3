"""The Python interface beside a real service: the same answers, and the blocks of the pages on Python and migration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cerberank import Answer, Candidate, Client, Ranker
from tests.tiny import save_cross_encoder
from tools.process import Process

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_training.runs.summary import dev_map

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
TEXTS = ["it was built in paris .", "330 metres", "what do bees make", "honey " * 40, "it is tall", "", "330 metres"]
"""A text in windows, an empty one and one that comes twice."""


@pytest.fixture(scope="module")
def ranker(tiny_checkpoint: Path) -> Ranker:
    return Ranker.load(tiny_checkpoint)


def comparable(answer: Answer) -> dict[str, Any]:
    """The parts that depend neither on the request nor on rounding."""
    rows = [(each.index, each.stage, each.truncated, each.text, each.id, each.window) for each in answer]
    return {"rows": rows, "model": answer.model, "version": answer.version, "ratios": answer.drop_schedule} | {
        name: getattr(answer, name) for name in ("complete", "candidates", "warnings")
    }


@pytest.mark.parametrize(
    "candidates",
    [
        tuple(TEXTS),
        dict(enumerate(TEXTS)).values(),
        np.asarray(TEXTS),
        pd.Series(TEXTS, index=range(len(TEXTS), 0, -1)),
        pd.Series(["left out", *TEXTS])[1:],
        [Candidate(text=text) for text in TEXTS],
        [{"text": text, "id": np.int64(3), "next": None} for text in TEXTS],
        [f"{text} \ud83d" for text in TEXTS],
    ],
    ids=["tuple", "values", "array", "series", "filtered", "candidates", "objects", "surrogates"],
)
def test_any_list_of_texts_is_ranked_by_both(ranker: Ranker, shared_service: Process, candidates: Any) -> None:
    """Each result has the text of its own place, also of a generator, which can be read once only."""
    options: dict[str, Any] = {"top_k": np.int64(4), "min_score": np.float32(0.001), "drop_ratio": np.asarray([0.5])[0]}
    with Client(shared_service.url) as client:
        there = client.rank("how tall \ud83d", iter(candidates), **options)
    here = ranker.rank("how tall \ud83d", iter(candidates), **options)
    assert comparable(here) == comparable(there)
    for each in here:
        assert (each.text or "").removesuffix(" \ufffd") == TEXTS[each.index]


def test_every_block_of_the_page(
    shared_service: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other in one session, in a folder with the example data; only the address and the base differ."""
    (tmp_path / "docs").symlink_to(PAGE.parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    session: dict[str, Any] = {}
    base = save_cross_encoder("bert", tmp_path / "base")
    capsys.readouterr()
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        here = block.replace("http://127.0.0.1:8000", shared_service.url)
        here = here.replace("sentence-transformers/all-MiniLM-L6-v2", str(base))
        exec(compile(here, str(PAGE), "exec"), session)
    assert capsys.readouterr().out.startswith("1 It is 330 metres tall. 0.9")
    assert session["ranker"].checkpoint.path == BUNDLED
    assert session["report"].map > 90
    assert (session["scores"].pairs, session["compared"].questions) == (2, 1)
    assert session["trained"].dev == dev_map(read_checkpoint(tmp_path / "runs/first/checkpoint").manifest.metrics)
    assert session["same"].version == session["ranker"].version


def test_rankers_of_the_page_on_migration(tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another model; the block of Cohere's client is that of docs/dialects.md, which test_api_page.py runs."""
    page = PAGE.with_name("migration.md").read_text()
    blocks = re.findall(r"^```python\n(from cerberank import .*?)^```$", page, re.MULTILINE | re.DOTALL)
    for block in blocks:
        here = block.replace("cross-encoder/ms-marco-MiniLM-L6-v2", str(tiny_checkpoint))
        exec(compile(here, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.count("\n") == len(blocks) == 2
