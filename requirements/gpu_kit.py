"""Packs what the GPU benchmarks need on a machine without a network: `gpu_kit.py OUT [--python] [--packages]`.

OUT gets wheels of what the lock of the service on PyTorch names and the machine does not have. PyTorch, and what
training needs (transformers and so on), must be on the machine; this project is run from its checkout there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "gpu.txt"
MACHINE = ROOT / "requirements" / "gpu-machine.list"
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1")
EXTRAS = ("service", "torch")
MOST_BYTES = 60 << 20
"""What such a machine takes, with some room for the command's own files."""


class KitError(RuntimeError):
    """The kit would not be enough; the message names what is missing."""


def pack(out: Path, *, python: str, lock: Path = LOCK, machine: Path = MACHINE) -> list[Path]:
    """Fill `out`; returns its wheels. Raises KitError, which names each package that is needed and not found."""
    here = versions(machine)
    pins = {name: version for name, version in versions(lock).items() if name not in here}
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, version in pins.items():
        _download(f"{name}=={version}", out, python)
    wheels = sorted(out.glob("*.whl"))
    names = {wheel: wheel.name.split("-") for wheel in wheels}
    needs = {"cerberank": project(), **{name: _requirements(wheel) for wheel, (name, *_) in names.items()}}
    available = here | {canonicalize_name(name): version for name, version, *_ in names.values()}
    if missing := unmet(needs, available, python):
        raise KitError(f"needed, and neither in {lock.name} nor in {machine.name}: {'; '.join(missing)}")
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > MOST_BYTES:
        raise KitError(f"{out} takes {size >> 20} MB, more than {MOST_BYTES >> 20} MB")
    return wheels


def versions(listed: Path) -> dict[str, str]:
    """Versions by name from lines `name==version`; empty where a line has the name alone."""
    lines = (line.partition("#")[0].strip() for line in listed.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("==") for line in lines if line)
    return {canonicalize_name(name): version for name, _, version in pairs}


def unmet(needs: dict[str, list[str]], available: dict[str, str], python: str) -> list[str]:
    """The requirements in `needs`, by the package that has them, that no available version meets.

    A version "" is unknown, and meets all.
    """
    environment = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "extra": "",
    }
    found = []
    for name, lines in needs.items():
        for requirement in map(Requirement, lines):
            if requirement.marker and not requirement.marker.evaluate(environment):
                continue
            version = available.get(canonicalize_name(requirement.name))
            if version is None or (version and not requirement.specifier.contains(version, prereleases=True)):
                found.append(f"{requirement.name}{requirement.specifier} (of {name})")
    return found


def project() -> list[str]:
    """The requirements of this project's service on PyTorch."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*table["dependencies"], *(line for name in EXTRAS for line in table["optional-dependencies"][name])]


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(member).decode())
    return metadata.get_all("Requires-Dist", [])


def _download(pin: str, out: Path, python: str) -> None:
    platforms = [f"--platform={platform}_x86_64" for platform in PLATFORMS]
    choice = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms]
    if subprocess.run([*_pip("download"), *choice, f"--dest={out}", pin], check=False).returncode:
        raise KitError(f"pip finds no wheel of {pin} for Python {python} on Linux x86-64")


def _pip(verb: str) -> list[str]:
    return [sys.executable, "-m", "pip", verb, "--quiet"]


def main() -> None:
    """Pack, and print what was packed; the exit code is 1 when something is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", default="3.12", help="the machine's Python; default 3.12")
    parser.add_argument("--packages", type=Path, default=MACHINE, help="the machine's `pip list --format=freeze`")
    arguments = parser.parse_args()
    try:
        wheels = pack(arguments.out, python=arguments.python, machine=arguments.packages)
    except KitError as error:
        sys.exit(f"gpu_kit: {error}")
    lines = [f"{arguments.out}: {len(wheels)} wheels for Python {arguments.python}; CONTRIBUTING.md has the commands"]
    sys.stdout.write("\n  ".join([*lines, *(wheel.name for wheel in wheels)]) + "\n")


if __name__ == "__main__":
    main()
