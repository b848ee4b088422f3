from __future__ import annotations

import subprocess
import sys

import pytest

from cerberank_models.cli import VERBS, main


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """With one line each."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


def test_an_unknown_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the near one."""
    assert main(["evalute"]) == 2
    assert "did you mean 'evaluate'" in capsys.readouterr().err


def test_verbs_for_serving_need_no_torch() -> None:
    """With torch, transformers and onnx made unimportable, serve and rank still load and train says what is missing."""
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx'): sys.modules[name] = None\n"
        "from cerberank_models.cli import main\n"
        "import cerberank_service.serve, cerberank_models.rank_command, cerberank_models.onnx_backend\n"
        "sys.exit(main(['train']))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'cerberank[training]'" in result.stderr
