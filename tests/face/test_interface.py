"""The package `cerberank`: public names, and what importing them loads."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path

import cerberank
import pytest


def test_every_public_name_is_there() -> None:
    """`__all__` and `dir` have the same names, each of which is defined."""
    assert sorted(cerberank.__all__) == dir(cerberank)
    assert all(getattr(cerberank, name) is not None for name in cerberank.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Rankr'"):
        cerberank.Rankr  # noqa: B018


def test_documented_errors_are_public(tmp_path: Path) -> None:
    """Those in the docstrings of public names, so that they are caught without a private import."""
    documented: set[str] = set()
    for public in (getattr(cerberank, name) for name in cerberank.__all__):
        members = vars(public).values() if inspect.isclass(public) else ()
        texts = [each.__doc__ or "" for each in (public, *members)]
        documented |= {name for text in texts for name in re.findall(r"\b[A-Z]\w*Error\b", text)}
    assert {"CheckpointError", "StoreError"} <= documented
    assert documented - vars(builtins).keys() <= set(cerberank.__all__)
    with pytest.raises(cerberank.StoreError, match="has no label stable"):
        cerberank.Store(tmp_path).pull("mini", tmp_path / "out")
    with pytest.raises(cerberank.CheckpointError, match="is not a checkpoint"):
        cerberank.Ranker.load(tmp_path / "none")
    with pytest.raises(cerberank.SourceError, match=r"has no config\.json"):
        cerberank.Ranker.load(tmp_path)


def test_importing_the_public_names_loads_no_engine() -> None:
    """Neither torch nor onnxruntime, transformers or fastapi, though every name is imported."""
    heavy = ("torch", "onnxruntime", "transformers", "fastapi")
    script = f"import sys\nfrom cerberank import *\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_wrong_option_of_a_training_is_told_before_its_libraries_are_imported() -> None:
    """They take some seconds."""
    script = "import sys\nfrom cerberank.cli import main\nprint(main(['train', 'distil', '--strategy', 'wrong']))\n"
    script += "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["2", "[]"]


def test_a_missing_library_names_its_extra() -> None:
    """The message of the error says what to install."""
    calls = {
        "from cerberank import evaluate": "needs pyarrow; run in the checkout: pip install '.[training]'",
        "cerberank.Ranker.load()": "needs onnxruntime; run in the checkout: pip install '.[serve]'",
        "cerberank.Ranker.load(backend='torch')": "needs torch; run in the checkout: pip install '.[torch]'",
    }
    script = (
        "import sys, cerberank\nsys.modules.update(dict.fromkeys(('pyarrow', 'onnxruntime', 'torch')))\n"
        f"for call in {list(calls)}:\n    try: exec(call)\n    except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for shown, message in zip(done.stdout.splitlines(), calls.values(), strict=True):
        assert shown.endswith(message)
