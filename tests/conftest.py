"""Fixtures that several folders share, how many processes run the tests, and what a run says at its end.

PyTorch and transformers are imported where they are used: the process that hands the tests out needs neither, and the
workers start after it.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest
from filelock import FileLock
from tools.process import MissingProgramError

from cerberank_models.backends.processors import usable_processors
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.convert.checkpoint_cache import import_arguments
from cerberank_models.convert.source import Source

# A busy machine is not a failure: nothing here is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

MadeOnce = Callable[[str, Callable[[Path], object]], Path]
TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared"
LEFT_OUT = (
    "benchmarks/",
    "deploy/",
    "e2e/",
    "papers/sweep/",
    "soak/",
    "test_examples.py",
    "test_gpu_kit.py",
    "test_packaging.py",
    "test_site.py",
)
"""Folders and files that `make test` leaves to `make test-all`: services, browsers, proxies, sweeps, wheels, sites."""
NOT_LEFT_OUT = "tests/e2e/test_lifetime.py::test_sigterm_answers_what_was_accepted"
"""The real process that `make test` asks over HTTP."""
DURATIONS = TESTS / "durations.json"
"""The seconds of the dearest files, which `python -m tools.durations --record` writes."""
DEAREST = 10
"""The number of files that the end of a long run names."""
A_MINUTE = 60.0
MOST_WORKERS = 8
"""A worker imports PyTorch, which takes 0.4 GB; beyond eight the longest files decide how long a run takes."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The number for `-n auto`: the processors that this process may use, in a container too, up to MOST_WORKERS."""
    return min(usable_processors(), MOST_WORKERS)


def is_left_out(path: Path) -> bool:
    """True for a file of `make test-all` alone."""
    return path.relative_to(TESTS).as_posix().startswith(LEFT_OUT)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what `make test` leaves out: browsers, Ray and others take a worker more than a second."""
    unused = (
        collection_path.suffix == ".py" and is_left_out(collection_path) and collection_path.name not in NOT_LEFT_OUT
    )
    return True if config.option.markexpr == "not slow" and unused else None


def pytest_collection() -> None:
    """Look for no garbage while tests are collected, which takes a seventh of that time."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of LEFT_OUT as slow, and hand out the dearest files first, so that workers end together."""
    for item in items:
        if is_left_out(item.path) and item.nodeid != NOT_LEFT_OUT:
            item.add_marker("slow")
    if "PYTEST_XDIST_WORKER" in os.environ:
        seconds = json.loads(DURATIONS.read_text())
        items.sort(key=lambda item: -seconds.get(item.path.relative_to(TESTS.parent).as_posix(), 0.0))


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, and collect less often.

    PyTorch's exporter makes objects by the million, and spends a third of its time on looking for cycles among them.
    """
    gc.enable()
    freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exclude what libraries have cached from garbage collection, too, at the end of each file.

    PyTorch's exporter caches some 600,000 objects: a test's `gc.collect()` then took one to two seconds.
    """
    if nextitem is None or nextitem.path != item.path:
        freeze()


def freeze() -> None:
    """Collect garbage, and exclude all that is left from further collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Let PyTorch compute with one thread, and skip the test if a fixture's program is not installed.

    Whatever opens a backend sets the number of threads of the whole process. In later tests several threads of small
    networks wait for each other: the file of pairwise training took 215 s in a run of three workers on two processors,
    and 30 s with one thread in a run of two.
    """
    import torch

    torch.set_num_threads(1)
    try:
        yield
    except MissingProgramError as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test whose program is not installed is skipped."""
    try:
        yield
    except MissingProgramError as missing:
        pytest.skip(str(missing))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The dearest files, and one line for each reason why tests were skipped, with how many they were."""
    seconds = seconds_by_file(report for reports in terminalreporter.stats.values() for report in reports)
    if config.cache is not None:
        config.cache.set("durations/seconds", seconds)
    if sum(seconds.values()) > A_MINUTE:
        terminalreporter.section("seconds of the dearest files")
        for path in sorted(seconds, key=seconds.__getitem__)[-DEAREST:]:
            terminalreporter.write_line(f"{seconds[path]:6.1f} {path}")
    skipped = {report.nodeid: report for report in terminalreporter.stats.get("skipped", [])}
    if not skipped:
        return
    # A file that is skipped as a whole is reported by every worker, but has one node id.
    reasons = Counter(skip_reason(report) for report in skipped.values())
    terminalreporter.section(f"{sum(reasons.values())} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:4} {reason}")


