"""Adds hashes to a lock: `python requirements/hashes.py LOCK OUT`, with pip's own configuration.

OUT has, for each version of LOCK, the SHA-256 of the wheels that pip chooses for the images: Linux on x86-64 and on
arm64, the images' Python. `pip install --require-hashes` takes nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

PYTHON = "3.11"
"""The Python version of the Dockerfile's base image."""
ARCHITECTURES = ("x86_64", "aarch64")
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1")

COMMENT = (
    f"# Locked versions and hashes for the images: Linux on x86-64 and arm64, Python {PYTHON}. Made by `make lock`."
)


def main(lock: Path, out: Path) -> None:
    """Write `out`. Raises CalledProcessError when a version has no wheel for one of the architectures."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if "==" in line and not line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pins").write_text("\n".join(re.sub(r" .*", "", pin) for pin in pins), encoding="utf-8")
        for architecture in ARCHITECTURES:
            _download(Path(folder) / "pins", Path(folder) / architecture, architecture)
        wheels = [*Path(folder).glob("*/*.whl")]
        locked = [_locked(re.sub(r" .*", "", pin), wheels) for pin in pins]
    out.write_text("\n".join([COMMENT, *locked]) + "\n", encoding="utf-8")


def _download(pins: Path, target: Path, architecture: str) -> None:
    platforms = [f"--platform={platform}_{architecture}" for platform in PLATFORMS]
    choice = ["--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp", *platforms]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet"]
    subprocess.run([*pip, *choice, f"--dest={target}", f"--requirement={pins}"], check=True)


def _locked(pin: str, wheels: list[Path]) -> str:
    name, _, version = pin.partition("==")
    found = [wheel for wheel in wheels if _plain(wheel.name.split("-")[0]) == _plain(name)]
    assert {wheel.name.split("-")[1] for wheel in found} == {version}, pin
    hashes = sorted({sha256(wheel.read_bytes()).hexdigest() for wheel in found})
    return " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in hashes)])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
