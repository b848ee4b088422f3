from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from cerberank.cli import VERBS, main

from cerberank_models import __version__
from cerberank_models.commands import rank as rank_command

ORDER = (
    "serve admin probe keys rank import weights first-stage embed shape pretrain teach mine sample score distil "
    "grid runs pairwise strategies evaluate compare table average ensemble tune accelerate export card push pull "
    "list mlflow label"
)


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """With one line each, from all packages, in the order in which they are used."""
    assert main(["--help"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [name for name, _ in lines] == ORDER.split()
    assert all(help_ for _, help_ in lines)


def test_help_separates_each_verb_from_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Two blanks after the longest name too, so that all descriptions begin in one column."""
    main(["--help"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    (begin,) = {line.index(line.split(maxsplit=1)[1]) for line in lines}
    assert all(line[begin - 2 : begin] == "  " for line in lines)


def test_every_verb_can_be_called() -> None:
    """Each target is a function of its module."""
    for verb in VERBS.values():
        module, _, function = verb.target.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), verb.name


def test_an_unknown_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the near one."""
    assert main(["evalute"]) == 2
    assert "did you mean 'evaluate'" in capsys.readouterr().err


def test_no_verb_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The usage is shown, the exit code is 2."""
    assert main([]) == 2
    assert "usage" in capsys.readouterr().out


def test_python_runs_the_package_as_the_program() -> None:
    """`python -m cerberank --version` prints the distribution's version."""
    command = [sys.executable, "-m", "cerberank", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == f"cerberank {__version__}\n"


def test_an_interrupted_verb_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C gives exit code 130 and no traceback."""

    def interrupt(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(rank_command, "main", interrupt)
    assert main(["rank"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("verb", "missing", "extra"),
    [
        ("rank", "onnxruntime", "onnx-cpu"),
        ("rank", "torch", "torch"),
        ("serve", "fastapi", "serve"),
        ("evaluate", "httpx", "training"),
        ("score", "pyarrow", "training"),
        ("score", "ray", "ray"),
        ("push", "fsspec", "url"),
    ],
)
def test_a_missing_library_names_the_extra_that_brings_it(
    verb: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that can be copied, rather than a traceback."""

    def lacking(name: str) -> None:
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr("cerberank.cli.import_module", lacking)
    assert main([verb]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"'{missing}'" in message
    assert f"pip install 'cerberank[{extra}]'" in message


def test_a_fault_of_our_own_is_not_called_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of this project that is not found is a bug, with its traceback."""

    def lacking(name: str) -> None:
        raise ModuleNotFoundError(name="cerberank_models.gone")

    monkeypatch.setattr("cerberank.cli.import_module", lacking)
    with pytest.raises(ModuleNotFoundError):
        main(["rank"])


def test_verbs_for_serving_need_no_torch() -> None:
    """With torch, transformers and onnx made unimportable, serve and rank load and distil says what is missing."""
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx'): sys.modules[name] = None\n"
        "from cerberank.cli import main\n"
        "import cerberank_service.serve, cerberank_models.commands.rank, cerberank_models.backends.onnx_backend\n"
        "sys.exit(main(['distil']))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'cerberank[training]'" in result.stderr