def seconds_by_file(reports: Iterable[object]) -> dict[str, float]:
    """The seconds of all tests and fixtures of each file; python -m tools.durations compares them."""
    seconds = defaultdict[str, float](float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The skip's own reason; the place when it has none."""
    if not isinstance(report.longrepr, tuple):
        return str(report.longrepr)
    path, line, reason = report.longrepr
    return reason.removeprefix("Skipped: ") or f"{path}:{line}"


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Files do not wait for the disk: what a process has written outlives it, and no test takes the power away.

    The tests of stores and versions alone called `os.fsync` 10,000 times, which took 4 ms each.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def exported_once(pytestconfig: pytest.Config) -> Iterator[None]:
    """PyTorch's exporter is called once for equal networks; `pytest --cache-clear` deletes what it has made."""
    from tests.exports import exports_once

    with exports_once(pytestconfig.cache.mkdir("exports")):
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """`made_once(name, make)` is a folder that `make(folder)` has made, once for all workers of this run.

    `make` must write the folder as a whole, as `write_checkpoint` does: what exists is taken to be complete.
    """
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def get(name: str, make: Callable[[Path], object]) -> Path:
        folder = common / "made-once" / name
        folder.parent.mkdir(exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                make(folder)
        return folder

    return get


@pytest.fixture(scope="session")
def tiny_checkpoint(made_once: MadeOnce) -> Path:
    """A checkpoint with random weights, version 1; read-only for every test."""
    from tests.tiny import random_checkpoint

    return made_once("random-tiny", random_checkpoint)


@pytest.fixture
def tiny_copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


@pytest.fixture(scope="session")
def other_checkpoint(made_once: MadeOnce) -> Path:
    """Version 2 of the same model, of one stage, in int8 alone; read-only for every test."""
    from tests.tiny import ONE_STAGE, random_checkpoint

    return made_once(
        "random-tiny-2", lambda folder: random_checkpoint(folder, version="2", precisions=("int8",), **ONE_STAGE)
    )


@pytest.fixture(scope="session")
def with_first_stage(made_once: MadeOnce, tiny_checkpoint: Path) -> Callable[[str], Checkpoint]:
    """The tiny checkpoint with a first stage of a shape in `tests.first_stages`, which drops half; read-only.

    Its graph is in fp32 and int8, but that of `dot` in int8 alone.
    """
    from tests.first_stages import attached

    def make(folder: Path, name: str) -> None:
        precisions = ("int8",) if name == "dot" else ("fp32", "int8")
        attached(read_checkpoint(tiny_checkpoint), folder, name, precisions=precisions)

    def get(name: str) -> Checkpoint:
        return read_checkpoint(made_once(f"first-stage-{name}", lambda folder: make(folder, name)))

    return get


@pytest.fixture
def imports_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are imported in this process; another would load the libraries for five seconds (test_serve_model)."""
    from tests.program import program

    def run(source: Source, precisions: Sequence[str], path: Path, report: object) -> None:
        assert program("import")(import_arguments(source, precisions, path)) == 0

    monkeypatch.setattr("cerberank_models.convert.checkpoint_cache.import_elsewhere", run)


@pytest.fixture(scope="session")
def two_processes(made_once: MadeOnce) -> Path:
    """A folder with the runs `student` and `pairwise` of two processes; read-only."""
    from tests.two_processes import train_in_two_processes

    return made_once("two-processes", train_in_two_processes)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party data beside the project; tests that need it skip where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the data folder beside the project is absent")
    return SHARED / "data"
