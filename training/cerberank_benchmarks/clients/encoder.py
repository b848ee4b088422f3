"""A process of the GPU benchmark's piece `encode`: tokenises in threads, by a job on stdin (`processes.run_together`).

It imports neither PyTorch nor what starts it, so that it is ready at once and its memory is the tokenizer's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tokenizers import Tokenizer

from cerberank_benchmarks.clients.processes import VARIANTS, Job, bodies
from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder


def main() -> None:
    """Encode for the job's seconds in each of its threads, and report the texts of all a second."""
    job = json.loads(sys.stdin.readline())
    encoder = PairEncoder(
        Tokenizer.from_file(job["tokenizer"]),
        family="bert",
        config=EncodingConfig(max_length=job["max_length"], question_length=64),
        type_vocab_size=2,
    )
    with ThreadPoolExecutor(job["threads"]) as pool:
        questions = [_questions(job, thread) for thread in range(job["threads"])]
        encoder.encode(*questions[0][0])
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        rates = list(pool.map(lambda own: _texts_a_second(encoder, own, job["seconds"]), questions))
    sys.stdout.write(json.dumps({"texts/s": sum(rates)}) + "\n")


def _questions(job: Mapping[str, Any], thread: int) -> list[tuple[str, list[Candidate]]]:
    """A few questions with texts of their own."""
    texts = bodies(
        Job(
            port=0,
            clients=1,
            candidates=job["candidates"],
            seconds=0.0,
            repeated=False,
            vocabulary=tuple(job["vocabulary"]),
            question_words=job["question_words"],
            candidate_words=job["candidate_words"],
            seed=job["seed"],
        ),
        thread,
    )
    parsed = (json.loads(next(texts)) for _ in range(VARIANTS))
    return [(each["question"], [Candidate(text=text) for text in each["candidates"]]) for each in parsed]


def _texts_a_second(encoder: PairEncoder, questions: list[tuple[str, list[Candidate]]], seconds: float) -> float:
    began, encoded = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds or not encoded:
        for question, candidates in questions:
            encoder.encode(question, candidates)
            encoded += len(candidates)
    return encoded / took


if __name__ == "__main__":
    main()
