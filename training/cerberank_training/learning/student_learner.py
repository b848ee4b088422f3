"""Rankers of pairs as learners: heads and exits learn from labels and teachers' scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.data.sampling import LOOKED_AT, Group, NegativeSampling, Sampling, count_cut
from cerberank_training.learning.batch import Batch, make_batch
from cerberank_training.learning.student_losses import StudentLoss
from cerberank_training.learning.student_settings import StudentConfig, StudentObjective
from cerberank_training.runs.launched import launched_processes
from cerberank_training.runs.loop import Learner
from cerberank_training.runs.steps_ahead import EqualSteps, Source
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


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


def student_learner(
    ranker: RankingNetwork,
    groups: Source[Group],
    encoder: PairEncoder,
    config: StudentConfig,
    *,
    objective: StudentObjective = StudentObjective(),  # noqa: B008 - frozen
    teachers: Sequence[TeacherScoreCache] = (),
) -> Learner[RankingNetwork, Group, Batch]:
    """A ranker of pairs that learns from groups, whose pairs every one of the `teachers` has scored."""
    # Word embeddings are most of a small network's weights, and may stay as they are.
    ranker.get_parameter("embeddings.tokens.weight").requires_grad_(config.train_token_embeddings)
    # A step has a number of groups, or as many as fit into a number of tokens.
    items: Callable[[int, int], list[Group]] = EqualSteps(groups, config.examples_per_step)
    if config.tokens_per_step is not None:
        multiple = launched_processes() * config.accumulate
        items = TokenSteps(groups, encoder, config.tokens_per_step, multiple=multiple)
    # The layers of the body and of the heads, for gradient checkpointing.
    head_layers = (layer for head in ranker.heads for layer in head.get_submodule("layers").children())
    return Learner(
        network=ranker,
        config=config,
        forward=_StageLogits(ranker),
        items=items,
        batch=partial(make_batch, encoder=encoder, teachers=teachers),
        loss=StudentLoss(config, objective, stages=len(ranker.config.stages), has_heads=bool(ranker.heads)),
        layers=[*ranker.body, *head_layers],
        is_fresh=_is_fresh,
        in_order=config.tokens_per_step is not None,
    )


def step_work(network: nn.Module, config: StudentConfig, sampling: Sampling, *, max_length: int) -> float:
    """The number of products of a weight and a token in a step, if all pairs had `max_length` tokens.

    Embeddings do not count, because they are looked up and not multiplied.
    """
    embeddings = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    weights = sum(each.numel() for each in network.parameters() if id(each) not in embeddings)
    if config.tokens_per_step is not None:
        return float(weights) * config.tokens_per_step
    pairs = 1
    if isinstance(sampling, NegativeSampling):
        pairs += sampling.negatives + sampling.hard_negatives + sampling.other_negatives
    return float(weights) * config.examples_per_step * pairs * max_length


def first_pairs_cut(groups: Source[Group], encoder: PairEncoder) -> tuple[int, int]:
    """The number of pairs that are cut, and of all pairs, in the first groups."""
    return count_cut((groups.step(index, 1)[0] for index in range(LOOKED_AT)), encoder)


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
