"""Checks of the Dockerfile that need not run it; `make image-check` runs every command of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tools.dockerfile import Instruction, Stage, inherited, read_dockerfile

from cerberank_service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
STAGES = read_dockerfile(ROOT / "Dockerfile")
TARGETS = ("cpu", "gpu")
IGNORED = (ROOT / ".dockerignore").read_text().split()


def copies() -> list[tuple[Stage, Instruction]]:
    return [(stage, each) for stage in STAGES.values() for each in stage.instructions if each.keyword == "COPY"]


def test_hadolint_has_nothing_to_say() -> None:
    """The linter hadolint reports no problem, not even at its lowest level."""
    program = Path(sys.executable).parent / "hadolint"
    files = [ROOT / "Dockerfile", ROOT / "deploy" / "mtail" / "Dockerfile"]
    result = subprocess.run([program, *files], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("target", TARGETS)
def test_the_container_is_nobody_in_particular_and_tells_its_health(target: str) -> None:
    """It has a numeric user, which Kubernetes can check, a readiness probe, and the program as process 1."""
    assert inherited(target, "USER", STAGES).value == "10001:10001"
    assert inherited(target, "HEALTHCHECK", STAGES).words == ["cerberank", "admin", "probe", "ready"]
    assert inherited(target, "CMD", STAGES).words == ["cerberank", "serve"]
    deployment = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text())
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 10001


def environment(target: str) -> dict[str, str]:
    """The variables of an image."""
    stages = (STAGES["runtime"], STAGES[target])
    instructions = [each for stage in stages for each in stage.instructions if each.keyword == "ENV"]
    return dict(word.split("=", 1) for each in instructions for word in each.words)


@pytest.mark.parametrize("target", TARGETS)
def test_settings_of_the_image_are_settings(target: str) -> None:
    """Every CERBERANK_ variable exists and takes the value; the cluster's GPU variant says the same."""
    variables = environment(target)
    given = {
        name.removeprefix("CERBERANK_").lower(): value for name, value in variables.items() if "CERBERANK_" in name
    }
    assert set(given) <= set(Settings.model_fields)
    Settings.model_validate(given)
    if target == "gpu":
        literals = yaml.safe_load((ROOT / "deploy/kubernetes/gpu/kustomization.yaml").read_text())
        for literal in literals["configMapGenerator"][0]["literals"]:
            name, _, value = literal.partition("=")
            assert variables.get(name, value) == value


@pytest.mark.parametrize(("stage", "instruction"), copies(), ids=lambda each: getattr(each, "name", None))
def test_what_is_copied_exists_and_reaches_the_builder(stage: Stage, instruction: Instruction) -> None:
    """From the context, and not left out by .dockerignore; or from an earlier stage."""
    source = instruction.options.get("from")
    if source is not None:
        assert list(STAGES).index(source) < list(STAGES).index(stage.name)
        return
    for word in instruction.words[:-1]:
        assert (ROOT / word).exists(), word
        assert word.split("/")[0] not in IGNORED


def pins(name: str) -> dict[str, tuple[str, str]]:
    """Each package of a lock: its version, and the rest of its line."""
    joined = (ROOT / "requirements" / name).read_text().replace("\\\n", " ")
    lines = re.findall(r"^([\w.-]+)==(\S+)(.*)$", joined, re.MULTILINE)
    return {package.lower(): (version, rest) for package, version, rest in lines}


def test_an_image_has_one_runtime() -> None:
    """PyTorch is in the lock of the gpu image, and ONNX Runtime in that of the cpu image."""
    locks = {name: (ROOT / "requirements" / f"{name}.txt").read_text() for name in ("serve", "gpu")}
    assert [("\nonnxruntime==" in text, "\ntorch==" in text) for text in locks.values()] == [
        (True, False),
        (False, True),
    ]


def test_what_serves_on_a_processor_is_locked_by_hashes() -> None:
    """The images' lock has the versions of `make serve`, each with a wheel's hash or one for each architecture."""
    served, image = pins("serve.txt"), pins("serve-image.txt")
    assert {name: version for name, (version, _) in image.items()} == {n: v for n, (v, _) in served.items()}
    for name, (_, rest) in (image | pins("build.txt")).items():
        assert 1 <= len(re.findall(r"--hash=sha256:[0-9a-f]{64}", rest)) <= 2, name
    used = [each.value for stage in STAGES.values() for each in stage.instructions if ".txt" in each.value]
    installs = [value for value in used if "pip install" in value]
    assert sum("--require-hashes --requirement" in value for value in installs) == 2
    assert 'PYTHON = "3.11"' in (ROOT / "requirements" / "hashes.py").read_text()
