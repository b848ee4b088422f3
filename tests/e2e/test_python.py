"""The Python interface beside a real service: the same answers, and the blocks of the pages on Python and migration."""

from __future__ import annotations

import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cerberank import Answer, Candidate, Client, InvalidRequestError, Ranker, Store
from tests.bounds import PROBABILITIES
from tests.tiny import save_cross_encoder
from tools.process import Process

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_training.runs.card import dev_map

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
QUESTION = "how tall is the tower ?"
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


def scores_of(answer: Answer) -> list[float]:
    return [each.score for each in answer if each.score is not None]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 2},
        {"drop_ratio": 0.5},
        {"drop_ratio": [0.6, 0.1], "top_k": 3},
        {"windows": "mean"},
        {"windows": "off"},
        {"min_score": 0.5},
    ],
    ids=str,
)
def test_both_give_the_same_answer(ranker: Ranker, shared_service: Process, options: dict[str, Any]) -> None:
    """A ranker in this process and the service over HTTP: order, stages, windows, warnings; scores but for rounding."""
    with Client(shared_service.url) as client:
        there = client.rank(QUESTION, TEXTS, return_heads=True, **options)
    here = ranker.rank(QUESTION, TEXTS, **options)
    assert comparable(here) == comparable(there)
    assert scores_of(here) == pytest.approx(scores_of(there), abs=PROBABILITIES)
    assert [each.heads is None for each in here] == [each.heads is None for each in there]


def test_fields_of_candidates_arrive(ranker: Ranker, shared_service: Process) -> None:
    """Ids come back, and a context that the model does not read is warned about, by both."""
    candidates = [{"id": "a", "text": "330 metres", "previous": "the tower ."}, {"id": 2, "text": "honey"}]
    with Client(shared_service.url) as client:
        there = client.rank(QUESTION, candidates)
    here = ranker.rank(QUESTION, candidates)
    assert comparable(here) == comparable(there)
    assert {each.id for each in here} == {"a", 2}
    assert here.warnings == ("this model does not read the previous and next sentence",)


def test_an_invalid_request_is_named_by_both(ranker: Ranker, shared_service: Process) -> None:
    ratios = [0.1] * 9
    with (
        Client(shared_service.url) as client,
        pytest.raises(InvalidRequestError, match="drop ratios, not 9") as raised,
    ):
        client.rank(QUESTION, TEXTS, drop_ratio=ratios)
    assert (raised.value.status, raised.value.kind) == (422, "invalid")
    with pytest.raises(ValueError, match="2 drop ratios, not 9"):
        ranker.rank(QUESTION, TEXTS, drop_ratio=ratios)


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


@pytest.mark.parametrize(
    ("question", "candidates", "options", "message"),
    [
        (QUESTION, "abc", {}, "candidates: must be a list of texts, not str"),
        (QUESTION, {"text": "a", "id": "b"}, {}, "candidates: must be a list of texts, not dict"),
        (QUESTION, pd.DataFrame({"text": TEXTS}), {}, "candidates: must be a list of texts, not DataFrame"),
        (QUESTION, 3, {}, "candidates: must be a list of texts, not int"),
        (QUESTION, [], {}, "candidates: List should have at least 1 item, not 0"),
        (QUESTION, ["a", float("nan")], {}, "candidates[1]: must be a text or an object"),
        (QUESTION, [{"text": "a", "txet": "b"}], {}, "candidates[0].txet: is not a field of this request"),
        ("\u200b \u0301", ["a"], {}, "question: must not be blank"),
        (None, ["a"], {}, "question: Input should be a valid string"),
        (QUESTION, ["a"], {"top_k": 0}, "top_k: Input should be greater than or equal to 1"),
        (QUESTION, ["a"], {"top_k": True}, "top_k: Input should be a valid integer"),
        (QUESTION, ["a"], {"min_score": float("nan")}, "min_score: Input should be a finite number"),
        (QUESTION, ["a"], {"min_precision": 1.0}, "min_precision: Input should be less than 1"),
        (QUESTION, ["a"], {"deadline_ms": 0.0}, "deadline_ms: Input should be greater than 0"),
        (QUESTION, ["a"], {"drop_ratio": [0.1, 1.0]}, "drop_ratio[1]: Input should be less than 1"),
        (QUESTION, ["a"], {"windows": "worst"}, "windows: Input should be 'best', 'mean' or 'off'"),
    ],
    ids=lambda value: value if isinstance(value, str) and ": " in value else "",
)
def test_wrong_arguments_are_refused_by_both(
    ranker: Ranker, question: Any, candidates: Any, options: dict[str, Any], message: str
) -> None:
    """With the same message, and by the client before it asks the service."""
    for each in (ranker, Client("http://127.0.0.1:9")):
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            each.rank(question, candidates, **options)
        assert str(raised.value).startswith(message)


