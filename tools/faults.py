"""The faults of a chaos run. Each function causes a fault, holds and ends it, and returns a test for the recovery."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.fleet import Fleet, Replica
from tools.process import LONGEST_SECONDS, ROOT, another_machine, until
from tools.versions import PushedVersions, damage

COPIES = 5
"""Number of versions that fit on the small disk for a replica's copies."""
CLOCK_STEP_SECONDS = 3600
FLOOD = ("--clients=16", "--candidates=2", "--pause=0", "--address=127.0.0.2")
"""The options of the clients that flood the proxy; the address is one that no other client has."""
Recovered = Callable[[], bool]
"""A test that is true once the fleet has recovered from a fault."""


@dataclass
class Scene:
    """The versions in the store, and how faults are chosen and held."""

    versions: PushedVersions
    rng: random.Random
    hold: float
    """Seconds for which a fault lasts."""


def kill(scene: Scene, fleet: Fleet) -> Recovered:
    """Send SIGKILL to a replica."""
    return _signalled(_any_replica(scene, fleet), scene, fleet, signal.SIGKILL)


def terminate(scene: Scene, fleet: Fleet) -> Recovered:
    """Send SIGTERM to a replica."""
    return _signalled(_any_replica(scene, fleet), scene, fleet, signal.SIGTERM)


def good_push(scene: Scene, fleet: Fleet) -> Recovered:
    """Push a good version and make it `stable`."""
    return partial(fleet.serves, scene.versions.push())


def torn_push(scene: Scene, fleet: Fleet) -> Recovered:
    """Make a version with a missing file `stable`, and move the label back when all replicas have rejected it."""
    return _rejected(scene, fleet, partial(damage, "torn"))


def hanging_push(scene: Scene, fleet: Fleet) -> Recovered:
    """Make a version with a FIFO in place of a graph `stable`. It must be rejected without opening the FIFO."""
    return _rejected(scene, fleet, _put_fifo)


def hung_copy(scene: Scene, fleet: Fleet) -> Recovered:
    """Stop the process that copies a good version for a replica; the replica must kill it and retry."""
    replica = _any_replica(scene, fleet)
    version = scene.versions.push()
    end = time.monotonic() + LONGEST_SECONDS
    while (pid := replica.copying()) is None:
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.005)
    os.kill(pid, signal.SIGSTOP)
    return partial(fleet.serves, version)


def store_away(scene: Scene, fleet: Fleet) -> Recovered:
    """Rename the store's folder for a while, so that the store is missing."""
    store, away = scene.versions.folder / "store", scene.versions.folder / "away"
    store.rename(away)
    time.sleep(scene.hold)
    away.rename(store)
    return partial(fleet.serves, scene.versions.stable)


def full_disk(scene: Scene, fleet: Fleet) -> Recovered:
    """Fill the disk for a replica's copies while a good version is pushed."""
    full = _any_replica(scene, fleet).temporary / "full"
    with full.open("wb") as file:
        _fill(file.fileno())
    version = scene.versions.push()
    time.sleep(scene.hold)
    full.unlink()
    return partial(fleet.serves, version)


def no_descriptors(scene: Scene, fleet: Fleet) -> Recovered:
    """Limit a running replica's descriptors, so that it can neither open files nor accept connections."""
    pid = _any_replica(scene, fleet).pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
    time.sleep(scene.hold)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    return fleet.ready


def clock_step(scene: Scene, fleet: Fleet) -> Recovered:
    """Set a replica's wall clock an hour forward, then an hour back."""
    replica = _any_replica(scene, fleet)
    for step in (CLOCK_STEP_SECONDS, -CLOCK_STEP_SECONDS, 0):
        replica.set_clock(step)
        time.sleep(scene.hold / 3)
    return fleet.ready


def hung_process(scene: Scene, fleet: Fleet) -> Recovered:
    """Stop a replica's whole process, including probes and watchdog, by SIGSTOP until SIGCONT."""
    pid = _any_replica(scene, fleet).pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(scene.hold)
    os.kill(pid, signal.SIGCONT)
    return fleet.ready


def hung_step(scene: Scene, fleet: Fleet) -> Recovered:
    """Let a replica's model call hang; when its liveness probe fails, kill it, as an orchestrator would."""
    replica = _any_replica(scene, fleet)
    replica.hang.touch()
    try:
        until(lambda: not replica.live())
    finally:
        replica.hang.unlink()
    return _signalled(replica, scene, fleet, signal.SIGKILL)


def client_flood(scene: Scene, fleet: Fleet) -> Recovered:
    """Send requests from another address as fast as possible, using only otherwise idle processor time."""
    command = [sys.executable, "-m", "cerberank_benchmarks.clients.load", fleet.proxy.url, f"--seconds={scene.hold}"]
    command += [*FLOOD]
    with another_machine(yielding=True) as elsewhere:
        elsewhere.submit(partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)).result()
    return fleet.ready


FAULTS: dict[str, Callable[[Scene, Fleet], Recovered]] = {
    "kill -9": kill,
    "SIGTERM": terminate,
    "good push": good_push,
    "torn push": torn_push,
    "hanging push": hanging_push,
    "hung copy": hung_copy,
    "store away": store_away,
    "full disk": full_disk,
    "no descriptors": no_descriptors,
    "clock step": clock_step,
    "hung process": hung_process,
    "hung step": hung_step,
    "client flood": client_flood,
}


def obstacles() -> dict[str, str]:
    """The reason why this machine cannot cause a fault, for each fault; empty if it can."""
    root, clocks = os.geteuid() == 0, shutil.which("cc") is not None
    reasons = {"full disk": "" if root else "mounting needs root", "clock step": "" if clocks else "needs a C compiler"}
    return {name: reasons.get(name, "") for name in FAULTS}


@contextmanager
def small_disks(folder: Path, checkpoint: Path, count: int) -> Iterator[None]:
    """Mount a small tmpfs for each replica's copies during the block; does nothing without root."""
    size = COPIES * sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    mounted: list[Path] = []
    try:
        for number in range(count if os.geteuid() == 0 else 0):
            place = folder / f"replica-{number}" / "tmp"
            place.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def _any_replica(scene: Scene, fleet: Fleet) -> Replica:
    return scene.rng.choice(fleet.replicas)


def _signalled(replica: Replica, scene: Scene, fleet: Fleet, number: signal.Signals) -> Recovered:
    """Send a signal that ends a replica's process, which is then restarted."""
    starts = replica.starts
    os.kill(replica.pid, number)
    return lambda: replica.starts > starts and fleet.serves(scene.versions.stable) and fleet.ready()


def _rejected(scene: Scene, fleet: Fleet, spoil: Callable[[Path], None]) -> Recovered:
    version = scene.versions.push_bad(spoil)
    try:
        until(lambda: all(each.entries().get(version, {}).get("state") == "failed" for each in fleet.replicas))
    finally:
        scene.versions.take_back(version)
    return partial(fleet.serves, scene.versions.stable)


def _put_fifo(version: Path) -> None:
    graph = sorted((version / "onnx" / "int8").glob("*.onnx"))[0]
    graph.unlink()
    os.mkfifo(graph)


def _fill(file: int) -> None:
    """Write to the file until the disk is full."""
    piece = b"\0" * 65536
    while piece:
        try:
            os.write(file, piece)
        except OSError:
            piece = piece[: len(piece) // 2]
