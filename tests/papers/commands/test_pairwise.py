"""`cerberank train pairwise`: teachers, then a student from them, by command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.program import program, replaced
from tests.text_rankers import with_unused_tokens
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_models.commands.values import arguments_of
from cerberank_models.first_stage.bi_encoders import read_bi_encoder
from cerberank_models.first_stage.text_ranker_folder import read_text_ranker
from cerberank_papers.commands import pairwise, settings_from_recipe
from cerberank_papers.pairwise.settings import PairwiseOptions


def call(folder: Path, system: str, *more: str) -> int:
    data = jsonl(folder)
    return program("train pairwise")(
        replaced(
            [
                *("--system", system, "--base", str(folder / "base"), "--out", str(folder / system)),
                *("--dev", dev_jsonl(folder)),
                *("--steps", "4", "--examples-per-step", "2", "--evaluate-every", "2", "--save-every", "2"),
                *("--question-length", "12", "--document-length", "30", "--window", "16"),
                *("--train", data, "--positives", "any"),
            ],
            *more,
        )
    )


def settings(*words: str) -> PairwiseOptions:
    call = ("--system", "trmd-twin", "--base", "b", "--train", "jsonl:t", "--dev", "jsonl:d", "--out", "o")
    return arguments_of(pairwise, replaced(call, *words), config=settings_from_recipe)["options"]


def test_the_papers_settings_and_those_of_the_released_code() -> None:
    """Without decay of weights or rates (TRMD section 3.1.3); --released changes what neither call nor recipe gives."""
    steps = ("--steps", "100")
    config = settings(*steps).training
    assert (config.learning_rate, config.fresh_learning_rate, config.examples_per_step) == (1e-6, 1e-3, 32)
    assert {config.rate(step) for step in range(100)} == {1.0}
    assert config.weight_decay == 0.0
    loss = settings(*steps, "--released", "--hard", "hinge").loss
    assert (loss.hard, loss.representations, loss.mean) == ("hinge", "post_residual", "text")
    assert settings(*steps, "--released").training.learning_rate == 2e-5
    assert settings(*steps, "--released", "--system", "colbert").loss.representations == "projected"
    recipe = settings("--released", "--recipe", "trmd/robust04")
    assert (recipe.loss.hard, recipe.training.learning_rate) == ("hinge", 1e-6)


def test_from_a_base_to_a_taught_student(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MonoBERT on own negatives, TwinBERT on BM25's, the student from both with the released settings."""
    save_cross_encoder("bert", tmp_path / "base")
    assert call(tmp_path, "mono", "--own-share", "1") == 0
    assert call(tmp_path, "twin", "--top", "3", "--select", "p@20") == 0
    teachers = ("--mono", str(tmp_path / "mono" / "ranker"), "--bi", str(tmp_path / "twin" / "ranker"))
    assert call(tmp_path, "trmd-twin", *teachers, "--released", "--hard", "hinge") == 0
    assert "best dev MAP" in capsys.readouterr().out
    saved = read_text_ranker(tmp_path / "trmd-twin" / "ranker")
    assert (saved.ranker.config.first_ranker, saved.ranker.config.token_ranker) == ("residual", "twin")
    assert saved.ranker.config.mean == "text"
    twin = read_text_ranker(tmp_path / "twin" / "ranker")
    assert twin.ranker.config.mean == "all"
    assert set(twin.manifest.metrics) == {"dev_p_at_20"}
    records = [json.loads(line) for line in (tmp_path / "trmd-twin" / "log.jsonl").read_text().splitlines()]
    assert {"loss/hard", "loss/cls", "loss/representations"} <= set(records[1])


def test_colberts_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Teacher and student read them, monoBERT does not; one of both alone is refused. A first stage reads them too."""
    with_unused_tokens(save_cross_encoder("bert", tmp_path / "base"))
    assert call(tmp_path, "mono", "--own-share", "1") == 0
    assert call(tmp_path, "colbert", "--own-share", "1", "--colbert-texts") == 0
    mono, bi = (str(tmp_path / name / "ranker") for name in ("mono", "colbert"))
    assert call(tmp_path, "trmd-colbert", "--own-share", "1", "--mono", mono, "--bi", bi, "--colbert-texts") == 0
    saved = read_text_ranker(tmp_path / "trmd-colbert" / "ranker").ranker.config.encoding
    assert saved == read_text_ranker(Path(bi)).ranker.config.encoding
    assert saved.colbert is not None
    out = ("--out", str(tmp_path / "other"))
    assert call(tmp_path, "trmd-colbert", "--own-share", "1", "--mono", mono, "--bi", bi, *out) == 1
    assert "reads ColBERT's texts (--colbert-texts), trmd-colbert does not" in capsys.readouterr().err
    assert read_bi_encoder(bi, candidate_length=16).network.config.encoding.colbert == saved.colbert


def test_systems_and_teachers_must_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """trmd-* without a teacher, tr-* with one, and a teacher that does not exist: one line, and an exit code."""
    save_cross_encoder("bert", tmp_path / "base")
    assert call(tmp_path, "trmd-twin") == 2
    assert call(tmp_path, "tr-twin", "--mono", "nowhere") == 2
    assert call(tmp_path, "trmd-twin", "--mono", str(tmp_path / "nowhere")) == 1
    errors = capsys.readouterr().err
    assert "trmd-twin needs --mono or --bi" in errors
    assert "tr-twin learns from no teacher" in errors
    assert "is not a text ranker" in errors
