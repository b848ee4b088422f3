"""The kit of `make gpu-kit` names what it lacks, and is enough for a machine that has what its list says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest
from tests.environments import clean_variables, link_packages, listed

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "requirements" / "gpu_kit.py"
SOURCES = [ROOT, *(ROOT / name for name in ("models", "service", "training"))]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def gpu_kit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_kit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_requirement_that_nothing_meets_is_named(gpu_kit: ModuleType) -> None:
    """Neither by a wheel nor by the machine's version; other extras, systems and Pythons do not count."""
    needs = {
        "cerberank": [
            "some-part>=1",
            "numpy>=2",
            "tqdm>=4",
            "missing",
            "colorama; sys_platform == 'win32'",
            "backport; python_version < '3.12'",
        ],
        "some_part": ["old<3", "not-needed; extra == 'more'"],
    }
    available = {"some-part": "1.0", "numpy": "1.26.0", "tqdm": "", "old": "3.1"}
    expected = ["numpy>=2 (of cerberank)", "missing (of cerberank)", "old<3 (of some_part)"]
    assert gpu_kit.unmet(needs, available, "3.12") == expected


def test_a_wheel_that_pip_does_not_find_is_named(
    gpu_kit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make gpu-kit` once ended without a word."""
    monkeypatch.setattr(gpu_kit.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(gpu_kit.KitError, match="pip finds no wheel of annotated-types=="):
        gpu_kit.pack(tmp_path / "kit", python=PYTHON)


def test_the_kit_serves_and_measures_in_a_fresh_environment(tmp_path: Path) -> None:
    """The pieces that start programs, or import transformers, run with the kit and the machine's listed packages alone.

    `tests/benchmarks/gpu` runs all pieces.
    """
    packed = tmp_path / "kit"
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe")]
    if subprocess.run([*probe, "fastapi-swagger"], capture_output=True, check=False).returncode:
        pytest.skip("needs an index or a folder of wheels in pip's configuration")
    subprocess.run([sys.executable, str(SCRIPT), str(packed), "--python", PYTHON], check=True)
    installed = tmp_path / "installed"
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(installed)]
    subprocess.run([sys.executable, "-m", "pip", *install, *map(str, packed.glob("*.whl"))], check=True)
    venv.create(tmp_path / "fresh")
    machine = tmp_path / "machine"
    machine.mkdir()
    link_packages(listed("gpu-machine.list"), machine)
    environment = clean_variables()
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [installed, machine, *SOURCES]))
    program = [str(tmp_path / "fresh" / "bin" / "python"), "-m", "cerberank_benchmarks"]
    out = tmp_path / "out"
    command = [*program, "gpu", "--device", "cpu", "--tiny", "--pieces", "reference,served,training", "--out", str(out)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pieces = {piece["name"]: piece for piece in json.loads((out / "gpu.json").read_text())["pieces"]}
    assert {name for name, piece in pieces.items() if piece["status"] == "ran"} == {"reference", "served", "training"}
    assert sum(row.get("requests", 0) for row in pieces["served"]["rows"]) > 0
