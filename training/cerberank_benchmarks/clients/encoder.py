"""A process of the GPU benchmarks' piece `encode`, which tokenises in threads. It reads its job from stdin.

`processes.run_together` starts it. It imports neither PyTorch nor the module of the piece, so that it starts fast and
uses little memory besides the tokenizer's.
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
    """Encode for the job's seconds in each thread, and report the texts per second of all threads together."""
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
        rates = list(pool.map(lambda each: _texts_a_second(encoder, each, job["seconds"]), questions))
    sys.stdout.write(json.dumps({"texts/s": sum(rates)}) + "\n")


def _questions(job: Mapping[str, Any], thread: int) -> list[tuple[str, list[Candidate]]]:
    """A few questions with different texts for each thread."""
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
