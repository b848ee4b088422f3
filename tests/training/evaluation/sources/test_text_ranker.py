"""Questions are ranked by a text ranker's scores, whatever the number of candidates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.text_rankers import TR_COLBERT, TR_TWIN, text_ranker
from tests.tiny import bert_tokenizer
from tests.training.letters import jsonl, questions

from cerberank_models.rank import NonFiniteScoreError
from cerberank_models.text_ranker_folder import text_encoder, write_text_ranker
from cerberank_training.commands.evaluate import main
from cerberank_training.evaluation.metrics import question_metrics
from cerberank_training.evaluation.sources import text_ranker as source


def test_candidates_in_parts_score_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five candidates in batches of two."""
    ranker = text_ranker(TR_COLBERT)
    encoder, texts = text_encoder(ranker.config, bert_tokenizer()), ["a is a city", "b", "the tower", "", "paris"]
    whole = source.text_scores(ranker, encoder, "what is a ?", texts)
    monkeypatch.setattr(source, "BATCH", 2)
    assert np.allclose(source.text_scores(ranker, encoder, "what is a ?", texts), whole, atol=1e-5)
    assert len(whole) == 5


def test_the_metric_is_that_of_the_rankings() -> None:
    """In percent, the mean over questions."""
    ranker = text_ranker(TR_TWIN)
    encoder = text_encoder(ranker.config, bert_tokenizer())
    wanted = [
        question_metrics(np.asarray(ranked.question.labels), ranked.ranks["final"]).expected["mrr"]
        for ranked in source.text_rankings(ranker, encoder, questions())
    ]
    assert source.dev_metric(encoder, questions(), "mrr")(ranker) == pytest.approx(100 * np.mean(wanted))


def test_a_score_that_is_no_number_names_the_question() -> None:
    """A diverged run must not be ranked."""
    ranker = text_ranker(TR_TWIN)
    with torch.no_grad():
        ranker.get_parameter("token_ranker.output.bias").fill_(float("nan"))
    with pytest.raises(NonFiniteScoreError, match="question 'a'"):
        list(source.text_rankings(ranker, text_encoder(ranker.config, bert_tokenizer()), questions()))


def test_a_folder_is_evaluated_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are those of the network in memory; options that it has no use for are refused."""
    ranker = text_ranker(TR_TWIN)
    write_text_ranker(tmp_path / "ranker", ranker, bert_tokenizer(), version="1", source="tests")
    call = ["--data", jsonl(tmp_path), "--text-ranker", str(tmp_path / "ranker")]
    assert main([*call, "--json", str(tmp_path / "out.json"), "--per-question", str(tmp_path / "lines.jsonl")]) == 0
    wanted = source.dev_metric(text_encoder(ranker.config, bert_tokenizer()), questions(), "map")(ranker)
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]["clean"]["final"]
    assert figures["mean"]["map"] == pytest.approx(wanted)
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 5
    assert main([*call, "--precision", "int8"]) == 1
    assert "runs on torch in fp32" in capsys.readouterr().err
