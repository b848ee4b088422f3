"""The shell commands of a page, run as they stand but for ports."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
LONGEST_SECONDS = 1800.0


def blocks(page: str, language: str = "sh") -> str:
    """The page's blocks of a language, one after the other."""
    text = (DOCS / page).read_text()
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def environment() -> dict[str, str]:
    """Variables for this installation's programs, without settings of the service."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    return variables | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run_in_shell(script: str, folder: Path) -> str:
    """Run a script in one shell, and end what it has started; fails if a command does.

    Returns what it printed; errors are in the file `errors` of the folder.
    """
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(str(free.getsockname()[1]))
    variables = environment() | {"CERBERANK_PORT": ports[0], "CERBERANK_ADMIN_PORT": ports[1]}
    with (
        (folder / "output").open("wb") as output,
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script.replace(":8000", f":{ports[0]}")],
            **{"cwd": folder, "env": variables, "stdout": output, "stderr": errors},
            start_new_session=True,
        ) as shell,
    ):
        try:
            code = shell.wait(timeout=LONGEST_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # the page has stopped everything
                os.killpg(shell.pid, signal.SIGTERM)
    printed = (folder / "output").read_text()
    assert code == 0, printed[-4000:] + (folder / "errors").read_text()[-4000:]
    return printed
