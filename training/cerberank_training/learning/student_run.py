"""The training of rankers of pairs by `loop.Loop`: heads and exits learn from labels and teachers' scores.

Several processes share the questions of each step, and compute the same gradient as a single process would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.data.sampling import LOOKED_AT, Group
from cerberank_training.learning.batch import Batch, TeacherScores, count_cut, make_batch
from cerberank_training.learning.loop import Figures, Loop, training_precision
from cerberank_training.learning.recomputation import recomputed
from cerberank_training.learning.strategies import strategy_of
from cerberank_training.learning.student_losses import exit_loss, heads_loss
from cerberank_training.learning.student_objective import StudentObjective
from cerberank_training.learning.train_config import TrainConfig, bound_settings
from cerberank_training.runs.processes import Processes, batch_of_step
from cerberank_training.tracking.tracker import Tracker


class Groups(Protocol):
    """The source of a run's groups: a Sampler, or groups that were sampled beforehand."""

    def step(self, step: int, size: int) -> list[Group]:
        """The `size` groups of step `step`; the same in every call."""


class TokenSteps:
    """Cuts the sequence of groups into steps by numbers of tokens. The same groups give the same steps."""

    def __init__(self, groups: Groups, encoder: PairEncoder, tokens: int, *, multiple: int = 1) -> None:
        """The number of groups of a step is a multiple of `multiple`, the largest with at most `tokens` tokens.

        If `multiple` groups have more tokens, they are a step all the same.
        """
        self._groups = groups
        self._encoder = encoder
        self._tokens = tokens
        self._multiple = multiple

    def take(self, position: int) -> list[Group]:
        """The groups of the step that begins after `position` groups."""
        taken: list[Group] = []
        tokens = 0
        while True:
            group = self._groups.step(position + len(taken), 1)[0]
            tokens += self._encoder.encode(group.question, group.candidates).tokens
            if tokens > self._tokens and len(taken) >= self._multiple:
                break
            taken.append(group)
        del taken[len(taken) - len(taken) % self._multiple :]
        return taken


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The part of a step that this process computes; `questions` counts the questions of all processes."""

    questions: int
    batches: list[Batch]
    """Batches with equal numbers of questions, whose gradients are added up."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Makes the part of a step that a process computes. Workers get a copy of this object; mapped data are shared."""

    groups: Groups
    encoder: PairEncoder
    teachers: Sequence[TeacherScores]
    config: TrainConfig
    processes: Processes

    def __call__(self, step: int, position: int) -> _Prepared:
        groups = self.groups_of(step, position)
        parts, share = self.config.accumulate, self.processes.share(groups)
        batches = [make_batch(share[part::parts], self.encoder, self.teachers) for part in range(parts)]
        return _Prepared(len(groups), batches)

    def groups_of(self, step: int, position: int) -> list[Group]:
        """The groups of all processes in the step that begins after `position` groups."""
        tokens, multiple = self.config.tokens_per_step, self.processes.count * self.config.accumulate
        if tokens is not None:
            return TokenSteps(self.groups, self.encoder, tokens, multiple=multiple).take(position)
        return self.groups.step(step, self.config.examples_per_step)


class _Steps(IterableDataset[_Prepared]):
    """The batches from a step on. Each of n workers makes every n-th batch."""

    def __init__(self, prepare: Callable[[int, int], _Prepared], steps: range, position: int) -> None:
        self._prepare = prepare
        self._numbers = steps
        self._position = position

    def __iter__(self) -> Iterator[_Prepared]:
        worker, position = get_worker_info(), self._position
        for step in self._numbers[worker.id :: worker.num_workers] if worker else self._numbers:
            prepared = self._prepare(step, position)
            position += prepared.questions
            yield prepared


