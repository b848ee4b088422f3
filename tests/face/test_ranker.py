"""`Ranker` of the Python interface in this process; `tests/e2e/test_python.py` has it beside a real service."""

from __future__ import annotations

import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cerberank import Client, Ranker, Store
from tests.bounds import PROBABILITIES

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.convert.source import SourceError
from cerberank_models.ranker import located

QUESTION = "how tall is the tower ?"
TEXTS = ["it was built in paris .", "330 metres", "what do bees make", "honey " * 40, "it is tall", "", "330 metres"]
"""A text in windows, an empty one and one that comes twice."""


@pytest.fixture(scope="module")
def ranker(tiny_checkpoint: Path) -> Ranker:
    # In fp32: int8 rounds an activation to another of its 256 steps where a batch adds in another order.
    return Ranker.load(tiny_checkpoint, precision="fp32")


@pytest.mark.parametrize(
    ("question", "candidates", "options", "message"),
    [
        (QUESTION, "abc", {}, "candidates: must be a list of texts, not str"),
        (QUESTION, {"text": "a", "id": "b"}, {}, "candidates: must be a list of texts, not dict"),
        (QUESTION, pd.DataFrame({"text": TEXTS}), {}, "candidates: must be a list of texts, not DataFrame"),
        (QUESTION, 3, {}, "candidates: must be a list of texts, not int"),
        (QUESTION, ["a", float("nan")], {}, "candidates[1]: must be a text or an object"),
        (QUESTION, [{"text": "a", "txet": "b"}], {}, "candidates[0].txet: is not a field of this request"),
        ("\u200b \u0301", ["a"], {}, "question: must not be blank"),
        (None, ["a"], {}, "question: is required"),
        (QUESTION, None, {}, "candidates: is required"),
        (QUESTION, ["a"], {"top_k": True}, "top_k: must be a valid integer"),
        (QUESTION, ["a"], {"min_score": float("nan")}, "min_score: must be a finite number"),
        (QUESTION, ["a"], {"windows": "worst"}, "windows: must be 'best', 'mean' or 'off'"),
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


def test_a_batch_is_answered_as_its_questions_alone(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of any size; a question has the shared candidates and options unless it has its own."""
    late = {"question": "who ?", "deadline_ms": 1e-6}
    for characters in (1, 10**6):
        monkeypatch.setattr("cerberank_models.ranker.BLOCK_CHARACTERS", characters)
        own = {"query": "what do bees make", "documents": iter(["honey", "330 metres"]), "top_k": 1}
        questions = [QUESTION, own, {"question": "who ?", "candidates": []}]
        answers = ranker.rank_batch([*questions, late, "where ?"], TEXTS, top_k=3)
        alone = [
            ranker.rank(QUESTION, TEXTS, top_k=3),
            ranker.rank("what do bees make", ["honey", "330 metres"], top_k=1),
            ranker.rank("who ?", []),
            ranker.rank("where ?", TEXTS, top_k=3),
        ]
        late_answer = answers.pop(3)
        assert (late_answer.complete, len(late_answer), {each.stage for each in late_answer}) == (False, 3, {0})
        for answer, other in zip(answers, alone, strict=True):
            assert (answer.complete, len(answer)) == (True, len(other))
            scores = {each.index: each.score for each in answer}
            assert scores == pytest.approx({each.index: each.score for each in other}, abs=PROBABILITIES)
    assert ranker.rank_batch([], TEXTS) == []


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        (QUESTION, {}, "questions: must be a list of questions, not str"),
        ([QUESTION, 3], {}, "questions[1]: must be a text or an object, not int"),
        ([QUESTION, " "], {}, "questions[1]: question: must not be blank"),
        ([{"question": "q", "topk": 1}], {}, "questions[0]: topk: is not a field of this request; is top_k meant?"),
        ([QUESTION], {"candidates": "abc"}, "candidates: must be a list of texts, not str"),
        ([QUESTION], {"candidates": None}, "questions[0]: candidates: is required"),
    ],
    ids=lambda value: value if isinstance(value, str) and ": " in value else "",
)
def test_wrong_questions_are_refused_by_both(
    ranker: Ranker, questions: Any, options: dict[str, Any], message: str
) -> None:
    for each in (ranker, Client("http://127.0.0.1:9")):
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            each.rank_batch(questions, **{"candidates": ["a"], **options})
        assert str(raised.value).startswith(message)


def test_an_option_of_services_is_refused(ranker: Ranker) -> None:
    """Rather than ignored."""
    options: dict[str, Any] = {"priority": 3}
    with pytest.raises(ValueError, match=r"^priority: a ranker in this process has no such option$"):
        ranker.rank(QUESTION, TEXTS, **options)


def test_no_candidates_have_an_empty_answer(ranker: Ranker) -> None:
    """A search has found nothing."""
    answer = ranker.rank(QUESTION, [])
    assert (len(answer), answer.candidates, answer.complete) == (0, 0, True)


def test_after_the_deadline_the_known_order_is_answered(ranker: Ranker) -> None:
    """The first stage is scored whole, the others are left out."""
    answer = ranker.rank(QUESTION, TEXTS, deadline_ms=1e-6)
    assert not answer.complete
    assert {each.stage for each in answer} == {0}
    assert "deadline" in answer.warnings[-1]


def test_the_bundled_model_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asking a hub; a folder of this name in the working directory comes first."""
    monkeypatch.chdir(tmp_path)
    assert located("cerberank-mini") == BUNDLED
    (tmp_path / "cerberank-mini").mkdir()
    with pytest.raises(SourceError):
        located("cerberank-mini")


def test_predict_is_the_score_of_each_pair(ranker: Ranker) -> None:
    """Many questions at once, each pair in its place, a long text read in windows as in `rank`."""
    questions = [QUESTION, "what do bees make", "where is it ?"]
    pairs = [(question, text) for text in TEXTS for question in questions]
    alone = [ranker.rank(question, [text], drop_ratio=0.0)[0].score for question, text in pairs]
    assert ranker.predict(pairs).tolist() == pytest.approx(alone, abs=PROBABILITIES)
    assert ranker.predict([]).shape == (0,)


def test_a_ranker_is_pickled_by_its_folder(ranker: Ranker) -> None:
    """For other processes; one that was made of an open backend has no form that could be opened again."""
    again = pickle.loads(pickle.dumps(ranker))
    assert repr(again) == repr(ranker)
    assert again.predict([(QUESTION, TEXTS[0])]) == ranker.predict([(QUESTION, TEXTS[0])])
    with pytest.raises(TypeError, match=r"only a ranker that Ranker\.load has opened"):
        pickle.dumps(Ranker(ranker.checkpoint, ranker.backend))


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
