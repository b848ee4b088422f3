"""Runs unmodified client packages against one real service: `make test-clients`, `python -m tests.clients.run [NAME]`.

Each folder beside this file is one client: `requirements.txt` and `test_NAME.py` from PyPI, or `package.json` and
`NAME.mjs` from npm; `databases` has the requests of servers that cannot be installed here. Each gets an environment of
its own in `.venv-clients/NAME`, made anew when its requirements change, and npm's at every run; every run brings
packages to their latest versions and prints them.
A package that cannot be installed is reported as not run, and the command then fails, as it does for a failed test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from tools.process import serving

from cerberank_models.checkpoint.bundled import default_checkpoint

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
INSTALL_SECONDS, RUN_SECONDS = 900, 300
REQUIREMENTS = ("requirements.txt", "package.json")


def clients() -> list[Path]:
    """The folders of all clients."""
    return sorted(path for path in HERE.iterdir() if any((path / name).is_file() for name in REQUIREMENTS))


def install(client: Path, environment: Path) -> str:
    """Install a client's requirements in their latest versions; returns the reason when that fails, or else nothing."""
    source = next(client / name for name in REQUIREMENTS if (client / name).is_file())
    npm, stamp = source.name == "package.json", environment / "installed"
    if npm or not stamp.is_file() or stamp.read_text() != source.read_text():
        shutil.rmtree(environment, ignore_errors=True)
    if npm:
        environment.mkdir(parents=True)
        shutil.copy(source, environment)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(environment)]
        versions = ["npm", "ls", "--depth=0", "--prefix", str(environment)]
    else:
        if not environment.is_dir():
            venv.create(environment, with_pip=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip"]
        command = [*pip, "install", "--quiet", "--upgrade", "pytest", "--requirement", str(source)]
        versions = [*pip, "list", "--not-required", "--format=freeze"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
    stamp.write_text(source.read_text())
    # npm calls the versions of a tag invalid.
    subprocess.run(versions, timeout=RUN_SECONDS, check=False, stderr=subprocess.DEVNULL)
    return ""


def run(client: Path, environment: Path, url: str) -> bool:
    """Run a client's tests against the service at `url`; whether all passed."""
    if (client / "package.json").is_file():
        # Node looks for packages beside the program.
        command = ["node", str(shutil.copy(client / f"{client.name}.mjs", environment))]
    else:
        options = ["-q", "-rs", "-c", os.devnull, "--rootdir", str(HERE), "--import-mode=append"]
        options += ["--confcutdir", str(HERE), "-p", "no:cacheprovider"]
        command = [str(environment / "bin" / "python"), "-m", "pytest", *options]
        command.append(str(client / f"test_{client.name}.py"))
    # Nothing of this project is to be importable there, nor may a vendor's key be in reach.
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and name != "PYTHONPATH"}
    ours = {"CERBERANK_URL": url, "CERBERANK_PROGRAM": str(Path(sys.executable).with_name("cerberank"))}
    try:
        done = subprocess.run(command, env=kept | ours, timeout=RUN_SECONDS, check=False, cwd=client)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error)  # noqa: T201
        return False
    return done.returncode == 0


def main(names: Sequence[str]) -> int:
    """Run the named clients, or all, and print a line for each; 0 when all were run and passed."""
    found = [client for client in clients() if not names or client.name in names]
    if missing := set(names) - {client.name for client in found}:
        print(f"no such client: {', '.join(sorted(missing))}")  # noqa: T201
        return 2
    results = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(default_checkpoint(), Path(folder) / "log") as service,
    ):
        for client in found:
            environment = ENVIRONMENTS / client.name
            reason = install(client, environment)
            if reason:
                results[client.name] = f"not run: {reason}"
            else:
                results[client.name] = "passed" if run(client, environment, service.url) else "failed"
    for name, result in results.items():
        print(f"{name:24} {result}")  # noqa: T201
    return 0 if set(results.values()) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
