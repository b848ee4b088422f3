"""Exits that learn the model's own scores. The frozen body computes what the exits read once.

The loss is the sum of two losses. The listwise cross entropy (softmax over a question's candidates) trains the order,
which decides what is dropped. The distance between the probabilities of exit and model trains the scores, because the
answer gives a dropped candidate its exit's score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from cerberank_models.config import SCHEDULES, ExitConfig, RankerConfig
from cerberank_models.convert.from_hugging_face import initialise
from cerberank_models.network.exits import Exit
from cerberank_models.network.layout import PackedLayout, offsets_of
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.acceleration.states import ExitInputs
from cerberank_training.data.epochs import EpochOrder
from cerberank_training.learning.batch import moved
from cerberank_training.learning.losses import distillation_loss, listwise_loss
from cerberank_training.learning.student_network import copy_norm
from cerberank_training.runs.loop import EqualSteps, Learner, Losses
from cerberank_training.runs.settings import TrainConfig

TAU = 2.0
"""The temperature of both orders; it gives weight to more candidates than the model's first."""
POINTS_WEIGHT = 0.3
"""The weight of the distance between probabilities beside the order, which decides what is dropped."""


def with_exits(source: RankingNetwork, exits: Sequence[ExitConfig], *, seed: int) -> RankingNetwork:
    """The network of `source` with new, untrained exits in place of its own; its final scores stay what they are.

    If the family has a norm before the final scores, the new exits get a copy of it. A ranker without heads keeps its
    last exit, which gives the final score. Drop schedules are left out, because they were measured on other exits.
    Raises ValueError for exits that do not fit the body.
    """
    source_config = source.config
    last = source_config.exits[-1:] if source_config.architecture.heads == 0 else ()
    dump = source_config.model_dump(exclude={"exits", *SCHEDULES})
    config = RankerConfig.model_validate({**dump, "exits": (*exits, *last)})
    ranker = RankingNetwork(config)
    initialise(ranker.exits, seed=seed)
    copy_norm(source, ranker)  # before the heads' own norms are loaded, which may differ
    state = {name: value for name, value in source.state_dict().items() if not name.startswith("exits.")}
    ranker.load_state_dict(state, strict=False)
    if last:
        ranker.exits[-1].load_state_dict(source.exits[-1].state_dict())
    return ranker.eval()


class Exits(nn.Module):
    """E exits that read the stored states of a frozen body."""

    def __init__(self, exits: Sequence[Exit]) -> None:
        super().__init__()
        self.exits = nn.ModuleList(exits)

    def forward(self, states: Tensor, offsets: Tensor) -> Tensor:
        """The logits `[N, E]`, from `ExitInputs.states` `[R, E, D]`; pair i owns `offsets[i]:offsets[i + 1]` of them.

        If exits read single tokens, the rows are tokens, else pooled vectors.
        """
        exits = [cast(Exit, exit_) for exit_ in self.exits]
        if not any(exit_.config.token_features for exit_ in exits):
            return torch.stack([each.classify(states[:, index].float()) for index, each in enumerate(exits)], dim=1)
        layout = PackedLayout.of(offsets)
        return torch.stack([each(states[:, index].float(), layout) for index, each in enumerate(exits)], dim=1)


@dataclass(frozen=True, slots=True)
class StateBatch:
    """The states that exits read of N pairs of Q questions, with the model's final scores of them."""

    states: Tensor
    """`[R, E, D]`, float16."""
    offsets: Tensor
    """`[N + 1]`: pair i owns the rows `offsets[i]:offsets[i + 1]`."""
    logits: Tensor
    """`[N]`: the final scores."""
    targets: Tensor
    """`[N]`: the softmax of a question's final scores."""
    questions: Tensor
    """`[Q + 1]`: question i owns the pairs `questions[i]:questions[i + 1]`."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.logits)

    def on(self, device: torch.device) -> StateBatch:
        """The batch on `device`."""
        return StateBatch(*(moved(getattr(self, each.name), device) for each in fields(self)))


def state_batch(questions: Sequence[int], inputs: ExitInputs) -> StateBatch:
    """The batch of the questions with these numbers."""
    scores = [torch.from_numpy(inputs.logits[inputs.pairs(question)]) for question in questions]
    lengths = np.concatenate([inputs.lengths(question) for question in questions])
    return StateBatch(
        states=torch.from_numpy(np.concatenate([inputs.states[inputs.rows(question)] for question in questions])),
        offsets=offsets_of(torch.from_numpy(lengths)),
        logits=torch.cat(scores),
        targets=torch.cat([(each / TAU).softmax(dim=0) for each in scores]),
        questions=torch.tensor([0, *map(len, scores)]).cumsum(0),
    )


def exits_learner(
    exits: Exits, inputs: ExitInputs, questions: int, config: TrainConfig
) -> Learner[Exits, int, StateBatch]:
    """Exits that learn the model's own scores on the first `questions` of `inputs`."""
    return Learner(
        network=exits,
        config=config,
        items=EqualSteps(EpochOrder(questions, seed=config.seed), config.examples_per_step),
        batch=partial(state_batch, inputs=inputs),
        loss=exits_loss,
        takes_last=True,
    )


def exits_loss(step: int, forward: nn.Module, batch: StateBatch, pair_factor: float) -> tuple[Tensor, Losses]:
    """The sum of the exits' losses, and the loss of each."""
    logits = forward(batch.states, batch.offsets)
    points = distillation_loss(logits, batch.logits[:, None].expand_as(logits), 1.0)
    losses = listwise_loss(logits / TAU, batch.targets, batch.questions) + POINTS_WEIGHT * pair_factor * points
    return losses.sum(), {f"exit_{number}": loss for number, loss in enumerate(losses, start=1)}
