"""The real process under hostile requests; `python -m tests.e2e.siege` measures the neighbour's times too."""

from __future__ import annotations

from pathlib import Path

import httpx
from tests.e2e.conftest import start, wait_until_ready
from tests.e2e.siege import IMPATIENT, MARK, SETTINGS, Neighbour, ask, besiege, resident, warm_up


def test_hostile_requests_harm_nobody_but_themselves(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """All kinds get what they deserve; neighbours are answered, memory stays, and no text is in the log."""
    service = start(tiny_checkpoint, tmp_path / "log", program=IMPATIENT, **SETTINGS)
    try:
        wait_until_ready(service)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            warm_up(client)
            first = [client.post("/v1/rank", json=ask(4)).json()["results"] for _ in range(50)]
            before = resident(service)
            neighbour = Neighbour(service.url, pause=0.05)
            with neighbour.asking():
                found = list(besiege(service))
            assert client.post("/v1/rank", json=ask(4)).json()["results"] == first[0]
        memory = {name: round(megabytes) for name, _, _, megabytes in found}
        assert {name: came for name, came, may, _ in found if not came <= may} == {}
        assert len(memory) >= 20
        assert neighbour.statuses == {200}
        assert resident(service) - before <= 20, (before, memory)
        log = service.log.read_text()
        assert MARK not in log
        assert "Traceback" not in log
    finally:
        service.process.kill()
        service.process.wait()
