"""Trains exits on the model's own scores. The frozen body computes the exits' input vectors once.

The loss is the sum of two losses. The listwise cross entropy (softmax over a question's candidates) trains the order,
which decides what is dropped. The distance between the probabilities of exit and model trains the scores, because the
answer gives a dropped candidate its exit's score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from cyclopts import Parameter
from cyclopts.validators import Number
from torch import Tensor, nn

from cerberank_models.commands.values import Count, Whole
from cerberank_models.config import SCHEDULES, ExitConfig, RankerConfig
from cerberank_models.convert.from_hugging_face import initialise
from cerberank_models.network.exits import Exit
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.progress import progress
from cerberank_training.acceleration.vectors import PooledVectors
from cerberank_training.learning.losses import distillation_loss, listwise_loss
from cerberank_training.learning.student_network import copy_norm
from cerberank_training.runner.divergence import check_finite
from cerberank_training.runner.loop import decayed


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class ExitTraining:
    """The settings that, together with the vectors, determine the exits; the first are options of the command."""

    epochs: Count = 10
    """Number of passes over the questions."""
    learning_rate: Annotated[float, Parameter(validator=Number(gte=1e-9, lte=1))] = 1e-3
    """Highest learning rate."""
    seed: Whole = 1
    """Random seed."""
    questions_per_step: Annotated[int, Parameter(parse=False)] = 32
    weight_decay: Annotated[float, Parameter(parse=False)] = 0.01
    tau: Annotated[float, Parameter(parse=False)] = 3.0
    """The temperature of both orders; it gives weight to more candidates than the model's first."""


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


def train_exits(exits: Sequence[Exit], pooled: PooledVectors, questions: int, training: ExitTraining) -> list[float]:
    """Train `exits` in place on the first `questions` of `pooled`, and return the loss of each exit in the last epoch.

    The result depends only on the vectors and the settings. Raises DivergenceError when a loss is not finite.
    """
    modules = nn.ModuleList(exits)
    weights = [weight for name, weight in modules.named_parameters() if ".norm." not in name]
    groups = [
        {"params": [weight for weight in weights if decayed(weight)], "weight_decay": training.weight_decay},
        {"params": [weight for weight in weights if not decayed(weight)], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=training.learning_rate)
    steps = training.epochs * math.ceil(questions / training.questions_per_step)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=steps)
    order = np.random.default_rng(training.seed)
    losses: list[Tensor] = []
    for _ in progress(range(training.epochs), unit="epoch", desc="exits"):
        losses = []
        shuffled = order.permutation(questions)
        for start in range(0, questions, training.questions_per_step):
            loss = _loss(exits, pooled, shuffled[start : start + training.questions_per_step].tolist(), training)
            optimiser.zero_grad()
            torch.autograd.backward(loss.sum())
            optimiser.step()
            rate.step()
            losses.append(loss.detach())
        last = float(losses[-1].sum())  # no later loss is finite once the weights are not
        check_finite({"loss of the exits": last}, step=rate.last_epoch, rate=training.learning_rate)
    return torch.stack(losses).mean(dim=0).tolist()


def exit_logits(exits: Sequence[Exit], vectors: Tensor) -> Tensor:
    """The logits `[N, E]` of E exits, from the pooled `vectors` `[N, E, D]`."""
    return torch.stack([exit_.classify(vectors[:, index]) for index, exit_ in enumerate(exits)], dim=1)


def _loss(exits: Sequence[Exit], pooled: PooledVectors, taken: Sequence[int], training: ExitTraining) -> Tensor:
    """The loss of each exit, `[E]`, on some questions."""
    rows = [pooled.rows(question) for question in taken]
    vectors = torch.from_numpy(np.concatenate([pooled.vectors[row] for row in rows])).float()
    final_logits = torch.from_numpy(np.concatenate([pooled.logits[row] for row in rows]))
    offsets = torch.tensor([0, *(row.stop - row.start for row in rows)]).cumsum(0)
    logits = exit_logits(exits, vectors)
    targets = torch.cat([torch.from_numpy(pooled.logits[row] / training.tau).softmax(dim=0) for row in rows])
    points = distillation_loss(logits, final_logits[:, None].expand_as(logits), 1.0)
    return listwise_loss(logits / training.tau, targets, offsets) + points
