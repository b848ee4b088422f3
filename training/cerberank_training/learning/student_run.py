"""The training of rankers of pairs by `loop.Loop`: heads and exits learn from labels and teachers' scores.

Several processes share the questions of each step, and compute the same gradient as a single process would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.data.sampling import LOOKED_AT, Group
from cerberank_training.learning.batch import Batch, TeacherScores, count_cut, make_batch
from cerberank_training.learning.loop import DevMetric, Figures, Loop, training_precision
from cerberank_training.learning.steps_ahead import EqualSteps, Source
from cerberank_training.learning.student_losses import exit_loss, heads_loss
from cerberank_training.learning.student_objective import StudentObjective
from cerberank_training.learning.train_config import StudentConfig
from cerberank_training.runs.processes import Processes
from cerberank_training.tracking.tracker import Tracker


class TokenSteps:
    """Cuts the sequence of groups into steps by numbers of tokens. The same groups give the same steps."""

    def __init__(self, groups: Source[Group], encoder: PairEncoder, tokens: int, *, multiple: int = 1) -> None:
        """The number of groups of a step is a multiple of `multiple`, the largest with at most `tokens` tokens.

        If `multiple` groups have more tokens, they are a step all the same.
        """
        self._groups = groups
        self._encoder = encoder
        self._tokens = tokens
        self._multiple = multiple

    def __call__(self, step: int, position: int) -> list[Group]:
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


class StudentRun:
    """One training run in one folder."""

    def __init__(
        self,
        folder: Path,
        ranker: RankingNetwork,
        groups: Source[Group],
        encoder: PairEncoder,
        config: StudentConfig,
        *,
        objective: StudentObjective = StudentObjective(),  # noqa: B008 - frozen
        teachers: Sequence[TeacherScores] = (),
        device: str = "cpu",
        workers: int = 0,
        figure: str = "dev_map",
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same settings, resume it.

        `workers` processes make the batches, or a thread if it is 0; the batches are the same.
        """
        self._config = config
        self._objective = objective
        self._device = torch.device(device)
        self.processes = Processes.join(self._device)
        """The processes that share each step, which this one has joined."""
        self._ranker = ranker
        ranker.get_parameter("embeddings.tokens.weight").requires_grad_(config.train_token_embeddings)
        self._groups = groups
        self._encoder = encoder
        self._items: Callable[[int, int], list[Group]] = EqualSteps(groups, config.examples_per_step)
        if config.tokens_per_step is not None:
            multiple = self.processes.count * config.accumulate
            self._items = TokenSteps(groups, encoder, config.tokens_per_step, multiple=multiple)
        self._loop = Loop(
            folder,
            ranker,
            config,
            forward=_StageLogits(ranker),
            items=self._items,
            batch=partial(make_batch, encoder=encoder, teachers=teachers),
            loss=self._batch_loss,
            layers=[
                *ranker.body,
                *(layer for head in ranker.heads for layer in head.get_submodule("layers").children()),
            ],
            is_fresh=_is_fresh,
            processes=self.processes,
            device=self._device,
            # A step of a number of tokens begins where the one before it ends, so a single process makes them in order.
            workers=workers if config.tokens_per_step is None else min(workers, 1),
            figure=figure,
            trackers=trackers,
        )

    def train(self, dev_metric: DevMetric[RankingNetwork]) -> float:
        """Train to the last step, load the best weights into the ranker, and return their figure on dev.

        `dev_metric` returns one, or several by name: `final`, and those of exits and heads. Every process calls it.
        """
        return self._loop.train(dev_metric)

    def first_step(self) -> list[Group]:
        """The groups of all processes in step 0."""
        return self._items(0, 0)

    def count_cut(self) -> tuple[int, int]:
        """The number of pairs that are cut, and of all pairs, in the first groups."""
        return count_cut((self._groups.step(index, 1)[0] for index in range(LOOKED_AT)), self._encoder)

    def _batch_loss(self, step: int, forward: nn.Module, batch: Batch, pair_share: float) -> tuple[Tensor, Figures]:
        """The loss of a batch, and the losses of heads, exits and teachers."""
        config, last_stage = self._config, len(self._ranker.config.stages) - 1
        trained = config.trained(step, last_stage + 1)
        # Exits that learn from the heads need the heads' logits in steps that train no head, too.
        computed = trained if self._objective.exits == "labels" or last_stage in trained else (*trained, last_stage)
        with training_precision(self._device, config.precision):
            logits = dict(zip(computed, forward(batch, computed), strict=True))
        parts: dict[str, Tensor] = {}
        by_stage = {stage: value.float() for stage, value in logits.items()}
        return self._loss(by_stage, batch, trained, step=step, parts=parts, pair_share=pair_share), parts

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

    def __init__(self, ranker: RankingNetwork) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, batch: Batch, stages: tuple[int, ...]) -> list[Tensor]:
        return self.ranker.stage_logits(batch.token_ids, batch.type_ids, batch.offsets, stages)


def _is_fresh(name: str) -> bool:
    """True for weights of exits and classifiers, which have the fresh learning rate even if they come from the base."""
    return name.startswith("exits.") or ".classifier." in name
