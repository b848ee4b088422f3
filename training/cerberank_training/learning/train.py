"""The training loop of students, for heads and exits, on labels and teachers' scores; resumable, distributed.

State is written beside the weights with an atomic rename; a killed run continues from the last such
file with the same batches in the same order. Several processes share each step's questions and
compute the same gradient as one process with all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranker import Ranker
from cerberank_training.data.sampling import Group
from cerberank_training.learning.batch import Batch, TeacherScores, make_batch
from cerberank_training.learning.processes import Processes
from cerberank_training.learning.strategies import check_strategy
from cerberank_training.learning.student_objective import StudentObjective
from cerberank_training.learning.train_config import TrainConfig


class Groups(Protocol):
    """The source of a run's groups: a Sampler, or groups that were sampled beforehand."""

    def step(self, step: int, size: int) -> list[Group]:
        """The `size` groups of step `step`; the same at every call."""


class Run:
    """One training run in one folder: `state.pt`, `best.pt` and `log.jsonl`."""

    def __init__(
        self,
        folder: Path,
        ranker: Ranker,
        groups: Groups,
        encoder: PairEncoder,
        config: TrainConfig,
        *,
        objective: StudentObjective = StudentObjective(listwise=1.0),  # noqa: B008 - frozen
        teachers: Sequence[TeacherScores] = (),
        device: str = "cpu",
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same configuration, resume it.

        Raises ValueError when the strategy does not fit the heads and teachers.
        """
        check_strategy(objective.strategy, heads=ranker.config.architecture.heads, teachers=len(teachers))
        self._folder, self._groups, self._encoder = folder, groups, encoder
        self._config, self._objective, self._teachers = config, objective, teachers
        self._device = torch.device(device)
        self._processes = Processes.join(self._device)
        self._ranker = ranker.to(self._device)
        ranker.get_parameter("embeddings.tokens.weight").requires_grad_(config.train_token_embeddings)
        self._network: nn.Module = _StageLogits(ranker)
        if self._processes.count > 1:
            self._network = DistributedDataParallel(self._network, find_unused_parameters=True)
        self._optimizer = torch.optim.AdamW(_parameter_groups(ranker, config), weight_decay=config.weight_decay)
        self._step, self._best, self._without_gain = 0, float("-inf"), 0
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "state.pt").exists():
            self._resume()

    def train(self, dev_map: Callable[[Ranker], float]) -> float:
        """Train to the last step; returns the best dev MAP, whose weights are then in the ranker.

        With several processes only the first calls `dev_map`.
        """
        config = self._config
        with tqdm(
            total=config.steps,
            initial=self._step,
            unit="step",
            desc=self._folder.name,
            disable=self._processes.rank > 0,
        ) as bar:
            while self._step < config.steps and not self._out_of_patience:
                started = time.perf_counter()
                loss, pairs = self._train_step()
                self._step += 1
                bar.update()
                self._log(
                    step=self._step, loss=round(loss, 4), pairs=pairs, seconds=round(time.perf_counter() - started, 3)
                )
                if self._step % config.evaluate_every == 0 or self._step == config.steps:
                    self._evaluate(dev_map)
                if self._step % config.save_every == 0 or self._step == config.steps:
                    self._save()
        self._processes.sum(0)  # the first process has written best.pt
        best = torch.load(self._folder / "best.pt", map_location=self._device, weights_only=True)
        self._ranker.load_state_dict(best, strict=True)
        return self._best

    @property
    def _out_of_patience(self) -> bool:
        return self._config.patience is not None and self._without_gain >= self._config.patience

    def _train_step(self) -> tuple[float, int]:
        config, last = self._config, len(self._ranker.config.stages) - 1
        for group in self._optimizer.param_groups:
            group["lr"] = group["base_lr"] * config.rate(self._step)
        # Seeds dropout: the same after a resume, different in each process.
        torch.manual_seed((config.seed * 1_000_003 + self._step) * self._processes.count + self._processes.rank)
        groups = self._processes.share(self._groups.step(self._step, config.questions_per_step))
        batch = make_batch(groups, self._encoder, self._device, self._teachers)
        trained = config.trained(self._step, last + 1)
        watched = trained if self._objective.exits == "labels" or last in trained else (*trained, last)
        self._ranker.train()
        # On a CPU the backward pass of fused attention takes as long as all matrix products of MiniLM
        # together; plain attention makes a step 1.3x faster.
        backends = [SDPBackend.MATH] if self._device.type == "cpu" else list(SDPBackend.__members__.values())
        with (
            sdpa_kernel(backends),
            torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=config.precision == "bf16"),
        ):
            logits = dict(zip(watched, self._network(batch, watched), strict=True))
        loss = self._loss({stage: value.float() for stage, value in logits.items()}, batch, trained)
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._ranker.parameters(), config.clip)
        self._optimizer.step()
        return loss.item(), len(batch.labels)

    def _loss(self, logits: dict[int, Tensor], batch: Batch, trained: tuple[int, ...]) -> Tensor:
        last, objective = len(self._ranker.config.stages) - 1, self._objective
        share = self._processes.share_of_mean(len(batch.labels))
        heads = logits[last] if objective.exits == "heads" else None
        losses = [
            objective.heads_loss(logits[stage], batch, step=self._step, pair_share=share)
            if stage == last and self._ranker.heads
            else objective.exit_loss(logits[stage], batch, heads, pair_share=share)
            for stage in trained
        ]
        return torch.stack(losses).sum()

    def _evaluate(self, dev_map: Callable[[Ranker], float]) -> None:
        self._ranker.eval()
        value = self._processes.sum(dev_map(self._ranker) if self._processes.rank == 0 else 0.0)
        self._log(step=self._step, dev_map=round(value, 4))
        if not self._exits_trained:
            return
        if value <= self._best:
            self._without_gain += 1
            return
        self._best, self._without_gain = value, 0
        if self._processes.rank == 0:
            _atomic_save(self._ranker.state_dict(), self._folder / "best.pt")

    @property
    def _exits_trained(self) -> bool:
        """Whether exits have been trained; earlier weights are not kept as the best, because their exits are random."""
        return self._config.final_only >= 1.0 or self._step > self._config.final_only * self._config.steps

    def _save(self) -> None:
        if self._processes.rank > 0:
            return
        state = {
            "step": self._step,
            "best": self._best,
            "without_gain": self._without_gain,
            "config": self._configuration,
            "ranker": self._ranker.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        _atomic_save(state, self._folder / "state.pt")

    def _resume(self) -> None:
        state = torch.load(self._folder / "state.pt", map_location=self._device, weights_only=True)
        if state["config"] != self._configuration:
            raise ValueError(f"{self._folder} holds a run of another configuration; choose another folder")
        self._ranker.load_state_dict(state["ranker"], strict=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._best, self._without_gain = state["step"], state["best"], state["without_gain"]

    @property
    def _configuration(self) -> str:
        return json.dumps({"train": asdict(self._config), "objective": asdict(self._objective)}, sort_keys=True)

    def _log(self, **record: Any) -> None:
        if self._processes.rank > 0:
            return
        with (self._folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")


class _StageLogits(nn.Module):
    """The ranker under a `forward` that DistributedDataParallel can wrap."""

    def __init__(self, ranker: Ranker) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, batch: Batch, stages: tuple[int, ...]) -> list[Tensor]:
        return self.ranker.stage_logits(batch.token_ids, batch.type_ids, batch.offsets, stages)


def _parameter_groups(ranker: Ranker, config: TrainConfig) -> list[dict[str, Any]]:
    """Trained parameters in two groups: pretrained ones, and those that start from random weights."""
    named = [(name, parameter) for name, parameter in ranker.named_parameters() if parameter.requires_grad]
    fresh = [parameter for name, parameter in named if _is_fresh(name)]
    pretrained = [parameter for name, parameter in named if not _is_fresh(name)]
    return [
        {"params": pretrained, "lr": 0.0, "base_lr": config.learning_rate},
        {"params": fresh, "lr": 0.0, "base_lr": config.fresh_learning_rate},
    ]


def _is_fresh(name: str) -> bool:
    return name.startswith("exits.") or ".classifier." in name


def _atomic_save(value: Any, path: Path) -> None:
    """Save by a rename, so that a killed run leaves the old or the new file."""
    with replacing(path) as file:
        torch.save(value, file)
