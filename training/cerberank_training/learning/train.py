"""The training of rankers of pairs, for heads and exits, on labels and teachers' scores, by `loop.Loop`.

Several processes share each step's questions and compute the same gradient as one process with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor, nn

from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranker import Ranker
from cerberank_training.data.sampling import Group
from cerberank_training.learning.batch import Batch, TeacherScores, make_batch
from cerberank_training.learning.loop import Figures, Loop, training_precision
from cerberank_training.learning.processes import Processes
from cerberank_training.learning.strategies import check_strategy
from cerberank_training.learning.student_objective import StudentObjective
from cerberank_training.learning.train_config import TrainConfig, bound_settings
from cerberank_training.tracking.tracker import Tracker


class Groups(Protocol):
    """The source of a run's groups: a Sampler, or groups that were sampled beforehand."""

    def step(self, step: int, size: int) -> list[Group]:
        """The `size` groups of step `step`; the same at every call."""


class TokenSteps:
    """Cuts the sequence of groups into steps by their tokens; the same steps for the same groups."""

    def __init__(self, groups: Groups, encoder: PairEncoder, tokens: int, *, multiple: int = 1) -> None:
        """A step has at most `tokens` tokens, and a `multiple` of groups, one such at least."""
        self._groups, self._encoder, self._tokens, self._multiple = groups, encoder, tokens, multiple

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
    """The part of a step that this process computes; `questions` are those of all processes."""

    questions: int
    batch: Batch


class _StepsAhead:
    """Prepares each step's batch in a thread while the step before it computes."""

    def __init__(self, prepare: Callable[[int, int], _Prepared], steps: int) -> None:
        """`prepare` makes a step's batch from its number and its position; there are `steps`, taken in order."""
        self._prepare, self._steps = prepare, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: Future[_Prepared] | None = None
        self.position = 0
        """The number of questions that were taken, from which a run goes on."""

    def take(self, step: int) -> _Prepared:
        """The batch of step `step`. Raises what its preparation raised."""
        taken = (self._next or self._thread.submit(self._prepare, step, self.position)).result()
        self.position += taken.questions
        more = step + 1 < self._steps
        self._next = self._thread.submit(self._prepare, step + 1, self.position) if more else None
        return taken

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)


class Run:
    """One training run in one folder."""

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
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same settings, resume it.

        Raises ValueError when the strategy does not fit the heads and teachers.
        """
        check_strategy(objective.strategy, heads=ranker.config.architecture.heads, teachers=len(teachers))
        self._groups, self._encoder = groups, encoder
        self._config, self._objective, self._teachers = config, objective, teachers
        self._device = torch.device(device)
        self._processes = Processes.join(self._device)
        self._ranker = ranker
        self._token_steps = None
        if config.tokens_per_step is not None:
            self._token_steps = TokenSteps(groups, encoder, config.tokens_per_step, multiple=self._processes.count)
        self._steps = _StepsAhead(self._prepare, config.steps)
        self._loop = Loop(
            folder,
            ranker,
            config,
            forward=_StageLogits(ranker),
            loss=self._step_loss,
            is_fresh=_is_fresh,
            settings={"train": bound_settings(config), "objective": asdict(objective)},
            processes=self._processes,
            device=self._device,
            stream=self._steps,
            trackers=trackers,
        )

    def train(self, dev_map: Callable[[Ranker], float | Mapping[str, float]]) -> float:
        """Train to the last step; returns the best dev MAP, whose weights are then in the ranker.

        `dev_map` gives it alone, or as `final` with those of exits and heads. With several processes only the first
        calls it.
        """
        try:
            return self._loop.train(dev_map)
        finally:
            self._steps.close()

    def _prepare(self, step: int, position: int) -> _Prepared:
        groups = self._groups_of(step, position)
        return _Prepared(len(groups), make_batch(self._processes.share(groups), self._encoder, self._teachers))

    def _groups_of(self, step: int, position: int) -> list[Group]:
        if self._token_steps:
            return self._token_steps.take(position)
        return self._groups.step(step, self._config.questions_per_step)

    def first_step(self) -> list[Group]:
        """The groups of step 0, of all processes."""
        return self._groups_of(0, 0)

    def _step_loss(self, step: int, forward: nn.Module) -> tuple[Tensor, Figures]:
        config, last = self._config, len(self._ranker.config.stages) - 1
        prepared = self._steps.take(step)
        batch = prepared.batch.on(self._device)
        trained = config.trained(step, last + 1)
        watched = trained if self._objective.exits == "labels" or last in trained else (*trained, last)
        with training_precision(self._device, config.precision):
            logits = dict(zip(watched, forward(batch, watched), strict=True))
        parts: dict[str, Tensor] = {}
        loss = self._loss({stage: value.float() for stage, value in logits.items()}, batch, trained, step, parts)
        sizes = {"questions": prepared.questions, "pairs": len(batch.labels)}
        return loss, sizes | {f"loss/{name}": part for name, part in parts.items()}

    def _loss(
        self, logits: dict[int, Tensor], batch: Batch, trained: tuple[int, ...], step: int, parts: dict[str, Tensor]
    ) -> Tensor:
        """The step's loss; `parts` gets those of heads, exits and teachers."""
        last, objective = len(self._ranker.config.stages) - 1, self._objective
        share = self._processes.share_of_mean(len(batch.labels))
        heads = logits[last] if objective.exits == "heads" else None
        losses = []
        for stage in trained:
            if stage == last and self._ranker.heads:
                losses.append(objective.heads_loss(logits[stage], batch, step=step, pair_share=share, parts=parts))
                continue
            loss = objective.exit_loss(logits[stage], batch, heads, pair_share=share)
            parts[f"exit_{stage + 1}"] = loss
            losses.append(loss)
        return torch.stack(losses).sum()


class _StageLogits(nn.Module):
    """The ranker under a `forward` that DistributedDataParallel can wrap."""

    def __init__(self, ranker: Ranker) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, batch: Batch, stages: tuple[int, ...]) -> list[Tensor]:
        return self.ranker.stage_logits(batch.token_ids, batch.type_ids, batch.offsets, stages)


def _is_fresh(name: str) -> bool:
    return name.startswith("exits.") or ".classifier." in name
