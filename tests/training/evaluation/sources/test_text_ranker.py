"""Questions are ranked by a text ranker's scores, whatever the number of candidates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.bounds import LOGITS
from tests.program import program
from tests.text_rankers import JOINT_TWIN, MONO, TR_COLBERT, TR_TWIN, text_ranker
from tests.tiny import bert_tokenizer
from tests.training.letters import jsonl, questions

from cerberank_models.encoding import Candidate
from cerberank_models.first_stage.text_ranker_folder import write_text_ranker
from cerberank_models.network.texts import Texts
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.text_encoding import TextEncoder
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.dev_figures import dev_figures
from cerberank_training.evaluation.question_metrics import question_metrics
from cerberank_training.evaluation.sources import text_ranker as source

main = program("evaluate")


@pytest.mark.parametrize("shape", [TR_COLBERT, TR_TWIN, MONO, JOINT_TWIN], ids=str)
def test_shared_candidates_in_parts_score_as_alone(shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two of three texts; two questions with the same candidates, which are read once, and one between."""
    monkeypatch.setattr(source, "BATCH", 2)
    ranker = text_ranker(shape)
    encoder = TextEncoder(bert_tokenizer(), ranker.config)
    same, other = ("a is a city", "the tower", ""), ("paris",)
    pairs = [("what is a ?", same), ("what is b ?", other), ("the tower", same)]
    reads = []
    monkeypatch.setattr(
        source,
        "encoded_candidates",
        lambda ranker, encoder, texts, read=source.encoded_candidates: (
            reads.append(texts) or read(ranker, encoder, texts)
        ),
    )
    ranked = {
        each.question.text: each.scores["final"]
        for each in source.text_rankings(ranker, encoder, [question(*pair) for pair in pairs])
    }
    assert list(ranked) == ["what is a ?", "the tower", "what is b ?"]
    assert reads == [same[:2], same[2:], other]
    for text, documents in pairs:
        alone = [
            ranker(
                Texts.on(torch.device("cpu"), encoder.questions([text])),
                Texts.on(torch.device("cpu"), *encoder.documents([document])),
                torch.zeros(1, dtype=torch.int64),
            ).scores.item()
            for document in documents
        ]
        assert np.allclose(ranked[text], alone, atol=LOGITS)


def question(text: str, documents: tuple[str, ...]) -> Question:
    candidates = tuple(LabelledCandidate(Candidate(text=document), 1) for document in documents)
    return Question(id=text, text=text, candidates=candidates)


def test_the_metric_is_that_of_the_rankings() -> None:
    """In percent, the mean over questions."""
    ranker = text_ranker(TR_TWIN)
    encoder = TextEncoder(bert_tokenizer(), ranker.config)
    wanted = [
        question_metrics(np.asarray(ranked.question.labels), ranked.ranks["final"]).expected["mrr"]
        for ranked in source.text_rankings(ranker, encoder, questions())
    ]
    got = dev_figures(source.text_ranks(encoder), questions(), "mrr")(ranker)
    assert got == {"final": pytest.approx(100 * np.mean(wanted))}


def test_a_score_that_is_no_number_names_the_question() -> None:
    """A diverged run must not be ranked."""
    ranker = text_ranker(TR_TWIN)
    with torch.no_grad():
        ranker.get_parameter("token_ranker.output.bias").fill_(float("nan"))
    with pytest.raises(NonFiniteScoreError, match="question 'a'"):
        list(source.text_rankings(ranker, TextEncoder(bert_tokenizer(), ranker.config), questions()))


def test_a_folder_is_evaluated_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are those of the network in memory; options that it has no use for are refused."""
    ranker = text_ranker(TR_TWIN)
    write_text_ranker(tmp_path / "ranker", ranker, bert_tokenizer(), version="1", source="tests")
    call = ["--data", jsonl(tmp_path), "--text-ranker", str(tmp_path / "ranker")]
    assert main([*call, "--json", str(tmp_path / "out.json"), "--per-question", str(tmp_path / "lines.jsonl")]) == 0
    encoder = TextEncoder(bert_tokenizer(), ranker.config)
    wanted = dev_figures(source.text_ranks(encoder), questions())(ranker)["final"]
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]["clean"]["final"]
    assert figures["mean"]["map"] == pytest.approx(wanted)
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 5
    assert main([*call, "--precision", "int8"]) == 1
    assert "runs on torch in fp32" in capsys.readouterr().err
