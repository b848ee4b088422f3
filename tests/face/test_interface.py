"""The package `cerberank`: public names, and what importing them loads."""

from __future__ import annotations

import subprocess
import sys

import cerberank
import pytest


def test_every_public_name_is_there() -> None:
    """`__all__` and `dir` have the same names, each of which is defined."""
    assert sorted(cerberank.__all__) == dir(cerberank)
    assert all(getattr(cerberank, name) is not None for name in cerberank.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Rankr'"):
        cerberank.Rankr  # noqa: B018


def test_importing_the_public_names_loads_no_engine() -> None:
    """Neither torch nor onnxruntime, transformers or fastapi, though every name is imported."""
    heavy = ("torch", "onnxruntime", "transformers", "fastapi")
    script = f"import sys\nfrom cerberank import *\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("library", "code", "extra"),
    [
        ("pyarrow", "from cerberank import evaluate", "training"),
        ("onnxruntime", "from cerberank import Ranker; Ranker.load()", "serve"),
        ("torch", "from cerberank import Ranker; Ranker.load(backend='torch')", "torch"),
    ],
)
def test_a_missing_library_names_its_extra(library: str, code: str, extra: str) -> None:
    """The last line of the traceback says what to install."""
    script = f"import sys\nsys.modules[{library!r}] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(f"needs {library}: pip install 'cerberank[{extra}]'")