class _StepsAhead:
    """Prepares the next batch in a thread while a step is computed, or several batches ahead in worker processes."""

    def __init__(self, prepare: Callable[[int, int], _Prepared], steps: int, *, workers: int = 0) -> None:
        """`prepare` makes a step's batch from the step's number and position; steps are taken in order, up to `steps`.

        With more than one of the `workers` the result must not depend on the position.
        """
        self._prepare = prepare
        self._steps = steps
        self._workers = workers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: Future[_Prepared] | None = None
        self._batches: Iterator[_Prepared] | None = None
        self.position = 0
        """The number of questions that were taken; a resumed run continues there."""

    def take(self, step: int) -> _Prepared:
        """The batch of step `step`. Raises the error of its preparation."""
        if self._workers:
            if self._batches is None:
                steps = _Steps(self._prepare, range(step, self._steps), self.position)
                # A loader draws a seed for its workers; from the default generator it would change the step's dropout.
                seeds = torch.Generator()
                self._batches = iter(DataLoader(steps, batch_size=None, num_workers=self._workers, generator=seeds))
            prepared = next(self._batches)
            self.position += prepared.questions
            return prepared
        taken = (self._next or self._thread.submit(self._prepare, step, self.position)).result()
        self.position += taken.questions
        more = step + 1 < self._steps
        self._next = self._thread.submit(self._prepare, step + 1, self.position) if more else None
        return taken

    def close(self) -> None:
        """End the thread, or the processes."""
        self._thread.shutdown(cancel_futures=True)
        self._batches = None


