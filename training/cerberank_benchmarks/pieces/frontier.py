"""Measures the trade-off between accuracy and time: MAP of several rankers by the time of a question.

All systems rank the same questions with the same candidates, in turn:

- the service with the bundled checkpoint and several drop ratios, and with a first stage if one is given;
- CrossEncoder and infinity-emb, with the first head of the bundled checkpoint, in bf16 where the processor computes it;
- a bi-encoder;
- BM25 over the question's candidates.

The chart has one point for each of them, over all sets.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
from cerberank.cli import main as program
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from cerberank_benchmarks.clients.accuracy import metrics_of
from cerberank_benchmarks.clients.server import cerberank_server, infinity_server
from cerberank_benchmarks.pieces.first_stage import Joined, System, joined, stored_vectors
from cerberank_benchmarks.pieces.offline import HALF_INFINITY, HALF_PEER, INFINITY, cross_encoders, predicted
from cerberank_benchmarks.pieces.over_http import reranked
from cerberank_benchmarks.report import Panels, Point, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings, DataNeededError
from cerberank_benchmarks.workload import Task
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.progress import progress
from cerberank_training.data import Question, read_questions, sampled
from cerberank_training.data.bm25 import Bm25Index
from cerberank_training.evaluation.question_metrics import question_metrics, ranks_of

OURS, WITH_FIRST = "Cerberank", "Cerberank, first stage"
SCHEDULES: Mapping[str, dict[str, object]] = {
    "no drops": {"drop_ratio": 0},
    "default": {},
    "0.8": {"drop_ratio": 0.8},
    "0.95": {"drop_ratio": 0.95},
}
BI_ENCODER, STORED_VECTORS, BM25 = "bi-encoder", "bi-encoder, stored vectors", "BM25"
PAIRS = 20_000
"""Limit of the pairs of a set for each number of candidates; CrossEncoder in bf16 takes a minute or two for them on two
cores."""
WARM_UP = 20
"""Number of candidates of the question with which each system warms up."""
MAP, ERROR, TIME = "MAP, %", "standard error", "p50 ms"
ALL_SETS = "all"


@dataclass(frozen=True, slots=True)
class Ranker:
    """A system of the comparison, in one configuration (a point of the chart)."""

    system: str
    point: str
    rank: Callable[[Joined], tuple[float, float]]
    """Ranks a question; returns the seconds and the average precision."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one point for the questions of a set."""

    seconds: Sequence[float]
    precisions: Sequence[float]
    """Average precisions, 0 to 1."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per set, number of candidates and point, and a row of all sets. Raises DataNeededError, CheckpointError."""
    if not settings.data:
        raise DataNeededError("frontier needs questions with labels: --data FORMAT:PATH ...")
    sets = _tasks(settings)
    head = _one_head(scratch)
    results: dict[tuple[int, str, str], dict[str, Measured]] = {}
    for place, (name, tasks) in enumerate(sets):
        folder = scratch / f"set-{place}"
        folder.mkdir()
        with ExitStack() as servers:
            rankers = list(_rankers(settings, tasks, head, folder, servers))
            for count, questions in tasks.items():
                description = f"{name}, {count} candidates"
                for ranker, measured in zip(rankers, _measured(rankers, questions, description), strict=True):
                    results.setdefault((count, ranker.system, ranker.point), {})[name] = measured
    rows: list[dict[str, Value]] = []
    for (count, system, point), by_set in results.items():
        parts = {ALL_SETS: list(by_set.values())} | {name: [measured] for name, measured in by_set.items()}
        rows += [
            {"candidates": count, "system": system, "point": point, "set": name, **_figures(part)}
            for name, part in parts.items()
        ]
    return Report(
        name="frontier",
        text=f"One question at a time, the token cache off. At most {settings.questions} questions of a set, fewer "
        f"among many candidates ({PAIRS:,} pairs); each has candidates of other documents up to the number, also "
        "of the other sets if its own has too few. CrossEncoder and bi-encoder run in this process, the others over "
        "HTTP. CrossEncoder and infinity run the first head of the bundled checkpoint's weights. BM25 indexes the "
        f"question's candidates. The rows of {ALL_SETS} have the mean MAP of the sets, and the median time of all "
        "questions.",
        rows=rows,
        chart=_panels([row for row in rows if row["set"] == ALL_SETS], len(sets)),
    )