def test_after_the_deadline_the_known_order_is_answered(ranker: Ranker) -> None:
    """The first stage is scored whole, the others are left out."""
    answer = ranker.rank(QUESTION, TEXTS, deadline_ms=1e-6)
    assert not answer.complete
    assert {each.stage for each in answer} == {0}
    assert "deadline" in answer.warnings[-1]


def test_predict_is_the_score_of_each_pair(ranker: Ranker) -> None:
    """Many questions at once, each pair in its place, a long text read in windows as in `rank`."""
    questions = [QUESTION, "what do bees make", "where is it ?"]
    pairs = [(question, text) for text in TEXTS for question in questions]
    alone = [scores_of(ranker.rank(question, [text], drop_ratio=0.0))[0] for question, text in pairs]
    assert ranker.predict(pairs).tolist() == pytest.approx(alone, abs=PROBABILITIES)
    assert ranker.predict([]).shape == (0,)


def test_a_ranker_is_pickled_by_its_folder(ranker: Ranker) -> None:
    """For other processes; one that was made of an open backend has no form that could be opened again."""
    again = pickle.loads(pickle.dumps(ranker))
    assert repr(again) == repr(ranker)
    assert again.predict([(QUESTION, TEXTS[0])]) == ranker.predict([(QUESTION, TEXTS[0])])
    with pytest.raises(TypeError, match=r"only a ranker that Ranker\.load has opened"):
        pickle.dumps(Ranker(ranker.checkpoint, ranker.backend))


@pytest.mark.usefixtures("imports_here")
def test_an_imported_model_predicts_as_sentence_transformers(tmp_path: Path) -> None:
    """The folder of a cross-encoder is imported once, and its scores are those of the library that made it."""
    from sentence_transformers import CrossEncoder

    source = save_cross_encoder("bert", tmp_path / "source", num_labels=1, num_hidden_layers=2)
    pairs = [(QUESTION, text) for text in TEXTS if text and len(text) < 100]
    expected = CrossEncoder(str(source), device="cpu").predict(pairs)
    ranker = Ranker.load(str(source), cache=tmp_path / "cache")
    assert np.abs(ranker.predict(pairs) - expected).max() <= 1e-5  # fp32 in another order of additions
    (imported,) = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert Ranker.load(str(source), cache=tmp_path / "cache").checkpoint.path == imported


def test_a_version_of_a_store_is_pulled_once(
    tiny_checkpoint: Path, other_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By address or by CERBERANK_STORE, by label or by version; a damaged copy is pulled again."""
    store = Store(tmp_path / "store")
    assert store.push(tiny_checkpoint, label="stable") == "random-tiny@1"
    store.push(other_checkpoint, label="canary")
    load = partial(Ranker.load, cache=tmp_path / "cache")
    assert load(f"store://{tmp_path}/store/random-tiny").version == "1"
    assert load(f"store://{tmp_path}/store/random-tiny@canary").version == "2"
    monkeypatch.setenv("CERBERANK_STORE", str(tmp_path / "store"))
    pulled = load("store://random-tiny@1").checkpoint.path
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir() and "tiny-1-" in path.name] == [
        pulled.name
    ]
    (pulled / "config.json").write_text("{}")
    assert load("store://random-tiny").version == "1"


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
    assert session["trained"].dev_map == dev_map(read_checkpoint(tmp_path / "runs/first/checkpoint").manifest.metrics)
    assert session["same"].version == session["ranker"].version


def test_rankers_of_the_page_on_migration(tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another model; the block of Cohere's client is that of docs/dialects.md, which test_api_page.py runs."""
    page = PAGE.with_name("migration.md").read_text()
    blocks = re.findall(r"^```python\n(from cerberank import .*?)^```$", page, re.MULTILINE | re.DOTALL)
    for block in blocks:
        here = block.replace("cross-encoder/ms-marco-MiniLM-L6-v2", str(tiny_checkpoint))
        exec(compile(here, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.count("\n") == len(blocks) == 2
