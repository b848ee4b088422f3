"""Runs the project's Ray Serve configuration on a Ray cluster that consists of this machine."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from tools.process import ROOT, until

from cerberank_benchmarks.clients.server import free_port

FOLDER = ROOT / "deploy" / "ray"
PROCESSORS = 2
PATIENTLY = {"seconds": 240.0, "every": 0.2}
FOR_TESTS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A busy machine must not count as failed: by default Ray's proxy has 5 seconds, and its workers a low priority.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_worker_niceness": "0",
    "RAY_DEDUP_LOGS": "0",  # `has_answered` reads the logs
    # Questions of a frozen replica wait for very long and must not be refused.
    "CERBERANK_QUEUE_SECONDS": "3600",
}


@dataclass
class RayService:
    """A running service on Ray."""

    url: str
    log: Path
    token: str
    """The cluster's token, by which its processes are recognised: only they have it in their environment."""

    def processes(self, name: str = "") -> set[int]:
        """The ids of the cluster's processes whose title begins with `name`."""
        found = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        mine = f"RAY_AUTH_TOKEN={self.token}"
        return {pid for pid in found if mine in _read(pid, "environ") and _read(pid, "cmdline")[0].startswith(name)}

    def replicas(self) -> set[int]:
        """The process ids of the replicas."""
        return self.processes("ray::ServeReplica")

    def has_answered(self, replica: int) -> bool:
        """True if the replica has answered a ranking request."""
        lines = self.log.read_text(errors="replace").splitlines()
        return any(f"pid={replica})" in line and "/v1/rank 200" in line for line in lines)


def _read(pid: int, what: str) -> list[str]:
    """The strings of a process's file in /proc; a list with one empty string if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace").split("\0")
    except OSError:
        return [""]


def settings_of_the_cluster() -> dict[str, str]:
    """The variables that deploy/ray/cluster.env sets in a shell."""
    words = shlex.split((FOLDER / "cluster.env").read_text(), comments=True)
    return dict(word.split("=", 1) for word in words)


@contextmanager
def run_on_ray(folder: Path, *, autoscaling: Mapping[str, Any]) -> Iterator[RayService]:
    """Serve deploy/ray/cerberank.yaml with other `autoscaling` and one processor per replica; logs go to `folder`."""
    config = yaml.safe_load((FOLDER / "cerberank.yaml").read_text())
    port, head = free_port(), free_port()
    config["http_options"] |= {"host": "127.0.0.1", "port": port}
    (deployment,) = config["applications"][0]["deployments"]
    deployment["ray_actor_options"]["num_cpus"] = 1
    deployment["autoscaling_config"] |= autoscaling
    (folder / "cerberank.yaml").write_text(yaml.safe_dump(config))
    service = RayService(f"http://127.0.0.1:{port}", folder / "serve.log", secrets.token_hex(32))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CERBERANK_", "RAY_"))}
    environment |= settings_of_the_cluster() | FOR_TESTS | {"RAY_AUTH_TOKEN": service.token}
    environment["RAY_SERVE_HAPROXY_METRICS_PORT"] = str(free_port())
    scratch = tempfile.mkdtemp(prefix="ray-")  # a short path, because it contains sockets
    start = f"ray start --head --block --port={head} --num-cpus={PROCESSORS} --include-dashboard=false"
    start += f" --object-store-memory=100000000 --temp-dir={scratch} --ray-client-server-port={free_port()}"
    serve = f"serve run --address=127.0.0.1:{head} {folder / 'cerberank.yaml'}"
    with ExitStack() as stack:
        stack.callback(_end_what_is_left, service)
        ray_log = folder / "ray.log"
        stack.enter_context(_running(start, environment, ray_log))
        until(lambda: "Ray runtime started" in ray_log.read_text(), **PATIENTLY)
        stack.enter_context(_running(serve, environment, service.log))
        until(lambda: _answers(service.url), **PATIENTLY)
        yield service


@contextmanager
def _running(command: str, environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run a program of this Python environment during the block."""
    program, *arguments = shlex.split(command)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [Path(sys.executable).parent / program, *arguments], env=environment, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _end_what_is_left(service: RayService) -> None:
    """Kill the remaining processes that Ray has started, because they do not end with their parent."""
    for pid in service.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready").status_code == 200
    except httpx.TransportError:
        return False
