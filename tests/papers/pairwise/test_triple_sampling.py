"""Triples: which texts are positives and negatives, and that a step follows from seed and step alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.training.data.trec.collections import write_collection, write_web_collection
from tests.training.letters import jsonl, questions

from cerberank_models.encoding import Candidate
from cerberank_papers.pairwise.settings import TripleSampling
from cerberank_papers.pairwise.triple_sampling import Triple, TripleSampler, triple_sampler_for
from cerberank_training.data import LabelledCandidate, Question, read_questions


def question(text: str, *rows: tuple[str, int], answers: tuple[str, ...] = ()) -> Question:
    candidates = tuple(LabelledCandidate(Candidate(text=text), label) for text, label in rows)
    return Question(id=text, text=text, candidates=candidates, answers=answers)


def corpus() -> list[str]:
    return sorted({row.candidate.text for each in questions() for row in each.candidates})


ANY = TripleSampling(positives="any")


def sampler(**sampling: float) -> TripleSampler:
    return TripleSampler(questions(), corpus(), replace(ANY, **sampling), seed=3)  # type: ignore[arg-type]


def test_a_step_does_not_depend_on_the_steps_before() -> None:
    """A resumed run draws the same triples, also across two epochs and in reverse order; another seed, others."""
    once = sampler(own_share=0.5)
    in_order = [once.step(step, 3) for step in range(6)]
    assert [once.step(step, 3) for step in reversed(range(6))] == in_order[::-1]
    assert [sampler(own_share=0.5).step(step, 3) for step in range(6)] == in_order
    other = TripleSampler(questions(), corpus(), replace(ANY, own_share=0.5), seed=4)
    assert [other.step(step, 3) for step in range(6)] != in_order


@pytest.mark.parametrize("grade", [1, 2])
@pytest.mark.parametrize("own", [0.0, 0.5, 1.0])
def test_positives_are_relevant_and_negatives_are_not(own: float, grade: int) -> None:
    """In every triple, from either source; a relevant text is not a negative, wherever it stands."""
    one = question("which river", ("the river is long", grade), ("no river", 0), ("river bed", grade))
    texts = ["river bed", "river delta", "the river is long", "other"]
    drawn = [
        triple
        for step in range(30)
        for triple in TripleSampler([one], texts, replace(ANY, own_share=own), seed=1).step(step, 1)
    ]
    assert {triple.positive for triple in drawn} == {"the river is long", "river bed"}
    assert {triple.negative for triple in drawn} == (
        {"no river"} if own == 1 else {"river delta"} if own == 0 else {"no river", "river delta"}
    )


def test_negatives_come_from_the_top_and_from_anywhere_when_nothing_matches() -> None:
    """With top=1 the single best other text; where no text shares a word, any text but the relevant one."""
    texts = ["river", "river delta city", "city"]
    best = TripleSampler([question("river delta", ("x", 1))], texts, replace(ANY, top=1), seed=1)
    assert {best.step(step, 1)[0].negative for step in range(10)} == {"river delta city"}
    none = TripleSampler([question("ocean", ("city", 1))], texts, replace(ANY, top=1), seed=1)
    assert {none.step(step, 1)[0].negative for step in range(20)} == {"river", "river delta city"}


def test_a_positive_comes_from_the_list_of_its_negative() -> None:
    """TRMD: of BM25's best two, not the relevant text below them; a question whose list has none gives its place to
    the next, and where no list has one nothing is drawn.
    """
    texts = ["river delta", "river delta city", "river", "ocean wave"]
    listed = question("river delta", ("river delta city", 1), ("river", 1))
    unlisted = question("river delta?", ("ocean wave", 1))
    drawn = TripleSampler([listed, unlisted], texts, TripleSampling(top=2), seed=1)
    triples = {triple for step in range(20) for triple in drawn.step(step, 1)}
    assert triples == {Triple(question="river delta", positive="river delta city", negative="river delta")}
    both = TripleSampler([listed, unlisted], texts, replace(ANY, top=2), seed=1)
    assert {both.step(step, 1)[0].positive for step in range(20)} == {"river delta city", "river", "ocean wave"}
    with pytest.raises(ValueError, match="no question has a relevant text among BM25's best 2: --positives any"):
        TripleSampler([unlisted], texts, TripleSampling(top=2), seed=1).step(0, 1)


def test_a_runs_triples_are_those_of_the_released_code(tmp_path: Path) -> None:
    """ClueWeb09b's files: both texts of a triple from the run, spam (-2) is negative, a query whose run has no relevant
    document is left out; BM25 beside it would give a relevant document that the run has missed as a negative.
    """
    spec = f"trec:{write_web_collection(tmp_path)}?run=indri.run&qrels=train.qrels&k=3"
    every = list(read_questions(spec, training=True))
    sampling = TripleSampling(own_share=1.0)
    drawn = triple_sampler_for(spec, every, sampling, seed=1)
    triples = {triple for step in range(30) for triple in drawn.step(step, 1)}
    assert triples == {
        Triple(question="obama family tree", positive="the family of obama", negative=negative)
        for negative in ("obama in office", "buy a family tree")
    }
    with pytest.raises(ValueError, match="has missed relevant texts of 2 questions"):
        triple_sampler_for(spec, every, TripleSampling(own_share=0.5), seed=1)


def test_a_text_that_holds_a_short_answer_is_no_bm25_negative() -> None:
    """Because it may answer the question without a label."""
    one = question("when did oil rise", ("oil rose in 1973", 1), answers=("1973",))
    texts = ["oil did rise high in 1973", "oil did rise late"]
    drawn = TripleSampler([one], texts, ANY, seed=1)
    assert {drawn.step(step, 1)[0].negative for step in range(10)} == {"oil did rise late"}


def test_what_cannot_be_learnt_is_refused() -> None:
    """No positive; own negatives alone and none there; a corpus that is relevant throughout."""
    for rows, own in ([(("a", 0),), 0.0], [(("a", 1),), 1.0]):
        with pytest.raises(ValueError, match="nothing can be learnt"):
            TripleSampler([question("q", *rows)], ["river"], TripleSampling(own_share=own), seed=1)
    with pytest.raises(ValueError, match="question 'q' has no negative"):
        TripleSampler([question("q", ("river", 1))], ["river"], ANY, seed=1).step(0, 1)


def test_a_collections_corpus_is_its_documents_and_a_data_sets_all_candidates(tmp_path: Path) -> None:
    """A document that is judged for no query is a negative; of a data set, another question's candidate."""
    spec = f"trec:{write_collection(tmp_path / 'c')}"
    drawn = triple_sampler_for(spec, list(read_questions(spec)), ANY, seed=1)
    negatives = {triple.negative for step in range(40) for triple in drawn.step(step, 2)}
    assert "Nile A river that nobody judged" in negatives
    data = jsonl(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "data.jsonl").read_text().splitlines()]
    (tmp_path / "data.jsonl").write_text(
        "".join(json.dumps({**line, "candidates": line["candidates"][:1]}) + "\n" for line in lines)
    )
    every = list(read_questions(data))
    of_others = triple_sampler_for(data, every, ANY, seed=1).step(0, 5)
    positives = {triple.positive for triple in of_others}
    assert {triple.negative for triple in of_others} <= positives
    assert all(isinstance(each, Triple) and each.positive != each.negative for each in of_others)
