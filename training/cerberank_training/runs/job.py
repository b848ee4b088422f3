"""The life of a training run, written once: check, open, record, train, finish, write.

A job says what is trained: a student (`train distil`), a teacher (`teach`), the exits of a ranker (`accelerate`), a
text ranker (`pairwise`), or an encoder (`pretrain`). A killed run continues when its command is repeated. Importing
this module loads no torch, so that a command line reads its options before it imports the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cerberank_training.runs.folder import check_writable, writing
from cerberank_training.runs.record import STATE, RunRecord, is_first_process, note_of, open_run
from cerberank_training.runs.run_data import figure_name
from cerberank_training.runs.settings import RunOptions, TrainConfig
from cerberank_training.runs.summary import write_training_data
from cerberank_training.runs.tracking.log_file import LOG, read_log, results_of_log

if TYPE_CHECKING:
    from cerberank_training.runs.base import Base
    from cerberank_training.runs.loop import DevMetric, Learner


class JobOptions(Protocol):
    """The settings of a call, which are the options of a command."""

    @property
    def out(self) -> Path:
        """The folder of the run."""

    @property
    def run(self) -> RunOptions:
        """The device, the trackers and the like."""

    @property
    def select(self) -> str:
        """The measure on dev that chooses the weights."""

    @property
    def training(self) -> TrainConfig:
        """The settings of the loop."""

    @property
    def recipe(self) -> str | None:
        """The recipe that the call names, if any."""


OptionsT = TypeVar("OptionsT", bound=JobOptions)


@dataclass(frozen=True)
class Job(ABC, Generic[OptionsT]):
    """One kind of training, with the settings of a call. What it reads is opened when it is first asked for."""

    verb: ClassVar[str]
    """The word after `cerberank train`."""
    result_name: ClassVar[str]
    """The file or folder in the run's folder that is written last."""
    options: OptionsT

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.options.out

    @property
    def result(self) -> Path:
        """The file or folder that is written last."""
        return self.out / self.result_name

    @property
    def made(self) -> Path:
        """The folder with what is trained: the result, or the run's own folder if the result is a file in it."""
        return self.out if self.result.suffix else self.result

    @property
    def dev_name(self) -> str:
        """The log's name of the measure that chooses the weights."""
        return figure_name(self.options.select)

    @property
    def batch_workers(self) -> int:
        """The number of processes that make batches."""
        return self.options.run.batch_workers

    @property
    def is_saved(self) -> bool:
        """True if an earlier call has saved a state."""
        return (self.out / STATE).is_file()

    def check(self) -> None:
        """Raise ValueError, which names the option, for settings that are wrong whatever the base and the data are."""
        self.options.run.check(self.options.training)

    @property
    @abstractmethod
    def base(self) -> Base:
        """The model that the run starts from."""

    @property
    @abstractmethod
    def config(self) -> TrainConfig:
        """The settings of the loop with whole numbers of steps, which may follow from the data."""

    @property
    @abstractmethod
    def bound(self) -> Mapping[str, Any]:
        """All that determines the result, with the steps' number in `config`; data by the SHA-256 of their content.

        Opens base, data and dev set. Raises an error that names the option, if one of them cannot be used.
        """

    @property
    def names(self) -> Mapping[str, str | None]:
        """Data and folders as the call named them, such as `train` and `dev`; a later call may name them otherwise."""
        return {}

    @property
    @abstractmethod
    def learner(self) -> Learner[Any, Any, Any]:
        """The network, and what it learns from."""

    @property
    @abstractmethod
    def measure(self) -> DevMetric[Any]:
        """The measures on dev of a network. Every process calls it, and may read a part of the data."""

    @property
    def start_lines(self) -> Sequence[str]:
        """Lines about the data and the start; empty ones are left out."""
        return ()

    def results(self, best: float) -> Mapping[str, Any]:
        """The results that the record gets beside the steps, in every process; the network has the best weights."""
        return {"best": best}

    @abstractmethod
    def write(self, record: RunRecord) -> None:
        """Write the result of the finished run, from the first process."""


