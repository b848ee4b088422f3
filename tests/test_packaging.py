"""The wheel holds what it should, and the service installs without torch."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_holds_four_typed_packages(tmp_path: Path) -> None:
    """Built offline from the checkout; a mistyped path would give an empty wheel without an error."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for package in ("cerberank_models", "cerberank_service", "cerberank_training", "cerberank_benchmarks"):
        assert f"{package}/py.typed" in names
        assert f"{package}/__init__.py" in names
    assert "cerberank_service/http/static/playground.html" in names
    # The probe of 2 KB, and no checkpoint's graph.
    assert [name for name in names if name.endswith(".onnx")] == ["cerberank_models/backends/int8_products.onnx"]


def test_finding_verbs_loads_no_heavy_library() -> None:
    """`cerberank --help` reads four tuples: not even numpy or pydantic."""
    script = (
        "import sys\nfrom cerberank_models.cli import main\nmain(['--help'])\n"
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
