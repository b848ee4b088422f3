"""The training of exits on a ranker's own scores, which `train accelerate` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.folder import MANIFEST, Checkpoint
from cerberank_models.config import ExitConfig
from cerberank_models.network.exits import Exit
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.acceleration.exits import Exits, StateBatch, exits_learner, with_exits
from cerberank_training.acceleration.schedule import exits_agreement
from cerberank_training.acceleration.settings import AccelerateOptions
from cerberank_training.acceleration.states import ExitInputs, FrozenBody, compute_states
from cerberank_training.data import Question
from cerberank_training.runs.base import Base
from cerberank_training.runs.job import Job
from cerberank_training.runs.loop import Learner
from cerberank_training.runs.record import RunRecord
from cerberank_training.runs.settings import TrainConfig
from cerberank_training.runs.unlabelled import unlabelled, unlabelled_content, unlabelled_trained_on
from cerberank_training.teachers.scoring.teacher import files_revision

TOKEN_FEATURES = 32
"""The default number of features of single tokens that exits read: their layer has less than a hundredth of the weights
of a layer of the body."""
LEAST = 20
"""The least number of questions to train on, and to tune on; with fewer, percentages mean nothing."""


@dataclass(frozen=True)
class ExitsJob(Job[AccelerateOptions]):
    """The training of exits on a ranker's own scores, in OUT.work."""

    verb = "accelerate"
    result_name = "exits.safetensors"
    checkpoint: Checkpoint

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.options.work

    @property
    def batch_workers(self) -> int:
        """None by default: a batch is read from a file, and a process would only copy it."""
        return self.options.run.workers or 0

    @cached_property
    def ranker(self) -> RankingNetwork:
        """The network, with new exits until they are trained."""
        return _with_untrained_exits(self.checkpoint, self.options)

    @cached_property
    def exits(self) -> Exits:
        """The exits of the ranker that are new."""
        return Exits([cast(Exit, exit_) for exit_ in self.ranker.exits][: len(self.ranker.config.stages) - 1])

    @cached_property
    def questions(self) -> Sequence[Question]:
        """The questions to train on, and after them those to choose the schedule by."""
        return unlabelled(self.options.data)

    @property
    def start(self) -> int:
        """The number of the first question that is held out. Raises ValueError if there are too few of either."""
        options, start = self.options, len(self.questions) - self.options.held_out
        if min(start, options.held_out) < LEAST:
            raise ValueError(
                f"--held-out {options.held_out} of {len(self.questions)} questions leaves {start} to train on: "
                f"there must be at least {LEAST} of either"
            )
        return start

    @cached_property
    def states(self) -> ExitInputs:
        """The states that exits read, which are computed once and kept, because the body does not change."""
        options = self.options
        body = FrozenBody.of(self.ranker, device=options.run.place, precision=options.precision)
        Bound(self.out, self._read()).begin()
        return compute_states(self.out, body, self.checkpoint.encoder(), self.questions)

    def _read(self) -> dict[str, Any]:
        """All that determines the states."""
        return {
            "checkpoint": files_revision([self.checkpoint.path / MANIFEST]),
            "exits": [exit_.model_dump() for exit_ in self.ranker.config.exits],
            "precision": self.options.precision,
            "questions": unlabelled_content(self.options.data, self.questions),
        }

    @cached_property
    def base(self) -> Base:
        """The ranker."""
        path = self.checkpoint.path
        return Base(place=str(path), folder=path, name=path.resolve().name, checkpoint=self.checkpoint)

    @cached_property
    def config(self) -> TrainConfig:
        """The settings of the loop."""
        return self.options.training.resolved(self.start)

    @property
    def bound(self) -> dict[str, Any]:
        """All that determines the states, the questions that are held out, and the settings."""
        more = {"held_out": self.options.held_out, "settings": self.config.bound}
        return self._read() | more

    @property
    def names(self) -> dict[str, str | None]:
        """The name of the questions."""
        return {"train": self.options.data}

    @cached_property
    def learner(self) -> Learner[Exits, int, StateBatch]:
        """The exits, and the states that they read."""
        return exits_learner(self.exits, self.states, self.start, self.config)

    @property
    def measure(self) -> Callable[[Exits], dict[str, float]]:
        """The agreement of the exits with the model's own order."""
        return partial(exits_agreement, inputs=self.states, questions=self.questions, start=self.start)

    @property
    def start_lines(self) -> Sequence[str]:
        """A warning of questions that the ranker was trained on."""
        warning = unlabelled_trained_on(self.checkpoint.path, self.options.data, self.questions)
        return (f"--data: {warning}" if warning else "",)

    def write(self, record: RunRecord) -> None:
        """Write the weights of the exits."""
        with replacing(self.result) as file:
            file.write(save(self.exits.cpu().state_dict()))


def default_places(body_layers: int, layers: int) -> tuple[int, ...]:
    """Layers after one to four sixths of all: later exits save little, the first stage of many drops little.

    >>> default_places(5, 6), default_places(23, 24), default_places(1, 2)
    ((1, 2, 3, 4), (4, 8, 12, 16), (1,))
    """
    places = {round(layers * sixths / 6) for sixths in range(1, 5)}
    return tuple(sorted(place for place in places if 1 <= place <= body_layers))


def _with_untrained_exits(checkpoint: Checkpoint, options: AccelerateOptions) -> RankingNetwork:
    if checkpoint.config.first_stage is not None:
        raise ValueError(
            f"{checkpoint.path} has a first stage: accelerate the checkpoint without it, then add it again"
        )
    source = load_ranker(checkpoint)
    body, layers = source.config.architecture.body_layers, source.config.transformer.layers
    most = min(body, layers - 1)
    if most < 1:
        raise ValueError(f"{checkpoint.path} has no body layer before its last one: there is no place for exits")
    places = options.exits or default_places(body, layers)
    if list(places) != sorted(set(places)) or places[0] < 1 or places[-1] > most:
        given = ",".join(map(str, places))
        raise ValueError(f"--exits {given} must come after distinct, ascending body layers 1..{most}")
    # Exits of a decoder read its last token alone.
    decodes = source.config.body.decoder is not None
    pooling, features = options.pooling or ("last" if decodes else "mean"), options.token_features
    if features is None:
        features = 0 if decodes else TOKEN_FEATURES
    exits = [ExitConfig(after=place, pooling=pooling, token_features=features) for place in places]
    return with_exits(source, exits, seed=options.seed)
