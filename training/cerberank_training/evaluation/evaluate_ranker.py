"""`cerberank.evaluate`: the figures of a ranker on a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from cerberank_models.ranker import Ranker
from cerberank_models.windows import Reading, windowing_of
from cerberank_training.data import Subset, read_questions, sampled, subset
from cerberank_training.data.in_memory import Data, named_data
from cerberank_training.evaluation.figures import Evaluation, Figures
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.sources.rankings import ranker_rankings
from cerberank_training.evaluation.timing import Speed, measure_speed
from cerberank_training.evaluation.variants import default_dropping, default_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Figures of a ranker, all in percent."""

    figures: Mapping[str, Figures]
    """By variant: `final`, each exit, each head, and each drop schedule (docs/evaluation.md)."""
    served: str
    """The variant that the ranker uses by default."""
    speed: Speed | None = None
    """The time of a checkpoint; None for other sources of rankings."""
    depths: Mapping[int, Mapping[str, Figures]] = field(default_factory=dict)
    """The figures by numbers of candidates, of `cerberank evaluate --depths`; `figures` are those of the greatest."""

    def __getitem__(self, measure: str) -> float:
        """The mean of `map`, `mrr`, `p@1` or a chosen measure, for the variant `served`. Raises KeyError."""
        return self.figures[self.served].mean[measure]

    @property
    def milliseconds(self) -> float | None:
        """Milliseconds per 100 candidates, as measured in this call (`Speed`)."""
        return None if self.speed is None else self.speed.milliseconds

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
    ranker: Ranker | str | Path,
    data: Data,
    *,
    measures: str = "",
    subset_name: Subset = "clean",
    windows: Reading | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Report:
    """Rank the questions of `FORMAT:PATH` (docs/data.md) with every exit, head and the default drop schedule.

    `ranker` may also be what `Ranker.load` opens, and `data` rows in memory: a DataFrame, a Dataset, or a list of
    dicts. `measures` adds measures by their names in ir_measures, such as `"nDCG@10 R@100"`. `sample` is a number of
    questions to draw.

    Raises DataError for data that cannot be read, ValueError for an unknown measure or an empty subset.
    """
    ranker = ranker if isinstance(ranker, Ranker) else Ranker.load(ranker)
    with TemporaryDirectory(prefix="cerberank-") as folder:
        read = read_questions(named_data(data, Path(folder) / "data.jsonl"))
        questions = sampled(read, size=sample, seed=seed, name=subset_name)
    if not subset(questions, subset_name):
        raise ValueError(f"no question is in the subset {subset_name!r}")
    config = ranker.checkpoint.config
    default = default_dropping(config)
    policies = [] if default is None else [default]
    evaluation = Evaluation(parse_measures(measures) if measures else ())
    for ranked in ranker_rankings(ranker, questions, policies=policies, windowing=windowing_of(windows)):
        evaluation.add(ranked.question, ranked.ranks)
    return Report(
        figures=evaluation.figures(subset_name),
        served=default_name(config),
        speed=measure_speed(ranker, questions, windows),
    )
