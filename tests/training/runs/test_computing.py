"""The number of threads follows from the network and the step, unless the environment says it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from tests.tiny import random_ranker

from cerberank_training.data.sampling import ExampleOptions
from cerberank_training.learning.settings import StudentConfig
from cerberank_training.learning.student_job import step_work
from cerberank_training.runs import computing


def test_work_is_weights_without_tables_by_tokens() -> None:
    """Counted by hand; a step of pairs or of a number of tokens has its own."""
    ranker = random_ranker()
    tables = sum(each.weight.numel() for each in ranker.modules() if isinstance(each, torch.nn.Embedding))
    weights = sum(each.numel() for each in ranker.parameters()) - tables
    groups = ExampleOptions(negatives=2, hard_negatives=1, other_negatives=1)
    config = StudentConfig(steps=1, examples_per_step=3)
    assert step_work(ranker, config, groups, max_length=10) == weights * 3 * 5 * 10
    assert step_work(ranker, config, ExampleOptions(sampling="pairs"), max_length=10) == weights * 3 * 10
    by_tokens = StudentConfig(steps=1, tokens_per_step=70)
    assert step_work(ranker, by_tokens, groups, max_length=10) == weights * 70


def test_threads_last_as_long_as_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network gets one, a large one as many as there are processors; OMP_NUM_THREADS wins."""
    before = torch.get_num_threads()
    monkeypatch.setattr(computing, "usable_processors", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for work, number in ((1e6, 1), (1e12, 2)):
        with computing.training_threads(work) as chosen:
            assert (chosen, torch.get_num_threads()) == (number, number)
        assert torch.get_num_threads() == before
    monkeypatch.setenv("OMP_NUM_THREADS", str(before))
    with computing.training_threads(1e6) as chosen:
        assert chosen == before


@pytest.mark.parametrize(("given", "kept"), [({}, "128"), ({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}, "7")])
def test_prepared_products_are_few_unless_the_environment_says_how_many(given: dict[str, str], kept: str) -> None:
    """Importing the package sets the variable, before oneDNN reads it at the first product."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN")} | given
    code = "import os, cerberank_training; print(os.environ['ONEDNN_PRIMITIVE_CACHE_CAPACITY'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kept
