from __future__ import annotations

import asyncio

import pytest

from cerberank_service.ranking.workers import Workers


def test_an_exception_comes_back_to_the_caller() -> None:
    """The exception is raised in the caller, and the thread stays usable."""
    workers = Workers(1)

    def fail() -> None:
        raise KeyError("lost")

    async def ask() -> int:
        with pytest.raises(KeyError, match="lost"):
            await workers.run(fail)
        return await workers.run(lambda: 7)

    assert asyncio.run(ask()) == 7
    workers.close()
