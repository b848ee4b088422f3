"""The training loop of students: heads and exits on hard labels, resumable.

One step draws ONE stage (CT section 3.3: uniformly among exits and the final one), computes its loss
alone and back-propagates through every layer below, down to the embeddings. State is written
beside the weights with an atomic rename; a killed run continues from the last such file and
gives the same batches in the same order.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm import tqdm

from cerberank_models.encoding import PairEncoder, concat_pairs
from cerberank_models.ranker import Ranker
from cerberank_training.losses import listwise_loss, pointwise_loss
from cerberank_training.sampling import Group, Sampler


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Everything that decides what a run learns, apart from its data."""

    steps: int
    questions_per_step: int = 16
    learning_rate: float = 6e-5
    fresh_learning_rate: float = 4e-4
    """For classifiers and exits, which start from random weights."""
    warmup: float = 0.05
    """The share of the steps over which the learning rate rises; then it falls linearly to 0."""
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.1
    listwise: float = 1.0
    """Weight of the listwise loss beside the pointwise one."""
    final_only: float = 0.0
    """Share of the steps, at the start, that train the final stage alone (a warm start for CT's sampling)."""
    train_token_embeddings: bool = False
    """Off: a small data set would move the few words that it has and leave the others behind."""
    precision: str = "bf16"
    evaluate_every: int = 500
    save_every: int = 100
    seed: int = 1

    def stage(self, step: int, stages: int) -> int:
        """The stage that `step` trains, from the seed and the step alone (every process draws the same)."""
        if step < self.final_only * self.steps:
            return stages - 1
        return random.Random(f"{self.seed}/stage/{step}").randrange(stages)

    def rate(self, step: int) -> float:
        """The learning rate's factor: a triangle over `steps`."""
        ramp = max(1.0, self.warmup * self.steps)
        return min((step + 1) / ramp, (self.steps - step) / max(1.0, self.steps - ramp))


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed token ids of a step, with labels[N] and the questions' offsets[Q + 1] into the pairs."""

    token_ids: Tensor
    type_ids: Tensor
    offsets: Tensor
    labels: Tensor
    questions: Tensor


def make_batch(groups: list[Group], encoder: PairEncoder, device: torch.device) -> Batch:
    """Encode and pack the groups of one step."""
    pairs = concat_pairs([encoder.encode(group.question, group.candidates) for group in groups])
    sizes = np.cumsum([0, *(len(group.labels) for group in groups)])
    labels = np.asarray([label for group in groups for label in group.labels], dtype=np.float32)
    token_ids, type_ids, offsets, label_tensor, questions = (
        torch.from_numpy(array).to(device) for array in (pairs.token_ids, pairs.type_ids, pairs.offsets, labels, sizes)
    )
    return Batch(token_ids, type_ids, offsets, label_tensor, questions)


class Run:
    """One training run in one folder: `state.pt`, `best.pt` and `log.jsonl`."""

    def __init__(
        self,
        folder: Path,
        ranker: Ranker,
        sampler: Sampler,
        encoder: PairEncoder,
        config: TrainConfig,
        *,
        device: str = "cpu",
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same configuration, resume it."""
        self._folder, self._sampler, self._encoder, self._config = folder, sampler, encoder, config
        self._device = torch.device(device)
        self._ranker = ranker.to(self._device)
        ranker.embeddings.tokens.weight.requires_grad_(config.train_token_embeddings)
        self._optimizer = torch.optim.AdamW(_parameter_groups(ranker, config), weight_decay=config.weight_decay)
        self._step, self._best = 0, float("-inf")
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "state.pt").exists():
            self._resume()

    def train(self, dev_map: Callable[[Ranker], float]) -> float:
        """Train to the last step; returns the best dev MAP, whose weights are then in the ranker."""
        config, stages = self._config, len(self._ranker.config.stages)
        with tqdm(total=config.steps, initial=self._step, unit="step", desc=self._folder.name) as bar:
            while self._step < config.steps:
                started = time.perf_counter()
                stage = config.stage(self._step, stages)
                groups = self._sampler.step(self._step, config.questions_per_step)
                loss, pairs = self._train_step(groups, stage)
                self._step += 1
                bar.update()
                seconds = round(time.perf_counter() - started, 3)
                self._log(step=self._step, stage=stage, loss=round(loss, 4), pairs=pairs, seconds=seconds)
                if self._step % config.evaluate_every == 0 or self._step == config.steps:
                    self._evaluate(dev_map)
                if self._step % config.save_every == 0 or self._step == config.steps:
                    self._save()
        best = torch.load(self._folder / "best.pt", map_location=self._device, weights_only=True)
        self._ranker.load_state_dict(best, strict=True)
        return self._best

    def _train_step(self, groups: list[Group], stage: int) -> tuple[float, int]:
        factor = self._config.rate(self._step)
        for group in self._optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        torch.manual_seed(self._config.seed * 1_000_003 + self._step)  # dropout, the same after a resume
        batch = make_batch(groups, self._encoder, self._device)
        self._ranker.train()
        # The CPU's fused attention has a backward pass that takes as long as all matrix products of
        # MiniLM together; the plain one makes a step 1.3x faster.
        backends = [SDPBackend.MATH] if self._device.type == "cpu" else list(SDPBackend.__members__.values())
        with (
            sdpa_kernel(backends),
            torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._config.precision == "bf16"),
        ):
            logits = self._ranker(batch.token_ids, batch.type_ids, batch.offsets, stage)
            loss = pointwise_loss(logits, batch.labels)
            if self._config.listwise:
                loss = loss + self._config.listwise * listwise_loss(logits, batch.labels, batch.questions)
            self._optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._ranker.parameters(), self._config.clip)
        self._optimizer.step()
        return loss.item(), len(batch.labels)

    def _evaluate(self, dev_map: Callable[[Ranker], float]) -> None:
        self._ranker.eval()
        value = dev_map(self._ranker)
        self._log(step=self._step, dev_map=round(value, 4))
        if value > self._best and self._exits_trained:
            self._best = value
            _atomic_save(self._ranker.state_dict(), self._folder / "best.pt")

    @property
    def _exits_trained(self) -> bool:
        """Weights from the warm start are no candidates: their exits are still random."""
        return self._config.final_only >= 1.0 or self._step > self._config.final_only * self._config.steps

    def _save(self) -> None:
        state = {
            "step": self._step,
            "best": self._best,
            "config": json.dumps(asdict(self._config), sort_keys=True),
            "ranker": self._ranker.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        _atomic_save(state, self._folder / "state.pt")

    def _resume(self) -> None:
        state = torch.load(self._folder / "state.pt", map_location=self._device, weights_only=True)
        if state["config"] != json.dumps(asdict(self._config), sort_keys=True):
            raise ValueError(f"{self._folder} holds a run of another configuration; choose another folder")
        self._ranker.load_state_dict(state["ranker"], strict=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._best = state["step"], state["best"]

    def _log(self, **record: Any) -> None:
        with (self._folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")


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
    """Write beside `path`, flush to the disk, then rename: a kill leaves the old file or the new one."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
