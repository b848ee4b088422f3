from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
from fastapi.testclient import TestClient
from tests.service.large import LARGE, READING, open_descriptors, process_of, read, with_bodies

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.large_bodies import NICENESS, LargeBodies
from cerberank_service.http.large_body import LARGE_BYTES
from cerberank_service.ranking.read import Read


def test_it_reads_what_this_process_would_read() -> None:
    """Calls and errors alike; an error is compared by what a client sees of it."""
    sent = (LARGE, LARGE[:-1], b"[" * LARGE_BYTES)

    def shown(read: Read) -> object:
        return (read.outcome.kind, read.outcome.message) if isinstance(read.outcome, ServiceError) else read

    async def work(bodies: LargeBodies) -> list[Read]:
        return [await read(bodies, body) for body in sent]

    assert [shown(read) for read in with_bodies(work)] == [shown(READING(body)) for body in sent]


def test_one_process_of_a_lower_priority_reads_all_and_ends_with_the_service() -> None:
    """Steps of the model go before it."""

    async def work(bodies: LargeBodies) -> int:
        bodies.start()
        await read(bodies)
        process = process_of(bodies)
        await asyncio.gather(*(read(bodies) for _ in range(2)))
        assert process_of(bodies) == process
        assert os.getpriority(os.PRIO_PROCESS, process) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        return process

    with pytest.raises(ProcessLookupError):
        os.kill(with_bodies(work), 0)


def test_too_many_are_refused_and_one_is_always_read() -> None:
    """The bound is of bytes that wait; what has been read makes room."""

    async def work(bodies: LargeBodies) -> list[Read | BaseException]:
        first = await asyncio.gather(*(read(bodies) for _ in range(3)), return_exceptions=True)
        return [*first, await read(bodies)]

    one, two, three, later = with_bodies(work, total_bytes=len(LARGE))
    assert isinstance(one, Read)
    assert isinstance(later, Read)
    for refused in (two, three):
        assert isinstance(refused, ServiceError)
        assert refused.kind is Kind.UNAVAILABLE
        assert refused.retry_after == 2


def test_clients_that_leave_make_no_room_before_their_body_is_done() -> None:
    """One that is being read counts to its end; one that waits is gone with its client."""

    async def work(bodies: LargeBodies) -> list[int]:
        await read(bodies)
        descriptors = open_descriptors()
        os.kill(process_of(bodies), signal.SIGSTOP)
        tasks = [asyncio.create_task(read(bodies)) for _ in range(3)]
        await asyncio.sleep(0.05)
        held = [bodies._held]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held.append(bodies._held)
        os.kill(process_of(bodies), signal.SIGCONT)
        assert isinstance(await read(bodies), Read)
        assert open_descriptors() == descriptors
        return [*held, bodies._held]

    assert with_bodies(work) == [3 * len(LARGE), len(LARGE), 0]


def test_one_that_is_being_started_ends_with_the_service() -> None:
    """A service that ends as soon as it began leaves no process behind."""

    async def work(bodies: LargeBodies) -> LargeBodies:
        bodies.start()
        return bodies

    bodies = with_bodies(work)
    assert bodies._process is None or bodies._process.ended()


def test_a_large_question_is_answered_as_a_small_one(client: TestClient) -> None:
    """Through the whole app; the blanks around change nothing but the size."""
    small = json.dumps({"question": "how tall ?", "candidates": ["a b", "c", "a b"]}).encode()
    answers = [client.post("/v1/rank", content=body).json() for body in (small, b" " * LARGE_BYTES + small)]
    assert answers[0]["results"] == answers[1]["results"]


def test_an_error_in_a_large_body_has_its_dialect_s_format(client: TestClient) -> None:
    """The error is made in the other process and answered by this one."""
    answer = client.post("/rerank", content=b'{"query": "q", "texts": 3}' + b" " * LARGE_BYTES)
    assert answer.status_code == 422
    assert set(answer.json()) == {"error", "error_type"}


def test_bodies_are_taken_in_slowly_while_anybody_is_answered(client: TestClient) -> None:
    """The service tells its bodies by the leases of its versions."""
    service = client.app.state.service  # type: ignore[attr-defined]
    seen = [service.bodies._busy()]
    with service.versions.lease() as lease:
        lease.take(None, None, "q")
        seen.append(service.bodies._busy())
    assert [*seen, service.bodies._busy()] == [False, True, False]
