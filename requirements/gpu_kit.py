"""Packs what `cerberank bench gpu` needs on a GPU machine without a network: `gpu_kit.py OUT [--python] [--packages]`.

OUT gets a wheel of this project, its tokenizer, and wheels of what the lock of the service on PyTorch names and the
machine does not have. PyTorch, and what training needs (transformers and so on), must be on the machine.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "gpu.txt"
MACHINE = ROOT / "requirements" / "gpu-machine.list"
TOKENIZER = ROOT / "models" / "checkpoints" / "cerberank-mini" / "tokenizer.json"
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
    build = [*_pip("wheel"), "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(build, check=True)
    wheels = sorted(out.glob("*.whl"))
    if missing := unmet(wheels, here, python):
        raise KitError(f"needed, and neither in {lock.name} nor in {machine.name}: {'; '.join(missing)}")
    shutil.copy(TOKENIZER, out)
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > MOST_BYTES:
        raise KitError(f"{out} takes {size >> 20} MB, more than {MOST_BYTES >> 20} MB")
    return wheels


def versions(listed: Path) -> dict[str, str]:
    """Versions by name from lines `name==version`; empty where a line has the name alone."""
    lines = (line.partition("#")[0].strip() for line in listed.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("==") for line in lines if line)
    return {canonicalize_name(name): version for name, _, version in pairs}


def unmet(wheels: list[Path], machine: dict[str, str], python: str) -> list[str]:
    """The requirements of the wheels that neither a wheel nor the machine meets, each with the wheel that has it."""
    available = machine | {canonicalize_name(wheel.name.split("-")[0]): wheel.name.split("-")[1] for wheel in wheels}
    environment = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    found = []
    for wheel in wheels:
        name = wheel.name.split("-")[0]
        for line in _requirements(wheel):
            requirement = Requirement(line)
            extras = EXTRAS if name == "cerberank" else ("",)
            if requirement.marker and not any(requirement.marker.evaluate(environment | {"extra": x}) for x in extras):
                continue
            version = available.get(canonicalize_name(requirement.name))
            if version is None or (version and not requirement.specifier.contains(version, prereleases=True)):
                found.append(f"{requirement.name}{requirement.specifier} (of {name})")
    return found


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
    lines = [f"{arguments.out}: {len(wheels)} wheels for Python {arguments.python}; docs/gpu.md has the commands"]
    sys.stdout.write("\n  ".join([*lines, *(wheel.name for wheel in wheels)]) + "\n")


if __name__ == "__main__":
    main()
