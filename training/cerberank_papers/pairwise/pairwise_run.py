"""Pairwise training of a text ranker, by `loop.Loop`: TRMD's teachers and students."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.objective import PairwiseObjective
from cerberank_papers.pairwise.teachers import Teachers
from cerberank_papers.pairwise.triple_batch import count_cut, triple_batch
from cerberank_papers.pairwise.triple_sampling import Triple
from cerberank_training.learning.loop import Figures, Loop, training_precision
from cerberank_training.learning.train_config import TrainConfig, bound_settings
from cerberank_training.runs.processes import Processes
from cerberank_training.tracking.tracker import Tracker


class Triples(Protocol):
    """The source of a run's triples."""

    def step(self, step: int, size: int) -> list[Triple]:
        """The `size` triples of step `step`; the same in every call."""


class PairwiseRun:
    """One training run in one folder. `examples_per_step` is the number of triples; all processes share them."""

    def __init__(
        self,
        folder: Path,
        ranker: TextRanker,
        tokenizer: Tokenizer,
        triples: Triples,
        config: TrainConfig,
        *,
        objective: PairwiseObjective = PairwiseObjective(),  # noqa: B008 - frozen
        teachers: Teachers = Teachers(),  # noqa: B008 - frozen
        device: str = "cpu",
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same settings, resume it.

        Raises ValueError when a teacher does not fit the student, or the folder holds another run.
        """
        teachers.check(ranker.config, tokenizer)
        self._encoder = TextEncoder(tokenizer, ranker.config)
        self._plain = None
        if ranker.config.encoding.colbert is not None:  # monoBERT reads texts as they are
            encoding = ranker.config.encoding.model_copy(update={"colbert": None})
            self._plain = TextEncoder(tokenizer, ranker.config.model_copy(update={"encoding": encoding}))
        self._triples = triples
        self._config = config
        self._objective = objective
        self._teachers = teachers
        self._device = torch.device(device)
        self.processes = Processes.join(self._device)
        """The processes that share each step, which this one has joined."""
        for teacher in (teachers.mono, teachers.bi):
            if teacher is not None:
                teacher.to(self._device)
        taught = {
            role: teacher.name
            for role, teacher in (("mono", teachers.mono), ("bi", teachers.bi))
            if teacher is not None
        }
        settings = {"train": bound_settings(config), "objective": asdict(objective), "teachers": taught}
        self._loop = Loop(
            folder,
            ranker,
            config,
            forward=ranker,
            loss=self._step_loss,
            is_fresh=is_fresh,
            settings=settings,
            processes=self.processes,
            device=self._device,
            trackers=trackers,
        )

    def train(self, dev_metric: Callable[[TextRanker], Mapping[str, float]]) -> float:
        """Train to the last step, load the best weights into the ranker, and return their `dev_metric`."""
        return self._loop.train(dev_metric)

    def count_cut(self) -> tuple[int, int]:
        """The number of texts that are cut, and of all texts, in the first step."""
        return count_cut(self._triples.step(0, self._config.examples_per_step), self._encoder)

    def _step_loss(self, step: int, forward: nn.Module) -> tuple[Tensor, Figures]:
        triples = self.processes.share(self._triples.step(step, self._config.examples_per_step))
        batch = triple_batch(triples, self._encoder, self._device)
        plain = triple_batch(triples, self._plain, self._device) if self._plain else batch
        mono, bi = (
            None if teacher is None else teacher.read(texts)
            for teacher, texts in ((self._teachers.mono, plain), (self._teachers.bi, batch))
        )
        with training_precision(self._device, self._config.precision):
            student = forward(batch.questions, batch.documents, batch.owners)
        losses = self._objective.losses(student, mono=mono, bi=bi)
        return torch.stack(list(losses.values())).sum(), {"questions": self._config.examples_per_step, **losses}


def is_fresh(name: str) -> bool:
    """True if the weight `name` starts from random values, because it belongs to a ranker on top of the encoder."""
    return name.startswith(("first_ranker.", "token_ranker."))
