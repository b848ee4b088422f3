"""`cerberank.evaluate`: the figures of a ranker on a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerberank_models.ranker import Ranker
from cerberank_models.windows import Reading, windowing_of
from cerberank_training.data import Question, Subset, read_questions, sampled, subset
from cerberank_training.evaluation.figures import Evaluation, Figures
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.sources.rankings import ranker_rankings
from cerberank_training.evaluation.variants import policy_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Figures of a ranker, all in percent."""

    figures: Mapping[str, Figures]
    """By variant: `final`, each exit, each head, and each drop schedule (docs/evaluation.md)."""
    served: str
    """The variant that the ranker uses by default."""

    def __getitem__(self, measure: str) -> float:
        """The mean of `map`, `mrr`, `p@1` or a chosen measure, for the variant `served`. Raises KeyError."""
        return self.figures[self.served].mean[measure]

    @property
    def map(self) -> float:
        """Mean average precision."""
        return self["map"]

    @property
    def mrr(self) -> float:
        """Mean reciprocal rank."""
        return self["mrr"]

    @property
    def p_at_1(self) -> float:
        """The share of questions whose first candidate is a positive."""
        return self["p@1"]


def evaluate(
    ranker: Ranker,
    data: str | Sequence[Question],
    *,
    measures: str = "",
    subset_name: Subset = "clean",
    windows: Reading | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Report:
    """Rank the questions of `FORMAT:PATH` (docs/data.md) with every exit, head and the default drop schedule.

    `measures` adds measures by their names in ir_measures, such as `"nDCG@10 R@100"`. `sample` is a number of questions
    to draw. Raises DataError for data that cannot be read, ValueError for an unknown measure or an empty subset.
    """
    questions = sampled(
        read_questions(data) if isinstance(data, str) else data, size=sample, seed=seed, name=subset_name
    )
    if not subset(questions, subset_name):
        raise ValueError(f"no question is in the subset {subset_name!r}")
    config = ranker.checkpoint.config
    policy = config.drop_policy()
    policies = [policy] if any(config.schedule) else []
    evaluation = Evaluation(parse_measures(measures) if measures else ())
    for ranked in ranker_rankings(ranker, questions, policies=policies, windowing=windowing_of(windows)):
        evaluation.add(ranked.question, ranked.ranks)
    return Report(figures=evaluation.figures(subset_name), served=policy_name(policy) if policies else "final")
