"""The figures on dev questions that choose a network's weights while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cerberank_training.data import Question
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.variants import Ranks
from cerberank_training.runs.job import Training
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.run_data import measured

NetworkT = TypeVar("NetworkT")
RankedQuestions = Iterable[tuple[Question, Mapping[str, Ranks]]]
"""Questions with their ranks by variant."""


def dev_figures(
    rank: Callable[[NetworkT, Sequence[Question]], RankedQuestions],
    questions: Sequence[Question],
    metric: str = "map",
) -> Callable[[NetworkT], dict[str, float]]:
    """A function that measures `metric` (one of METRICS) of a network on `questions`, in percent, by variant.

    Each process ranks a part of the questions by `rank`, and all get the figures of the whole.
    """

    def measure(network: NetworkT) -> dict[str, float]:
        processes, evaluation = Processes.current(), Evaluation()
        for question, ranks in rank(network, processes.part(questions)):
            evaluation.add(question, ranks)
        figures = Evaluation.joined(processes.gather(evaluation)).figures()
        return {name: row.mean[metric] for name, row in figures.items()}

    return measure


@dataclass(frozen=True, kw_only=True)
class RankingTraining(Training):
    """A training that is measured by the ranking of questions."""

    dev: Sequence[Question]

    def results(self, best: float) -> dict[str, Any]:
        """The best figure, and the number of questions that it is the mean of."""
        return {"best": best, "questions": measured(self.dev)}
