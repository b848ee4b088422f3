"""The kit of `make gpu-kit` names what it lacks, and is enough for a machine that has what its list says."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "requirements" / "gpu_kit.py"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def gpu_kit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_kit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, name: str, *requirements: str) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", *(f"Requires-Dist: {line}" for line in requirements)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", "\n".join(lines) + "\n")
    return path


def test_a_requirement_that_nothing_meets_is_named(gpu_kit: ModuleType, tmp_path: Path) -> None:
    """Neither by a wheel nor by the machine's version; other extras, systems and Pythons do not count."""
    wheels = [
        wheel(
            tmp_path,
            "cerberank",
            "some-part>=1",
            "numpy>=2",
            "tqdm>=4",
            "missing; extra == 'service'",
            "not-asked; extra == 'training'",
            "colorama; sys_platform == 'win32'",
            "backport; python_version < '3.12'",
        ),
        wheel(tmp_path, "some_part", "old<3"),
    ]
    machine = {"numpy": "1.26.0", "tqdm": "", "old": "3.1"}
    expected = ["numpy>=2 (of cerberank)", "missing (of cerberank)", "old<3 (of some_part)"]
    assert gpu_kit.unmet(wheels, machine, "3.12") == expected


def test_a_wheel_that_pip_does_not_find_is_named(tmp_path: Path) -> None:
    """The exit code is 1 and the message has the pin: `make gpu-kit` once ended without a word."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    command = [sys.executable, str(SCRIPT), str(tmp_path / "kit")]
    offline = environment | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gpu_kit: pip finds no wheel of annotated-types==" in done.stderr


@pytest.mark.slow
def test_the_kit_serves_and_measures_in_a_fresh_environment(tmp_path: Path) -> None:
    """An environment of the kit and the machine's listed packages alone: every piece runs from it, the service too."""
    packed = tmp_path / "kit"
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe")]
    if subprocess.run([*probe, "fastapi-swagger"], capture_output=True, check=False).returncode:
        pytest.skip("needs an index or a folder of wheels in pip's configuration")
    subprocess.run([sys.executable, str(SCRIPT), str(packed), "--python", PYTHON], check=True)
    installed = tmp_path / "installed"
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(installed)]
    subprocess.run([sys.executable, "-m", "pip", *install, *map(str, packed.glob("*.whl"))], check=True)
    venv.create(tmp_path / "fresh")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CERBERANK_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(installed), str(_machine(tmp_path / "machine"))])
    program = [str(tmp_path / "fresh" / "bin" / "python"), "-m", "cerberank_models"]
    out = tmp_path / "out"
    measure = ["bench", "gpu", "--device", "cpu", "--tiny", "--tokenizer", str(packed / "tokenizer.json")]
    command = [*program, *measure, "--out", str(out)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pieces = {piece["name"]: piece for piece in json.loads((out / "gpu.json").read_text())["pieces"]}
    assert {piece["status"] for piece in pieces.values()} == {"ran"}
    assert sum(row.get("requests", 0) for row in pieces["served"]["rows"]) > 0


def _machine(folder: Path) -> Path:
    """Links to those packages of this environment that the GPU machine has too."""
    lines = (ROOT / "requirements" / "gpu-machine.list").read_text().splitlines()
    listed = {canonicalize_name(line.partition("==")[0]) for line in lines if not line.startswith("#")}
    folder.mkdir()
    for found in importlib.metadata.distributions():
        if canonicalize_name(found.metadata["Name"]) in listed:
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder
