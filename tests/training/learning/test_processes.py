"""Two processes train like one with all the questions."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from tests.tiny import random_ranker
from tests.training.letters import encoder, sampler
from tests.training.letters import questions as letters

from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.evaluation.dev_figures import dev_figures
from cerberank_training.learning.settings import StudentConfig, StudentObjective
from cerberank_training.learning.student_job import network_ranks, student_learner
from cerberank_training.runs.loop import Loop
from cerberank_training.runs.processes import TIMEOUT, Processes, leave_group

CONFIG = StudentConfig(
    steps=5,
    examples_per_step=4,
    precision="fp32",
    dropout=0.0,
    evaluate_every=5,
    train_token_embeddings=True,
    learning_rate=1e-3,
    fresh_learning_rate=1e-3,
)
OBJECTIVE = StudentObjective(listwise_weight=1.0)


def train(folder: Path, *, accumulate: int = 1) -> None:
    processes = Processes.join(torch.device("cpu"))
    questions, calls = letters(), list[int]()

    def measure(ranker: RankingNetwork) -> dict[str, float]:
        part = processes.part(questions)
        calls.append(len(part))
        with torch.random.fork_rng():  # of the weights of one process, so that both runs have the same figures
            return dev_figures(network_ranks(encoder(), "cpu"), questions)(random_ranker())

    config = replace(CONFIG, accumulate=accumulate)
    Loop(folder, student_learner(random_ranker(), sampler(), encoder(), config, objective=OBJECTIVE)).train(measure)
    if processes.rank == 0:
        (folder / "parts.json").write_text(json.dumps(processes.gather(calls)))
    else:
        processes.gather(calls)
    leave_group()
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_two_processes_and_several_batches_train_to_the_weights_of_one(tmp_path: Path, two_processes: Path) -> None:
    """gloo, uniform stages, groups of unequal size: every weight within 1e-4 after five steps of 1e-3.

    In one process four batches a step, and in each of two processes two, give what all groups at once give. Each
    process ranks a part of the dev questions, and the figures are those of one process, bit for bit.
    """
    folders = {"one": tmp_path / "one", "four": tmp_path / "four", "two": two_processes / "student"}
    train(folders["one"])
    train(folders["four"], accumulate=4)
    one, four, two = (torch.load(folder / "best.pt", weights_only=True) for folder in folders.values())
    start = random_ranker().state_dict()
    assert any(not torch.equal(start[name], value) for name, value in one.items())
    for name, value in one.items():
        # Attention does not change with the key's bias: its gradient is rounding alone, which Adam blows up.
        if not name.endswith(".key.bias"):
            assert torch.allclose(value, two[name], atol=1e-4), name
            assert torch.allclose(value, four[name], atol=1e-4), name
    rows = {
        name: [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        for name, folder in folders.items()
    }
    losses = {name: [row["loss"] for row in logged if "loss" in row] for name, logged in rows.items()}
    assert losses["four"] == pytest.approx(losses["one"], rel=1e-3)
    parts = [json.loads((folders[name] / "parts.json").read_text()) for name in ("one", "two")]
    assert parts == [[[5, 5]], [[2, 2], [3, 3]]]  # before the first step, and after the last
    figures = {
        name: [{key: value for key, value in row.items() if key.startswith("dev_map")} for row in logged]
        for name, logged in rows.items()
    }
    assert figures["two"] == figures["one"]
    assert sum(map(bool, figures["one"])) == 2


def test_the_processes_shares_of_a_step_are_the_whole_step() -> None:
    """Every third item each; shares of unequal size are refused."""
    assert [Processes(rank, 3).share("abcdef") for rank in range(3)] == [["a", "d"], ["b", "e"], ["c", "f"]]
    with pytest.raises(ValueError, match="5 questions a step cannot be shared by 3 processes"):
        Processes(0, 3).share("abcde")


def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchrun's number of the process on its machine is the GPU that `cuda` means in it, before NCCL asks."""
    asked: list[str] = []
    for name, value in {"WORLD_SIZE": "8", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: asked.append(f"GPU {number}"))
    limits: list[timedelta] = []
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda backend, *, timeout: (asked.append(backend), limits.append(timeout)),
    )
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 5)
    assert Processes.join(torch.device("cuda")) == Processes(rank=5, count=8)
    assert asked == ["GPU 3", "nccl"]
    assert limits == [TIMEOUT]
