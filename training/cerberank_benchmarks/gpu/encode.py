"""Piece `encode`: texts per second that threads and processes tokenise, as the service does for uncached texts."""

from __future__ import annotations

import os

from cerberank_benchmarks.clients.processes import run_together
from cerberank_benchmarks.gpu.lab import Findings, Lab
from cerberank_benchmarks.gpu.served import QUESTION_WORDS, SPECIAL_TOKENS
from cerberank_benchmarks.weights import MAX_LENGTH
from cerberank_benchmarks.workload import WORDS

TEXT = (
    "Questions of the other pieces' candidates, encoded by `PairEncoder` without a cache, in processes without "
    "PyTorch that begin at the same moment. Inner threads: the tokenizer's own, which share the texts of a call "
    "(TOKENIZERS_PARALLELISM; the service leaves them on). Arenas: MALLOC_ARENA_MAX, or glibc's default of eight a "
    "processor."
)
ARENAS = ("default", "2")


def run(lab: Lab) -> Findings:
    """Rows for numbers of threads, with and without inner threads, then of processes; each with both arena limits."""
    counts = lab.sizes.encode_threads
    threads = [(1, count, inner) for count in counts for inner in (True, False)]
    for processes, each, inner in threads + [(count, 1, False) for count in counts if count > 1]:
        for arenas in ARENAS:
            encoded = _texts_a_second(lab, processes, each, inner=inner, arenas=arenas)
            yield {
                "processes": processes,
                "threads of a process": each,
                "inner threads": "on" if inner else "off",
                "arenas": arenas,
                "texts/s": encoded,
            }


def _texts_a_second(lab: Lab, processes: int, threads: int, *, inner: bool, arenas: str) -> float:
    job = {
        "tokenizer": str(lab.tokenizer),
        "max_length": MAX_LENGTH,
        "threads": threads,
        "seconds": lab.sizes.encode_seconds,
        "candidates": lab.sizes.candidates,
        "vocabulary": tuple(dict.fromkeys(WORDS)),
        "question_words": QUESTION_WORDS,
        "candidate_words": lab.sizes.tokens - QUESTION_WORDS - SPECIAL_TOKENS,
    }
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    environment["TOKENIZERS_PARALLELISM"] = "true" if inner else "false"
    if arenas != "default":
        environment["MALLOC_ARENA_MAX"] = arenas
    results = run_together(
        "cerberank_benchmarks.clients.encoder",
        [job | {"seed": lab.seed + number} for number in range(processes)],
        patience=max(1.0, lab.remaining),
        environment=environment,
    )
    return float(sum(result["texts/s"] for result in results))