def _figures(sets: Sequence[Measured]) -> dict[str, Value]:
    """The mean over the sets of their MAP, with its standard error by questions, and the median time."""
    means = [np.mean(measured.precisions) for measured in sets]
    # The variance of the mean of independent means; of a single question it is unknown, and counts as 0.
    squares = [np.var(each.precisions, ddof=1) / len(each.precisions) for each in sets if len(each.precisions) > 1]
    return {
        TIME: 1000 * statistics.median(second for measured in sets for second in measured.seconds),
        MAP: 100 * float(np.mean(means)),
        ERROR: 100 * float(np.sqrt(np.sum(squares))) / len(sets),
        "questions": sum(len(measured.seconds) for measured in sets),
    }


def _tasks(settings: BenchmarkSettings) -> list[tuple[str, dict[int, list[Joined]]]]:
    """The name of each set, and its questions by the number of candidates.

    Raises DataNeededError if all sets together have too few texts.
    """
    sets = {data: list(read_questions(data)) for data in settings.data}
    everywhere = [question for questions in sets.values() for question in questions]

    def tasks(pool: Sequence[Question], count: int) -> list[Joined]:
        questions = sampled(pool, size=settings.questions, seed=settings.seed, name="clean")[: max(1, PAIRS // count)]
        try:
            return list(joined(questions, count, settings.seed, every=pool))
        except DataNeededError:
            return list(joined(questions, count, settings.seed, every=everywhere))

    return [
        (_set_name(data.rpartition(":")[2]), {count: tasks(pool, count) for count in settings.candidates})
        for data, pool in sets.items()
    ]


def _rankers(
    settings: BenchmarkSettings, tasks: Mapping[int, Sequence[Joined]], head: Path, scratch: Path, servers: ExitStack
) -> Iterator[Ranker]:
    def serve(checkpoint: Path, name: str, **options: str | float) -> httpx.Client:
        options |= {"precision": settings.precision, "token_cache_bytes": 0}
        return servers.enter_context(cerberank_server(checkpoint, scratch / name, options)).client

    # Ours.
    plain = serve(default_checkpoint(), "plain")
    for point, fields in SCHEDULES.items():
        yield Ranker(OURS, point, _served(System(plain, fields)))
    if settings.checkpoint is not None:
        if read_checkpoint(settings.checkpoint).config.first_stage is None:
            raise CheckpointError(f"{settings.checkpoint} has no first stage")
        texts = (text for questions in tasks.values() for question in questions for text in question.candidates)
        stored = stored_vectors(settings, texts, scratch)
        client = serve(settings.checkpoint, "first", vectors=str(stored), vector_cache_bytes=0)
        yield Ranker(WITH_FIRST, "stored vectors", _served(System(client, {})))
    # Peers with the same weights in their fastest precision, then those with others or none.
    name, peer = list(cross_encoders(head).items())[-1]
    yield Ranker(name, "", _scored(lambda task: predicted(peer, task)))
    if settings.infinity is not None:
        half = name == HALF_PEER
        server = infinity_server(settings.infinity, head, scratch / "peer", dtype="bfloat16" if half else "float32")
        client = servers.enter_context(server).client
        yield Ranker(HALF_INFINITY if half else INFINITY, "", _scored(lambda task: reranked(client, task)))
    if settings.bi_encoder is not None:
        model = SentenceTransformer(str(settings.bi_encoder), device="cpu")
        yield Ranker(BI_ENCODER, "", _scored(lambda task: _cosines(model, task)))
        vectors: dict[str, NDArray[np.float32]] = {}
        yield Ranker(STORED_VECTORS, "", _stored(model, vectors))
    yield Ranker(BM25, "", _scored(lambda task: Bm25Index(task.texts).scores(task.question)))


def _served(system: System) -> Callable[[Joined], tuple[float, float]]:
    def rank(question: Joined) -> tuple[float, float]:
        seconds, answer = system.ask(question)
        return seconds, metrics_of(answer, question.labels)["map"]

    return rank


def _scored(score: Callable[[Task], NDArray[np.floating]]) -> Callable[[Joined], tuple[float, float]]:
    def rank(question: Joined) -> tuple[float, float]:
        started = time.perf_counter()
        scores = score(Task(question.text, question.candidates))
        return time.perf_counter() - started, _precision(scores, question.labels)

    return rank


def _stored(
    model: SentenceTransformer, vectors: dict[str, NDArray[np.float32]]
) -> Callable[[Joined], tuple[float, float]]:
    """A function that ranks with vectors of candidates computed before; only the question's encoding is timed."""

    def rank(question: Joined) -> tuple[float, float]:
        missing = [text for text in question.candidates if text not in vectors]
        if missing:
            made = model.encode(missing, normalize_embeddings=True, show_progress_bar=False)
            vectors.update(zip(missing, made, strict=True))
        matrix = np.stack([vectors[text] for text in question.candidates])
        started = time.perf_counter()
        scores = matrix @ model.encode([question.text], normalize_embeddings=True, show_progress_bar=False)[0]
        return time.perf_counter() - started, _precision(scores, question.labels)

    return rank


def _cosines(model: SentenceTransformer, task: Task) -> NDArray[np.float32]:
    vectors = model.encode([task.question, *task.texts], normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors[1:] @ vectors[0], dtype=np.float32)


def _precision(scores: NDArray[np.floating], labels: Sequence[int]) -> float:
    """The average precision; ties count by their expected order."""
    ranks = ranks_of(np.asarray(scores, dtype=np.float64))
    return question_metrics(np.asarray(labels), ranks).expected["map"]


def _measured(rankers: Sequence[Ranker], tasks: Sequence[Joined], description: str) -> list[Measured]:
    """The results of each ranker for the tasks; all rank a task before the next one begins."""
    few = tasks[0].candidates[:WARM_UP]
    for ranker in rankers:
        # Figures of the warm-up are discarded. One label is 1, because metrics need a positive.
        ranker.rank(replace(tasks[0], candidates=few, labels=(1, *(0 for _ in few[1:]))))
    answers = [[ranker.rank(task) for ranker in rankers] for task in progress(tasks, desc=description)]
    return [Measured(*zip(*column, strict=True)) for column in zip(*answers, strict=True)]


def _panels(rows: Sequence[Mapping[str, Value]], sets: int) -> Panels:
    """A chart for each number of candidates."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        title = f"{row['candidates']} candidates, {row['questions']} questions of {sets} sets"
        panel = panels.setdefault(title, {})
        place = Point(float(row[TIME]), float(row[MAP]), float(row[ERROR]), str(row["point"]))
        panel.setdefault(str(row["system"]), []).append(place)
    return Panels(panels=panels, place_label="ms a question (median)", value_label="MAP, % (mean of the sets)")


def _set_name(path: str) -> str:
    """The name of the set, which is that of the file's folder, such as squad-as2/dev.jsonl.gz."""
    return Path(path).parent.name or Path(path).name


def _one_head(scratch: Path) -> Path:
    """Export the first head of the bundled checkpoint as a classifier for transformers; returns the folder."""
    source, weights, out = default_checkpoint(), scratch / "weights", scratch / "head"
    if read_checkpoint(source).weights is None:
        code, source = program(["checkpoint", "weights", str(source), str(weights)]), weights
        if code:
            raise CheckpointError("the bundled checkpoint's weights could not be read back")
    if program(["export", str(source), str(out), "--hugging-face", "--head", "1"]):
        raise CheckpointError("the bundled checkpoint's first head could not be written")
    return out
