from __future__ import annotations

import json
from itertools import islice
from subprocess import TimeoutExpired
from threading import Event
from urllib.parse import urlsplit

import pytest
from tests.deploy.replica import Replica, listening
from tokenizers import Tokenizer

from cerberank_benchmarks.clients.processes import Job, ask_from_processes, bodies
from cerberank_benchmarks.workload import WORDS
from cerberank_models.checkpoint.bundled import default_checkpoint


def job(port: int = 0, *, clients: int = 1, repeated: bool = False) -> Job:
    return Job(
        port=port,
        clients=clients,
        candidates=3,
        seconds=0.05,
        repeated=repeated,
        vocabulary=tuple(dict.fromkeys(WORDS)),
        question_words=8,
        candidate_words=12,
        seed=1,
    )


def texts(job: Job, client: int, count: int) -> list[str]:
    return [text for body in islice(bodies(job, client), count) for text in json.loads(body)["candidates"]]


def test_cold_texts_are_never_sent_twice() -> None:
    """Neither by one client nor by another, and each word is one token."""
    sent = texts(job(), 0, 20) + texts(job(), 1, 20)
    assert len(sent) == len(set(sent)) == 120
    tokenizer = Tokenizer.from_file(str(default_checkpoint() / "tokenizer.json"))
    tokenizer.no_padding()
    assert {len(tokenizer.encode(text, add_special_tokens=False).ids) for text in sent} == {12}


@pytest.fixture
def replica() -> Replica:
    """A server that answers as the service does."""
    answer = {"results": ["a", "b", "c"], "timing_ms": {"encode": 1.0, "compute": 2.0}}
    return Replica(answer=json.dumps(answer).encode())


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def test_all_clients_are_counted(replica: Replica) -> None:
    """The share of each process, with the server's own times."""
    with listening(replica) as url:
        outcome, processes = ask_from_processes(job(port_of(url), clients=3, repeated=True), patience=60.0)
    assert (processes, outcome.failed) == (3, 0)
    assert len(outcome.seconds) >= 3
    assert (set(outcome.encode_ms), set(outcome.compute_ms)) == ({1.0}, {2.0})


def test_clients_of_a_silent_server_are_ended(replica: Replica) -> None:
    """After the caller's patience; their connections would end after two minutes, with an error."""
    replica.hang = Event()
    with listening(replica) as url:
        with pytest.raises(TimeoutExpired):
            ask_from_processes(job(port_of(url)), patience=0.5)
        replica.hang.set()
