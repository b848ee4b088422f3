"""The three pages of "Get started": every command runs as it stands, but for ports and the base of the training."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.tiny import save_cross_encoder

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # services of the bundled model are started, and a model is trained and exported


def commands(page: str) -> str:
    """The shell blocks of a page without its installation, one after the other."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    return re.sub(r"^(python3 -m venv|pip install) .*\n", "", "\n".join(blocks), flags=re.MULTILINE)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], str]:
    """Runs a script in one shell, in a folder with links to the checkout's folders; returns what it printed."""
    for name in ("docs", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(str(free.getsockname()[1]))
    environment |= {"CERBERANK_PORT": ports[0], "CERBERANK_ADMIN_PORT": ports[1]}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def start(script: str) -> str:
        with (
            (tmp_path / "output").open("wb") as output,
            subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script.replace(":8000", f":{ports[0]}")],
                **{"cwd": tmp_path, "env": environment, "stdout": output, "stderr": subprocess.STDOUT},
                start_new_session=True,
            ) as shell,
        ):
            try:
                code = shell.wait(timeout=900)
            finally:
                with suppress(ProcessLookupError):  # the page has stopped everything
                    os.killpg(shell.pid, signal.SIGTERM)
        printed = (tmp_path / "output").read_text()
        assert code == 0, printed[-4000:]
        return printed

    return start


def test_a_user_ranks_and_gets_no_answer_where_there_is_none(run: Callable[[str], str]) -> None:
    printed = run(commands("start-user.md"))
    assert printed.count('"text":"The Eiffel Tower is 330 metres tall."') == 1
    assert '"results":[]' in printed
    assert printed.count("The Eiffel Tower is 330 metres tall.\n") == 2


def test_an_operator_pushes_a_version_and_takes_it_back(run: Callable[[str], str]) -> None:
    printed = run(commands("start-operator.md"))
    assert "401\n" in printed, printed
    assert "cerberank_build_info" in printed


def test_a_trainer_trains_evaluates_and_exports(run: Callable[[str], str], tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 4, "max_position_embeddings": 160, "initializer_range": 0.1}  # int8 must be near fp32
    base = save_cross_encoder("bert", tmp_path / "base", **shape)
    script = commands("start-trainer.md").replace("sentence-transformers/all-MiniLM-L6-v2", str(base))
    served = re.sub(r"^(CERBERANK_CHECKPOINT=\S+ cerberank serve)$", r"\1 &", script, flags=re.MULTILINE)
    # /v1/models answers while a model is still loading, and names none then.
    ready = "curl -sf --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8000/health/ready\n"
    assert '"model":"first"' in run(served + ready + "curl -sf http://127.0.0.1:8000/v1/models")