class StudentRun:
    """One training run in one folder."""

    def __init__(
        self,
        folder: Path,
        ranker: RankingNetwork,
        groups: Groups,
        encoder: PairEncoder,
        config: TrainConfig,
        *,
        objective: StudentObjective = StudentObjective(listwise_weight=1.0),  # noqa: B008 - frozen
        teachers: Sequence[TeacherScores] = (),
        device: str = "cpu",
        workers: int = 0,
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same settings, resume it.

        `workers` processes make the batches, or a thread if it is 0; the batches are the same. Raises ValueError when
        the strategy does not fit the heads and teachers, or a step cannot be divided equally.
        """
        strategy_of(objective.strategy, heads=ranker.config.architecture.heads, teachers=len(teachers))
        self._config = config
        self._objective = objective
        self._device = torch.device(device)
        self.processes = Processes.join(self._device)
        """The processes that share each step, which this one has joined."""
        self._ranker = ranker
        if config.tokens_per_step is None:
            batch_of_step(config.examples_per_step, config.accumulate)
        self._preparation = _Preparation(groups, encoder, teachers, config, self.processes)
        # A step of a number of tokens begins where the one before it ends, so a single process makes them in order.
        workers = workers if config.tokens_per_step is None else min(workers, 1)
        self._steps = _StepsAhead(self._preparation, config.steps, workers=workers)
        self._loop = Loop(
            folder,
            ranker,
            config,
            forward=_StageLogits(ranker, self._device if config.gradient_checkpointing else None),
            loss=self._step_loss,
            is_fresh=_is_fresh,
            settings={"train": bound_settings(config), "objective": asdict(objective)},
            processes=self.processes,
            device=self._device,
            stream=self._steps,
            trackers=trackers,
        )

    def train(self, dev_map: Callable[[RankingNetwork], float | Mapping[str, float]]) -> float:
        """Train to the last step, load the best weights into the ranker, and return their dev MAP.

        `dev_map` returns the MAP, or several by name: `final`, and those of exits and heads. Every process calls it.
        """
        try:
            return self._loop.train(dev_map)
        finally:
            self._steps.close()

    def first_step(self) -> list[Group]:
        """The groups of all processes in step 0."""
        return self._preparation.groups_of(0, 0)

    def count_cut(self) -> tuple[int, int]:
        """The number of pairs that are cut, and of all pairs, in the first groups."""
        groups = self._preparation.groups
        return count_cut((groups.step(index, 1)[0] for index in range(LOOKED_AT)), self._preparation.encoder)

    def _step_loss(self, step: int, forward: nn.Module) -> tuple[Tensor, Figures]:
        """Run the backward pass of all batches but the last, and return the loss of the last."""
        prepared = self._steps.take(step)
        pairs = sum(len(batch.labels) for batch in prepared.batches)
        sum_factor = self.processes.share_of_mean(pairs) / pairs
        figures: dict[str, Tensor] = {}
        *before, last = prepared.batches
        for batch in before:
            # The processes exchange the summed gradients once, in the backward pass of the last batch.
            with forward.no_sync() if isinstance(forward, DistributedDataParallel) else nullcontext():
                torch.autograd.backward(self._batch_loss(step, forward, batch, sum_factor, figures))
        loss = self._batch_loss(step, forward, last, sum_factor, figures)
        return loss, {"questions": prepared.questions, "pairs": pairs, **figures}

    def _batch_loss(
        self, step: int, forward: nn.Module, batch: Batch, sum_factor: float, figures: dict[str, Tensor]
    ) -> Tensor:
        """The contribution of a batch to the step's loss; its losses are added to the step's `figures`.

        `sum_factor` is the factor for sums over pairs. In means over questions all batches have the same weight.
        """
        config, last_stage = self._config, len(self._ranker.config.stages) - 1
        batch = batch.on(self._device)
        trained = config.trained(step, last_stage + 1)
        # Exits that learn from the heads need the heads' logits in steps that train no head, too.
        computed = trained if self._objective.exits == "labels" or last_stage in trained else (*trained, last_stage)
        with training_precision(self._device, config.precision):
            logits = dict(zip(computed, forward(batch, computed), strict=True))
        parts: dict[str, Tensor] = {}
        pair_share = sum_factor * len(batch.labels) * config.accumulate
        by_stage = {stage: value.float() for stage, value in logits.items()}
        loss = self._loss(by_stage, batch, trained, step=step, parts=parts, pair_share=pair_share) / config.accumulate
        logged = {"loss": loss, **{f"loss/{name}": part / config.accumulate for name, part in parts.items()}}
        for name, part in logged.items():
            figures[name] = figures[name] + part.detach() if name in figures else part.detach()
        return loss

    def _loss(
        self,
        logits: dict[int, Tensor],
        batch: Batch,
        trained: tuple[int, ...],
        *,
        step: int,
        parts: dict[str, Tensor],
        pair_share: float,
    ) -> Tensor:
        """The batch's loss; the losses of heads, exits and teachers are added to `parts`."""
        last_stage, objective = len(self._ranker.config.stages) - 1, self._objective
        heads = logits[last_stage] if objective.exits == "heads" else None
        losses = []
        for stage in trained:
            if stage == last_stage and self._ranker.heads:
                losses.append(
                    heads_loss(objective, logits[stage], batch, step=step, pair_share=pair_share, parts=parts)
                )
                continue
            loss = exit_loss(objective, logits[stage], batch, heads, pair_share=pair_share)
            parts[f"exit_{stage + 1}"] = loss
            losses.append(loss)
        return torch.stack(losses).sum()


class _StageLogits(nn.Module):
    """The ranker with a `forward` that returns the logits of stages, as DistributedDataParallel needs it."""

    def __init__(self, ranker: RankingNetwork, recomputation_device: torch.device | None) -> None:
        """`recomputation_device` is the device of gradient checkpointing; None switches it off."""
        super().__init__()
        self.ranker = ranker
        self._recomputation_device = recomputation_device

    def forward(self, batch: Batch, stages: tuple[int, ...]) -> list[Tensor]:
        layers = [*self.ranker.body]
        for head in self.ranker.heads:
            layers += head.get_submodule("layers").children()
        with recomputed(layers, self._recomputation_device) if self._recomputation_device else nullcontext():
            return self.ranker.stage_logits(batch.token_ids, batch.type_ids, batch.offsets, stages)


def _is_fresh(name: str) -> bool:
    """True for weights of exits and classifiers, which have the fresh learning rate even if they come from the base."""
    return name.startswith("exits.") or ".classifier." in name