def run_job(job: Job[OptionsT]) -> Mapping[str, Any]:
    """Train what the job says, and return the results in the record; processes other than the first return their own.

    Raises the errors of the job, BoundError when the folder holds another run, and OSError when the disk is full.
    """
    out, options = job.out, job.options.run
    with writing(out):
        # 1. Checks that need no data come first, because opening data may take minutes.
        job.check()
        check_writable(out)

        # 2. Everything that the run reads, with the SHA-256 of its content.
        bound, base, config = job.bound, job.base, job.config

        # 3. The run in this folder: new, killed, or finished. A folder of another run is refused.
        names = {**job.names, "base": base.name, "place": base.place, "commit": base.commit, "out": str(out)}
        free = {"recipe": job.options.recipe, "names": names, "device": options.place}
        limits = {"steps": config.steps, "patience": config.patience}
        run = open_run(out, job.verb, result=job.result, bound={**bound, **limits}, free=free, is_saved=job.is_saved)
        if run.is_finished:
            best = run.record.results["best"]
            note_of(job.verb, f"{job.made} is finished ({job.dev_name} {best:.2f}); nothing is left to train")
            return run.record.results

        # 4. The network, and the loop, which resumes here if there is a state. From `begin` on, the record binds
        # every later call. Data that the base and this run were trained on stay known, also if this call is killed.
        from cerberank_training.runs.loop import Loop  # noqa: PLC0415 - loads torch
        from cerberank_training.runs.processes import leave_group  # noqa: PLC0415 - loads torch

        learner, start_lines = job.learner, job.start_lines
        trackers = options.trackers(out, run.record)
        loop = Loop(
            out,
            learner,
            device=options.place,
            workers=job.batch_workers,
            dev_name=job.dev_name,
            trackers=trackers,
        )
        run.begin(*start_lines)
        write_training_data(out, run.record, base=base.folder)

        # 5. Steps, evaluations and saved states.
        results = job.results(loop.train(job.measure))
        leave_group()
        if not is_first_process():  # on another machine it may not see the last files of the first process yet
            return results

        # 6. The record is finished before the result is written: after a kill in between, the next call only writes it.
        step_results = results_of_log(out, counts=config.all_trained, figure=job.dev_name)
        if learner.takes_last:
            step_results["best_step"] = step_results["reached"]
        record = run.finish(**step_results, **results)
        job.write(record)
        return record.results


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The result of a run."""

    checkpoint: Path
    """The folder with the weights that were best on dev."""
    dev: float
    """The MAP on the dev questions in percent, or the metric of `select`."""
    best_step: int | None
    """The step of these weights; None in processes other than the first."""
    steps: int
    """The last step."""
    stopped_early: bool
    """True if patience ended the run before the last of the steps that were asked for."""
    figures: Mapping[str, float]
    """This figure at the best step by `final` and, of a student, by exits and heads, such as `exit 1` and `head 2`."""
    history: tuple[Mapping[str, Any], ...]
    """The rows of log.jsonl in order: `step` with the losses and rates of a step, or with the figures on dev."""


def train(job: Job[OptionsT]) -> Trained:
    """Train what the job says, and return its result. Raises the errors of `run_job`."""
    results = run_job(job)
    # The figures of exits and heads follow the one that chose the weights, as in `dev_map/exit_1`.
    history, step, figure = read_log(job.out / LOG), results.get("best_step"), job.dev_name
    at_best = next((row for row in history if row["step"] == step and figure in row), {})
    parts = {name: value for name, value in at_best.items() if name.startswith(f"{figure}/")}
    steps = results.get("reached", job.config.steps)
    return Trained(
        checkpoint=job.made,
        dev=results["best"],
        best_step=step,
        steps=steps,
        stopped_early=steps < job.config.steps,
        figures={"final": results["best"]}
        | {name.partition("/")[2].replace("_", " "): value for name, value in parts.items()},
        history=tuple(history),
    )
