"""The checkpoint in this repository answers questions that it has never seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.golden import check_golden
from cerberank_training.data import read_questions, subset
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.variants import Scorer, rank_questions

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_bundled_checkpoint_is_valid_and_reproduces_its_golden_questions() -> None:
    """Every hash, and the scores on this machine's processor."""
    checkpoint = read_checkpoint(BUNDLED)
    assert str(checkpoint.config.architecture) == "B5 3H1"
    assert len(checkpoint.config.exits) >= 2
    check_golden(open_backend(checkpoint, precision="int8"), checkpoint, "int8")


def test_the_readmes_curl_puts_the_right_sentence_first() -> None:
    """Its very body, through the offline program."""
    body = json.loads(README.read_text().split("/v1/rank -d '")[1].split("\n}'")[0] + "\n}")
    line = json.dumps({"question": body["question"], "candidates": body["candidates"]})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    result = subprocess.run(
        [sys.executable, "-m", "cerberank", "rank", "--return-text", "--top-k", "1"],
        input=line,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "Harry Beck" in json.loads(result.stdout)["results"][0]["text"]


@pytest.mark.parametrize(("index", "right"), [(0, 1), (1, 2), (2, 1)])
def test_golden_questions_are_answered(index: int, right: int) -> None:
    """The right sentence of each golden question comes first: recorded scores of a bad model would reproduce too."""
    checkpoint = read_checkpoint(BUNDLED)
    scores = checkpoint.golden[index].scores["int8"]
    assert checkpoint.golden[index].question == GOLDEN_TEXTS[index][0]
    assert max(range(len(scores)), key=scores.__getitem__) == right


def test_it_ranks_wikiqa_better_than_word_overlap_and_embeddings(shared_data: Path) -> None:
    """MAP on the first 60 clean dev questions, zero-shot; BM25 reaches about 60, a random order 39."""
    checkpoint = read_checkpoint(BUNDLED)
    questions = subset(read_questions(f"wikiqa:{shared_data / 'wikiqa' / 'WikiQA-dev.tsv.gz'}"), "clean")[:60]
    evaluation = Evaluation()
    for question, ranks in rank_questions(Scorer.open(checkpoint, kind="onnx", precision="int8"), questions):
        evaluation.add(question, ranks)
    assert evaluation.figures()["final"].mean["map"] > 68.0
