"""The life of a training run, written once: check, open, record, train, finish, write.

A job says what is trained: a student (`train distil`), a teacher (`teach`), a text ranker (`pairwise`), or an encoder
(`pretrain`). A killed run continues when its command is repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from cerberank_training.runs.base import Base
from cerberank_training.runs.folder import check_writable, writing
from cerberank_training.runs.launched import is_first_process, note_of
from cerberank_training.runs.processes import leave_group
from cerberank_training.runs.record import STATE, RunRecord, open_run


class CommonOptions(Protocol):
    """The options that every job has."""

    def check(self, config: Any) -> None:
        """Raise ValueError for a step that processes cannot share, and for a device that is not there."""


class JobOptions(Protocol):
    """The settings of a call, which are the options of a command."""

    @property
    def out(self) -> Path:
        """The folder of the run."""

    @property
    def run(self) -> CommonOptions:
        """The device, the trackers and the like."""

    @property
    def training(self) -> object:
        """The settings of the loop."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The base and the settings of a run, opened once; a job adds its data."""

    base: Base
    bound: Mapping[str, Any]
    """The settings that all calls must have in common; data are given by the SHA-256 of their content."""
    free: Mapping[str, Any]
    """The settings that a call may change; `steps` is one."""


class Training(Protocol):
    """A network with everything that it learns from."""

    @property
    def start_lines(self) -> Sequence[str]:
        """Lines about the start of the run; empty ones are left out."""

    def train(self) -> Mapping[str, Any]:
        """Train to the last step, from the saved state if there is one; return the figures of the best weights.

        Every process calls this method and knows the figures.
        """

    def further_results(self) -> Mapping[str, Any]:
        """Further results, which the first process reads from the run's files; the last step is `reached`."""

    def write(self, record: RunRecord) -> None:
        """Write the result of the finished run, from the first process."""


OptionsT = TypeVar("OptionsT", bound=JobOptions)
InputsT = TypeVar("InputsT", bound=Inputs)


@dataclass(frozen=True)
class Job(ABC, Generic[OptionsT, InputsT]):
    """One kind of training, with the settings of a call."""

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
    def is_saved(self) -> bool:
        """True if an earlier call has saved a state."""
        return (self.out / STATE).is_file()

    def check(self) -> None:
        """Raise ValueError for settings that are wrong whatever the base and the data are."""
        self.options.run.check(self.options.training)
        self.check_own()

    def check_own(self) -> None:
        """Raise ValueError for wrong settings that this job alone has."""

    @abstractmethod
    def open(self) -> InputsT:
        """Open base, data and dev set. Raises an error that names the option, if one of them cannot be used."""

    def check_finished(self, record: RunRecord) -> None:
        """Say that nothing is left to do, or raise ValueError if the call wants another result."""
        note_of(self.verb, f"{self.result if self.result.is_dir() else self.out} is finished; more --steps extend it")

    @abstractmethod
    def prepare(self, inputs: InputsT, record: RunRecord) -> Training:
        """Build the network and make ready what it learns from. The record has the steps of the first call."""


def run_job(job: Job[OptionsT, InputsT]) -> Mapping[str, Any]:
    """Train what the job says, and return the results in the record; processes other than the first return the figures.

    Raises the errors of the job, BoundError when the folder holds another run, and OSError when the disk is full.
    """
    with writing(job.out):
        # 1. Checks that need no data come first, because opening data may take minutes.
        job.check()
        check_writable(job.out)

        # 2. What the run reads, and the SHA-256 of it all.
        inputs = job.open()

        # 3. The run in this folder: new, killed, to be extended, or finished. A folder of another run is refused.
        bound, free = inputs.bound, inputs.free
        run = open_run(job.out, job.verb, result=job.result, bound=bound, free=free, is_saved=job.is_saved)
        if run.is_finished:
            job.check_finished(run.record)
            return run.record.results

        # 4. The network. From `begin` on, the record binds every later call.
        training = job.prepare(inputs, run.record)
        run.begin(*training.start_lines)

        # 5. Steps, evaluations and saved states.
        figures = training.train()
        leave_group()
        if not is_first_process():  # on another machine it may not see the last files of the first process yet
            return figures

        # 6. The record is finished before the result is written: after a kill in between, the next call only writes it.
        record = run.finish(**figures, **training.further_results())
        training.write(record)
        return record.results
