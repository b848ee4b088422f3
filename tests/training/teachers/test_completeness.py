"""Pairs that a cache lacks are found before training, by every way of drawing pairs."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl, questions

from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.data.sampling import ExampleOptions, PairSampler, SampledGroups, Sampler
from cerberank_training.learning import student_job
from cerberank_training.teachers import completeness
from cerberank_training.teachers.completeness import refuse_missing_scores, score_command
from cerberank_training.teachers.pair_keys import data_digest, pair_keys
from cerberank_training.teachers.teacher_score_cache import (
    CacheManifest,
    MissingScoreError,
    ScoreCacheWriter,
    TeacherIdentity,
    TeacherScoreCache,
)

TEACHER = TeacherIdentity(name="ce2", revision="a" * 64, precision="torch/fp32", max_length=32, context=False)
UNANSWERED = Question(id="x", text="what is x ?", candidates=(LabelledCandidate(Candidate(text="a is a city"), 0),))


def cache(folder: Path, rows: list[Question], *, context: bool = False) -> TeacherScoreCache:
    """A cache of all pairs of the questions."""
    parts = [pair_keys(row.text, [each.candidate for each in row.candidates], context=context) for row in rows]
    keys = np.concatenate(parts)
    manifest = CacheManifest(
        teacher=TEACHER.model_copy(update={"context": context}),
        data=("letters",),
        data_sha256=data_digest(keys),
        pairs=len(keys),
        shard_pairs=len(keys),
    )
    with ScoreCacheWriter(folder, manifest) as writer:
        writer.write(0, keys, np.zeros(len(keys), dtype=np.float32))
    return TeacherScoreCache.open(folder)


@pytest.mark.parametrize("context", [False, True])
def test_all_that_can_be_drawn_is_looked_up(context: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, pairs and questions' own candidates; unanswered questions are not drawn, nor unused negatives."""
    monkeypatch.setattr(completeness, "CHUNK", 7)  # several chunks
    every, four = questions(), questions(4)
    positives = [replace(row, candidates=row.candidates[:1]) for row in every]
    known = {
        tmp_path / name: cache(tmp_path / name, rows, context=context)
        for name, rows in (("all", every), ("four", four), ("positives", positives))
    }
    grouped = Sampler([UNANSWERED, *every], ExampleOptions(negatives=1, hard_negatives=0, other_negatives=0), seed=1)
    article = ExampleOptions(negatives=0, hard_negatives=0, other_negatives=1)
    alone = Sampler([UNANSWERED, *every], article, seed=1, outside=lambda _: [Candidate(text="of the article")])
    single = PairSampler([UNANSWERED, *every], ExampleOptions(sampling="pairs"), seed=1)
    with_all = PairSampler([UNANSWERED, *every], ExampleOptions(sampling="pairs", unanswered="keep"), seed=1)
    for groups, lacking in (
        (grouped, {"all": 0, "four": 5, "positives": 20}),
        (alone, {"all": 0, "four": 1, "positives": 0}),
        (single, {"all": 0, "four": 5, "positives": 20}),
        (with_all, {"all": 1, "four": 6, "positives": 21}),
        (SampledGroups("jsonl:g.jsonl", every), {"all": 0, "four": 5, "positives": 20}),
    ):
        for name, count in lacking.items():
            one = {tmp_path / name: known[tmp_path / name]}
            if not count:
                refuse_missing_scores(one, groups, data="jsonl:x")
                continue
            with pytest.raises(
                MissingScoreError, match=rf"^--teacher {tmp_path / name} lacks the scores of {count} of"
            ):
                refuse_missing_scores(one, groups, data="jsonl:x")
    with pytest.raises(MissingScoreError) as error:
        refuse_missing_scores(known, single, data="jsonl:x")
    assert str(error.value).startswith(
        f"--teacher {tmp_path / 'four'} lacks the scores of 5 of 25 pairs of jsonl:x, and so does --teacher "
        f"{tmp_path / 'positives'} (20), such as the candidate 'e is a city' of the question 'what is e ?'; "
    )


def test_negatives_of_articles_need_the_articles_scores(tmp_path: Path) -> None:
    """They are not known beforehand; the command scores whole articles, so that all are there."""
    sampler = Sampler(questions(), ExampleOptions(), seed=1, outside=lambda _: [Candidate(text="elsewhere")])
    refuse_missing_scores({tmp_path: cache(tmp_path / "all", questions())}, sampler, data="squad-as2:t.jsonl")
    with pytest.raises(MissingScoreError, match=r"--data squad-as2-article:t\.jsonl`"):
        refuse_missing_scores({tmp_path: cache(tmp_path / "4", questions(4))}, sampler, data="squad-as2:t.jsonl")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "--teacher ce2 --max-length 32"),
        ({"context": True, "precision": "torch/bf16"}, "--teacher ce2 --precision bf16 --max-length 32 --context"),
        (
            {"name": "mini 1.2", "precision": "onnxruntime/int8"},
            "--teacher CHECKPOINT --backend onnxruntime --precision int8",
        ),
        ({"precision": "given/score * 2 + 1", "name": "a judge"}, "--scores FILE --as score --name 'a judge'"),
    ],
)
def test_the_command_scores_with_the_same_teacher(changes: dict[str, object], said: str) -> None:
    """Its options are those of the cache."""
    teacher = TEACHER.model_copy(update=changes)
    assert score_command(teacher, "jsonl:my data") == f"cerberank data score NEW {said} --data 'jsonl:my data'"


def test_distil_refuses_before_the_base_is_loaded_and_the_command_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with --teacher as given; after its `cerberank data score` the run is done."""
    monkeypatch.chdir(tmp_path)
    save_cross_encoder("bert", tmp_path / "ce2")
    data = jsonl(tmp_path)
    cache(tmp_path / "scores", questions(4))
    build = student_job.build_student
    capsys.readouterr()
    monkeypatch.setattr(student_job, "build_student", lambda *_, **__: pytest.fail("the base was loaded"))
    run = [
        *("--recipe", "tiny", "--base", "ce2", "--exits", "", "--heads", "2", "--steps", "2"),
        *("--dev", dev_jsonl(tmp_path)),
        *("--forms", "none", "--train", data),
    ]
    assert program("train distil")([*run, "--teacher", "scores", "--out", "run"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("cerberank train distil: --teacher scores lacks the scores of 5 of 25 pairs of jsonl:")
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(student_job, "build_student", build)
    (command,) = re.findall("`cerberank data score (.*?)`", said)
    assert program("data score")(shlex.split(command)) == 0
    assert json.loads((tmp_path / "NEW" / "manifest.json").read_text())["pairs"] == 25
    assert program("train distil")([*run, "--teacher", "NEW", "--out", "run"]) == 0
