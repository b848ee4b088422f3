"""Piece `training`: questions per second of `train teach` and `train distil`, in one process and on all GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from cerberank_benchmarks.gpu.lab import Findings, Lab
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import cross_encoder
from cerberank_benchmarks.workload import Workload
from cerberank_models.python_process import python_command

TEXT = (
    "Made-up questions of ten candidates, random weights, the later half of the steps. teach: a base encoder; distil: "
    "B_(n-1) 3H1 on the labels."
)
QUESTIONS, DEV_QUESTIONS, CANDIDATES = 64, 2, 10
STOP_SECONDS = 30.0


def run(lab: Lab) -> Findings:
    """A row for each command and number of processes."""
    settings = BenchmarkSettings(
        layers=lab.sizes.training_layers, width=lab.sizes.width or 768, tokenizer=lab.tokenizer, seed=lab.seed
    )
    base = cross_encoder(settings, lab.scratch / "training", labels=2)
    data = _questions(lab, settings, "train", range(QUESTIONS))
    dev = _questions(lab, settings, "dev", range(QUESTIONS, QUESTIONS + DEV_QUESTIONS))
    gpus = torch.cuda.device_count() if lab.on_gpu else 0
    for processes in [1] + ([gpus] if gpus > 1 else []):
        for verb in ("teach", "distil"):
            step = lab.sizes.training_questions  # of all processes
            seconds = _seconds_of_step(lab, _Task(verb, base, data, dev, processes))
            yield {
                "verb": verb,
                "processes": processes,
                "layers": settings.layers,
                "width": settings.width,
                "questions a step": step,
                "ms a step": 1000 * seconds,
                "questions/s": step / seconds,
            }


@dataclass(frozen=True, slots=True)
class _Task:
    verb: str
    base: Path
    data: str
    dev: str
    processes: int


def _seconds_of_step(lab: Lab, task: _Task) -> float:
    """Seconds of a step, from the run's own log; the run is killed after these steps, before evaluation and export."""
    steps, endless = lab.sizes.training_steps, 1_000_000
    out = lab.scratch / f"{task.verb}-{task.processes}"
    options: list[str | int] = ["--device", "cuda" if lab.on_gpu else "cpu"]
    options += ["--steps", endless, "--evaluate-every", endless]
    if task.verb == "distil":
        options += ["--recipe", "electra-base-b11-3h1", "--body-layers", lab.sizes.training_layers - 1]
    else:
        options += ["--precision", "bf16" if lab.on_gpu else "fp32"]
    with _started(lab, task, out, options) as process:
        records: list[float] = []
        while len(records) < steps and process.poll() is None and lab.remaining > 0:
            time.sleep(0.05)
            records = _logged(out / "log.jsonl")
    if len(records) < steps:
        _check(process, out)
        raise RuntimeError(f"{task.verb} made {len(records)} of {steps} steps")
    late = records[steps // 2 : steps]
    return sum(late) / len(late)


def _logged(path: Path) -> list[float]:
    """The seconds of the steps so far; an incomplete last line does not count."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [record["seconds"] for line in lines if "seconds" in (record := json.loads(line))]


@contextmanager
def _started(lab: Lab, task: _Task, out: Path, options: Sequence[str | int]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command as a user would, and end it with the block; its output goes to `<out>.log`."""
    several = ["torch.distributed.run", f"--nproc-per-node={task.processes}", "-m"] if task.processes > 1 else []
    command = python_command(*several, "cerberank", *_arguments(lab, task, out, options))
    # torch.distributed.run starts processes of its own by `python -m`.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}
    if not lab.on_gpu:
        environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    with out.with_name(out.name + ".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(min(STOP_SECONDS, max(1.0, lab.remaining)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _arguments(lab: Lab, task: _Task, out: Path, options: Sequence[str | int]) -> list[str]:
    data = ["--train", task.data, "--dev", task.dev, "--max-length", "128"]
    size = ["--examples-per-step", str(lab.sizes.training_questions), "--out", str(out)]
    return ["train", task.verb, "--base", str(task.base), *data, *size, *map(str, options)]


def _check(process: subprocess.Popen[bytes], out: Path) -> None:
    if process.returncode:
        printed = out.with_name(out.name + ".log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"exit code {process.returncode}: {printed[-800:]}")


def _questions(lab: Lab, settings: BenchmarkSettings, name: str, numbers: range) -> str:
    """Write a file of questions with generated candidates, the first of them correct; returns its `FORMAT:PATH`."""
    workload, path = Workload(settings), lab.scratch / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in numbers:
            task = workload.task(CANDIDATES, seed=number)
            candidates = [{"text": text, "label": int(place == 0)} for place, text in enumerate(task.texts)]
            file.write(json.dumps({"question": f"{number} {task.question}", "candidates": candidates}) + "\n")
    return f"jsonl:{path}"
