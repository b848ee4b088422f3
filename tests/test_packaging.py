"""The wheel holds what it should, and the service installs without torch."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest
from tests.environments import clean_variables, fresh_environment, listed
from tests.service.observe import wait_until

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "cerberank",
    "models/cerberank_models",
    "service/cerberank_service",
    "training/cerberank_training",
    "training/cerberank_papers",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from an unpacked source distribution of the checkout, as an index would."""
    folder = tmp_path_factory.mktemp("packaging")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "sdist"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    subprocess.run([*command[:-1], "wheel"], cwd=source, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_typed_packages_and_the_bundled_checkpoint(wheel: Path) -> None:
    """All files of git that belong to it, neither the benchmarks nor the tests, both licences, in less than 60 MB."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    listed = subprocess.run(["git", "ls-files", *SOURCES], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert {name[name.index("cerberank") :] for name in listed.splitlines()} <= names
    others = {name.partition("/")[0] for name in names} - {Path(source).name for source in SOURCES}
    assert [name.endswith(".dist-info") for name in others] == [True]
    assert all(f"{Path(source).name}/py.typed" in names for source in SOURCES)
    assert "License-Expression: Apache-2.0 AND CC-BY-SA-4.0" in metadata
    assert sum("/licenses/" in name for name in names) == 2
    assert wheel.stat().st_size < 60e6


def test_an_installed_wheel_serves_the_bundled_checkpoint_anywhere(wheel: Path, tmp_path: Path) -> None:
    """In an environment of the serving lock alone, in an empty folder: `cerberank serve`, a question, its answer."""
    programs = fresh_environment(tmp_path / "environment", wheel, listed("serve.txt"))
    folder, log = tmp_path / "elsewhere", tmp_path / "log"
    folder.mkdir()
    variables = clean_variables() | {"CERBERANK_PORT": "0"}
    with log.open("wb") as output:
        command = [str(programs / "cerberank"), "serve"]
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or "running on" in log.read_text(), seconds=60)
        address = re.search(r"running on (http://[\d.]+:\d+)", log.read_text())
        assert address is not None, log.read_text()
        question = {"question": "How tall is it?", "candidates": ["It opened in 1889.", "It is 330 metres tall."]}
        wait_until(lambda: httpx.get(f"{address[1]}/health/ready").status_code == 200, seconds=60)
        answer = httpx.post(f"{address[1]}/v1/rank", json=question).json()
    finally:
        process.terminate()
        process.wait()
    assert answer["results"][0]["index"] == 1
    assert not list(folder.iterdir())


def test_no_text_installs_a_name_that_anybody_could_register() -> None:
    """The package is in no index, so that `pip install cerberank` would fetch whatever somebody else puts there."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    texts = [ROOT / name for name in listed.splitlines() if not name.startswith("tests/")]
    names_it = re.compile(r"install .*['\" ]cerberank(\[|['\"` ]|$)")
    lines = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in texts
        if path.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".html", ".js", ""} and path.is_file()
        for line in path.read_text(encoding="utf-8").splitlines()
        if names_it.search(line) and "--no-index" not in line
    ]
    assert lines == []


def test_finding_verbs_loads_no_heavy_library() -> None:
    """`cerberank --help` reads four tuples: not even numpy or pydantic."""
    script = (
        "import sys\nfrom cerberank.cli import main\nmain(['--help'])\n"
        "print([name for name in ('torch', 'numpy', 'pydantic', 'tokenizers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_importing_the_app_loads_no_heavy_library() -> None:
    """Neither torch nor transformers nor onnx, which the serving environment does not have; of safetensors, which it
    has for first stages, not the part that imports torch.
    """
    script = (
        "import sys, cerberank_service.serve, cerberank_models.backends.onnx_backend\n"
        "print([name for name in ('torch', 'transformers', 'onnx', 'safetensors.torch') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_serving_lock_is_light() -> None:
    """No torch, no CUDA, no second ONNX Runtime in the serving lock; no CUDA in any."""
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text().lower().replace("nvidia-ml-py==", "")  # reads figures through the driver; no CUDA
        assert not any(word in text for word in ("nvidia", "cuda", "triton==", "onnxruntime-gpu", "+cpu", "://"))
    assert "torch" not in (ROOT / "requirements" / "serve.txt").read_text().replace("no torch", "")
