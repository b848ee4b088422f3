"""The three pages of "Get started": every command runs as it stands, but for ports and the base of the training."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.shell import DOCS, blocks, run_in_shell
from tests.tiny import save_cross_encoder

from cerberank_training.data import read_questions


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], str]:
    """Runs a script in a folder with links to the checkout's folders."""
    for name in ("docs", "models"):
        (tmp_path / name).symlink_to(DOCS.parent / name)
    return partial(run_in_shell, folder=tmp_path)


def commands(page: str) -> str:
    """The shell blocks of a page without its installation."""
    return re.sub(r"^(python3 -m venv|pip install) .*\n", "", blocks(page), flags=re.MULTILINE)


def test_a_user_ranks_and_gets_no_answer_where_there_is_none(run: Callable[[str], str]) -> None:
    printed = run(commands("start-user.md"))
    assert printed.count('"text":"The Eiffel Tower is 330 metres tall."') == 1
    assert '"results":[]' in printed
    assert printed.count("The Eiffel Tower is 330 metres tall.\n") == 2


def test_an_operator_pushes_a_version_and_takes_it_back(run: Callable[[str], str]) -> None:
    printed = run(commands("start-operator.md"))
    assert "401\n" in printed, printed
    assert "cerberank_build_info" in printed


def test_a_trainer_trains_evaluates_and_exports(run: Callable[[str], str], tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 4, "max_position_embeddings": 160, "initializer_range": 0.1}  # int8 must be near fp32
    base = save_cross_encoder("bert", tmp_path / "base", **shape)
    with (tmp_path / "answers.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("question", "text", "label"))
        for question in read_questions(f"jsonl:{DOCS / 'example' / 'train.jsonl'}"):
            table.writerows((question.text, row.candidate.text, row.label) for row in question.candidates)
    script = commands("start-trainer.md").replace("sentence-transformers/all-MiniLM-L6-v2", str(base))
    served = re.sub(r"^(CERBERANK_CHECKPOINT=\S+ cerberank serve)$", r"\1 &", script, flags=re.MULTILINE)
    # /v1/models answers while a model is still loading, and names none then.
    ready = "curl -sf --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8000/health/ready\n"
    assert '"model":"first"' in run(served + ready + "curl -sf http://127.0.0.1:8000/v1/models")
