"""Measures the cost of a shadow version for clients, and checks its figures: `python -m tools.shadow`.

1. A real service gets a steady load of half of its capacity, in turn with and without a shadow version.
2. Another service gets single questions, all of which are mirrored. Its figures are compared with an offline comparison
   of both checkpoints.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
from onnx import numpy_helper

from cerberank_benchmarks.clients.load import Answer, Load, percentile, request_of, steadily
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint, write_checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore
from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs
from cerberank_models.windows import AS_SERVED
from cerberank_service.commands.server import Admin
from cerberank_service.ranking.shadow import compare
from tools.process import start, wait_until_ready
from tools.pushes import CONNECTIONS, TOKEN, WORDS

Question = tuple[str, list[str]]
ALONE = 40
"""Number of single questions whose figures are compared."""
NOISE = 3.0
SETTLE_SECONDS = 0.5
PRECISION = "int8"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The comparison of a shadow with the stable version: the number of flips, and means over questions."""

    flips: int
    overlap: float
    shift: float

    def near(self, other: Figures) -> bool:
        """True if the figures are equal except for rounding."""
        return self.flips == other.flips and np.allclose(
            (self.overlap, self.shift), (other.overlap, other.shift), rtol=1e-4, atol=1e-5
        )


@dataclass(kw_only=True)
class ShadowSoak:
    """One run."""

    checkpoint: Path
    folder: Path
    candidates: int = 20
    percent: float = 100.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def run(self, measure: Callable[[ShadowSoak], None]) -> None:
        """Start a service with two versions loaded, and call `measure`."""
        self.store = FolderStore(self.folder / "store")
        stable = read_checkpoint(self.checkpoint)
        shadow = perturb(stable, self.folder / "perturbed", version="perturbed", noise=NOISE)
        self.both, self.model = (stable, shadow), stable.config.name
        for checkpoint in self.both:
            self.store.push(checkpoint)
        self.store.move_label(self.model, "stable", stable.manifest.version)
        settings = {
            "CERBERANK_STORE": str(self.folder / "store"),
            "CERBERANK_STORE_POLL_SECONDS": "0.2",
            "TMPDIR": str(self.folder),
            "CERBERANK_SHADOW_PERCENT": str(self.percent),
            "CERBERANK_ADMIN_TOKEN": TOKEN,
            "CERBERANK_ADMIN_PORT": "0",
        }
        service = start(Path(), self.folder / "log", **settings)
        try:
            wait_until_ready(service)
            with httpx.Client(base_url=service.url, timeout=60) as self.client:
                admin = Admin(service.admin_url or "", TOKEN)
                admin.ask("POST", "models", self.model, "versions", "perturbed", "load")
                self._until(lambda: self._state("perturbed") == "ready")
                measure(self)
        finally:
            service.process.kill()
            service.process.wait()

    def question(self) -> Question:
        """A random question."""
        texts = [" ".join(self.rng.choices(WORDS, k=self.rng.randint(8, 40))) for _ in range(self.candidates)]
        return f"how {self.rng.choice(WORDS)} is the {self.rng.choice(WORDS)} ?", texts

    def seconds_a_question(self) -> float:
        """The mean seconds per question when questions are sent one after the other."""
        bodies = [_body(self.question()) for _ in range(60)]
        for body in bodies[:20]:
            self.client.post("/v1/rank", json=body).raise_for_status()
        begin = time.monotonic()
        for body in bodies[20:]:
            self.client.post("/v1/rank", json=body).raise_for_status()
        return (time.monotonic() - begin) / 40

    def answers(self, rate: float, seconds: float, *, mirrored: bool) -> list[Answer]:
        """The answers under a steady load, with or without a shadow."""
        self.label(mirrored)
        time.sleep(SETTLE_SECONDS)
        load = Load(str(self.client.base_url), seconds=seconds, connections=CONNECTIONS)
        asyncio.run(load.at_times(itertools.repeat(request_of(_body(self.question()))), steadily(rate)))
        return load.answers[int(rate) :]

    def told_and_true(self) -> tuple[Figures, Figures]:
        """The figures that the service reports for single questions, and those of an offline comparison."""
        self.label(False)
        self.label(True)
        time.sleep(SETTLE_SECONDS)
        asked = [self.question() for _ in range(ALONE)]
        before = self._told()
        for number, question in enumerate(asked, 1):
            self.client.post("/v1/rank", json=_body(question)).raise_for_status()
            self._until(lambda number=number: self._told()["questions"] == before["questions"] + number)  # type: ignore[misc]
        told, counts = self._told(), (before["questions"], before["questions"] + ALONE)

        def mean(name: str) -> float:
            sums = [count * (each[name] or 0.0) for count, each in zip(counts, (before, told), strict=True)]
            return (sums[1] - sums[0]) / ALONE

        service = Figures(
            flips=int(told["flips"] - before["flips"]), overlap=mean("rank_biased_overlap"), shift=mean("score_shift")
        )
        return service, offline(*self.both, asked)

    def told(self) -> str:
        """The service's figures so far, as text."""
        told = self._told()
        return f"mirrored {told['questions']}, skipped {told['skipped']}, latency ratio {told['latency_ratio']:.2f}"

    def label(self, mirrored: bool) -> None:
        """Set or remove the label `shadow`, and wait until the service has adopted the change."""
        self.store.move_label(self.model, "shadow", "perturbed" if mirrored else None)
        self._until(lambda: (self.client.get(self._shadow).status_code == 200) == mirrored)

    @property
    def _shadow(self) -> str:
        return f"/v1/models/{self.model}/shadow"

    def _told(self) -> dict[str, float]:
        return dict(self.client.get(self._shadow).raise_for_status().json())

    def _state(self, version: str) -> str:
        entries = self.client.get("/v1/models").json()["models"]
        return next((str(e["state"]) for e in entries if e.get("version") == version), "")

    def _until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("waited in vain")
            time.sleep(0.02)


