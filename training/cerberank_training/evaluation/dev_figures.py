"""Jobs that are trained on questions, and the figures on dev questions that choose a network's weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

from cerberank_training.data import Question
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.variants import Ranks
from cerberank_training.runs.job import Job, JobOptions
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.run_data import RankingData, Size, check_ranking_data, measured, open_ranking_data

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


class RankingOptions(JobOptions, Protocol):
    """The settings of a call that trains on questions."""

    @property
    def train(self) -> str | None:
        """The questions to train on, as FORMAT:PATH."""

    @property
    def dev(self) -> str:
        """The questions that choose the weights."""

    @property
    def dev_questions(self) -> Size | None:
        """The number of them."""


OptionsT = TypeVar("OptionsT", bound=RankingOptions)


class RankingJob(Job[OptionsT]):
    """A job that is trained on questions, and measured by their ranking."""

    @property
    def trained_on(self) -> str:
        """The questions that are trained on, as FORMAT:PATH."""
        return self.options.train or ""

    def check(self) -> None:
        """Check the names of the data too."""
        super().check()
        check_ranking_data(self.trained_on, self.options.dev, self.options.dev_questions)

    @cached_property
    def data(self) -> RankingData:
        """The questions to train on and to choose by."""
        options = self.options
        return open_ranking_data(self.trained_on, options.dev, options.dev_questions, select=options.select)

    @property
    def names(self) -> dict[str, str | None]:
        """The names of the data."""
        return {"train": self.options.train, "dev": self.options.dev}

    @property
    @abstractmethod
    def ranks(self) -> Callable[[Any, Sequence[Question]], RankedQuestions]:
        """A function that ranks questions by the network."""

    @property
    def measure(self) -> Callable[[Any], dict[str, float]]:
        """The measure that chooses the weights, by variant."""
        return dev_figures(self.ranks, self.data.dev, self.options.select)

    def results(self, best: float) -> dict[str, Any]:
        """The best figure, and the number of questions that it is the mean of."""
        return {"best": best, "questions": measured(self.data.dev)}
