"""The installation of packages by `make test-clients`; the clients themselves are in `tests/clients`."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
from tests.clients.run import install


@pytest.mark.parametrize("name", ["requirements.txt", "package.json"])
def test_every_run_installs_the_latest_versions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the same requirements are installed already; npm finds nothing there that it would keep."""
    client, environment = tmp_path / "client", tmp_path / "environment"
    client.mkdir()
    (client / name).write_text("{}")
    found: list[tuple[bool, bool]] = []

    def ran(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if "install" in command:
            found.append(((environment / "before").is_file(), "--upgrade" in command))
            (environment / "before").touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", ran)
    monkeypatch.setattr(venv, "create", lambda folder, **options: folder.mkdir())
    assert install(client, environment) == install(client, environment) == ""
    assert found == ([(False, False)] * 2 if name == "package.json" else [(False, True), (True, True)])