def offline(stable: Checkpoint, shadow: Checkpoint, questions: list[Question]) -> Figures:
    """The same comparison without a service."""
    pairs = zip(rankings(stable, questions), rankings(shadow, questions), strict=True)
    compared = [compare(*first, *second) for first, second in pairs]
    return Figures(
        flips=sum(each.flipped for each in compared),
        overlap=float(np.mean([each.overlap for each in compared])),
        shift=float(np.mean([each.shift for each in compared])),
    )


def _body(question: Question) -> dict[str, Any]:
    return {"question": question[0], "candidates": question[1]}


def perturb(checkpoint: Checkpoint, path: Path, *, version: str, noise: float, seed: int = 0) -> Checkpoint:
    """Write a version that ranks slightly differently, with its own golden scores, to the new folder `path`.

    It is the same network with noise on the weights of its last outputs; `noise` is relative to their deviation.
    """
    rng = np.random.default_rng(seed)
    graphs = checkpoint.stage_graphs(PRECISION)
    model = onnx.load(graphs[-1])
    for tensor in model.graph.initializer:
        if tensor.name.endswith("classifier.output.weight"):
            weights = numpy_helper.to_array(tensor)
            changed = weights + noise * weights.std() * rng.standard_normal(weights.shape)
            tensor.CopyFrom(numpy_helper.from_array(changed.astype(weights.dtype), tensor.name))
    last = path.with_suffix(".onnx")
    onnx.save(model, last)
    backend, encoder = OnnxBackend([*graphs[:-1], last], checkpoint.config), checkpoint.encoder()
    golden = []
    for question in checkpoint.golden:
        candidates = [Candidate(text=c.text, previous=c.previous, next=c.next) for c in question.candidates]
        keep_all = backend.config.drop_policy(0.0)
        scores = rank_pairs(backend, encoder.encode(question.question, candidates), keep_all).scores
        tolerance = {PRECISION: question.tolerance[PRECISION]}
        golden.append(question.model_copy(update={"scores": {PRECISION: tuple(scores)}, "tolerance": tolerance}))
    files = {
        name: checkpoint.path / name for name in checkpoint.manifest.files if name.startswith(f"onnx/{PRECISION}/")
    }
    return write_checkpoint(
        path,
        config=checkpoint.config,
        tokenizer=(checkpoint.path / "tokenizer.json").read_bytes(),
        card="# perturbed\n",
        version=version,
        source=f"{checkpoint.manifest.source}, perturbed by {noise:g}",
        files=files | {f"onnx/{PRECISION}/{graphs[-1].name}": last},
        golden=golden,
    )


def rankings(checkpoint: Checkpoint, questions: list[tuple[str, list[str]]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Order and scores of each question, without a service."""
    backend, encoder = open_backend(checkpoint, precision=PRECISION), checkpoint.encoder()
    found = []
    for question, texts in questions:
        candidates = [Candidate(text=text) for text in texts]
        ranking = rank_pairs(backend, encoder.encode(question, candidates, windowing=AS_SERVED))
        found.append((ranking.order, ranking.scores))
    return found


def main(argv: list[str]) -> int:
    """Measure; returns 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m tools.shadow", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of a phase, two a round")
    parser.add_argument("--percent", type=float, default=10.0, help="CERBERANK_SHADOW_PERCENT")
    arguments = parser.parse_args(argv)
    kept: list[bool] = []

    def cost(soak: ShadowSoak) -> None:
        each = soak.seconds_a_question()
        alone: list[Answer] = []
        beside: list[Answer] = []
        for _ in range(arguments.rounds):
            alone += soak.answers(0.5 / each, arguments.seconds, mirrored=False)
            beside += soak.answers(0.5 / each, arguments.seconds, mirrored=True)
        sys.stdout.write(f"{1000 * each:.1f} ms a question, asked {0.5 / each:.1f} times a second\n")
        for name, answers in (("without", alone), ("with", beside)):
            found = ", ".join(f"p{percent} {percentile(answers, percent):.1f} ms" for percent in (50, 95, 99))
            sys.stdout.write(f"{name} a shadow: {len(answers)} answers, {found}\n")
        sys.stdout.write(soak.told() + "\n")
        kept.append(all(answer.status == 200 for answer in alone + beside))
        kept.append(percentile(beside, 99) <= 1.05 * percentile(alone, 99))

    def truth(soak: ShadowSoak) -> None:
        told, true = soak.told_and_true()
        sys.stdout.write(f"told {told}\ntrue {true}\n")
        kept.append(told.near(true))

    for percent, measure in ((arguments.percent, cost), (100.0, truth)):
        with tempfile.TemporaryDirectory() as folder:
            ShadowSoak(checkpoint=default_checkpoint(), folder=Path(folder), percent=percent).run(measure)
    for name, fulfilled in zip(("no failed request", "p99 within 5 %", "the figures are true"), kept, strict=True):
        sys.stdout.write(f"{'yes' if fulfilled else 'NO '}  {name}\n")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
