from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.service.fakes import FakeBackend, checkpoint_for

from cerberank_service.workers import Workers


def test_every_thread_has_an_encoder_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    """Tokenizers are not shared between threads."""
    checkpoint, workers = checkpoint_for(FakeBackend(), tmp_path), Workers(2)
    together = threading.Barrier(2, timeout=20)

    def look() -> tuple[str, int, int]:
        together.wait()
        encoder = workers.encoder(checkpoint)
        return threading.current_thread().name, id(encoder), id(workers.encoder(checkpoint))

    async def both() -> list[tuple[str, int, int]]:
        return list(await asyncio.gather(workers.run(look), workers.run(look)))

    first, second = asyncio.run(both())
    workers.close()
    assert first[0] != second[0]
    assert first[1] == first[2] != second[1] == second[2]


def test_another_checkpoint_gets_another_encoder(tmp_path: Path) -> None:
    """A thread's encoder belongs to the checkpoint that it was made from."""
    workers = Workers(1)
    first, second = (checkpoint_for(FakeBackend(), tmp_path) for _ in range(2))
    assert workers.encoder(first) is not workers.encoder(second)
    workers.close()


def test_an_exception_comes_back_to_the_caller() -> None:
    """And the thread lives on."""
    workers = Workers(1)

    def fail() -> None:
        raise KeyError("lost")

    async def ask() -> int:
        with pytest.raises(KeyError, match="lost"):
            await workers.run(fail)
        return await workers.run(lambda: 7)

    assert asyncio.run(ask()) == 7
    workers.close()
