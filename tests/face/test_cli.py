"""The program: its help, wrong calls, missing libraries, and errors of commands."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cerberank.cli import COMMANDS, COMPLETION, GROUPS, Command, main
from pydantic import BaseModel
from tools.reference import COMMANDS as COMMAND_PAGES
from tools.reference import command_pages

from cerberank_models import __version__
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands import rank as rank_command


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_help_is_one_screen_and_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """The top level has its own commands and a line for each group, which lists the group's commands in their order."""
    top = shown(capsys)
    assert top.count("\n") <= 40
    for command in COMMANDS:
        assert command.name.rpartition(" ")[2] in top, command.name
    for group in filter(None, GROUPS):
        commands = shown(capsys, group).partition("Commands")[2]
        words = re.findall(r"^│ (\S+)", commands, re.MULTILINE)
        assert set(words) == {command.name.split()[1] for command in COMMANDS if command.group == group}
        assert f": {', '.join(words)}." in GROUPS[group]


def test_the_pages_of_commands_are_up_to_date() -> None:
    """docs/commands has the output of `python -m tools.reference`."""
    pages = command_pages()
    assert set(pages) == set(COMMAND_PAGES.iterdir())
    for path, page in pages.items():
        assert path.read_text() == page, f"{path.name}: run python -m tools.reference"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evalute"], 'Did you mean "cerberank evaluate"?'),
        (["store", "psh"], 'Did you mean "cerberank store push"?'),
        (["pull", "store"], 'Did you mean "cerberank store pull"?'),
        (["help"], "There are admin, checkpoint, data"),
        (["results", "--data", "x"], "There are compare, ensemble"),
        (["eval", "calibrate"], '"cerberank eval calibrate" is now "cerberank checkpoint calibrate". See'),
        (["server", "keys", "list"], '"cerberank server keys" is now "cerberank admin keys". See'),
        (["server", "models"], '"cerberank server models" is now "cerberank admin models". See'),
        (["eval", "--help"], '"cerberank eval" is now "cerberank results". See'),
        (["store", "push"], "CHECKPOINT is missing. See cerberank store push --help"),
        (
            ["train", "sweep", "cerberus", "--recipe=tiny", "--base=b", "--dev=d", "--teacher=t"],
            "--test is missing. See ",
        ),
        (["store", "push", "a", "b", "--label", "newest"], "Choose from"),
        (["admin", "load", "m"], "'m' is not MODEL@VERSION"),
    ],
)
def test_a_wrong_call_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what to write instead."""
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_what_a_library_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The place and the problem of pydantic's error, without its list, its input and its address."""

    class Shape(BaseModel):
        heads: int

    monkeypatch.setattr("cerberank_models.commands.store.read_checkpoint", lambda path, **_: Shape.model_validate({}))
    assert main(["store", "push", "a", f"file://{tmp_path}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("cerberank store push: heads: Field required")
    assert error.count("\n") == 1
    assert "pydantic" not in error


def test_a_shell_completes_commands_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a script that bash takes, for the commands whose libraries are installed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert main([COMPLETION]) == 0
    path = Path(capsys.readouterr().out.partition(" is written")[0])
    assert path.is_relative_to(tmp_path)
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert all(option in path.read_text() for option in ("--top-k", "--body-layers"))
    assert not Command(name="x", target="nowhere:x", help="").is_installed


def test_no_command_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The help is shown, the exit code is 2."""
    assert main([]) == 2
    assert "Usage: cerberank" in capsys.readouterr().out


def test_python_runs_the_package_as_the_program() -> None:
    """`python -m cerberank --version` prints the versions of the distribution and of the bundled model."""
    command = [sys.executable, "-m", "cerberank", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert (
        printed == f"cerberank {__version__}, bundled model cerberank-mini {read_checkpoint(BUNDLED).manifest.version}"
    )


def test_an_interrupted_command_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C gives exit code 130 and no traceback."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rank_command, "read_line", interrupt)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    assert main(["rank"]) == 130
    assert capsys.readouterr().err == ""


def test_a_missing_library_names_the_extra_that_brings_it(tmp_path: Path) -> None:
    """One line that can be copied, rather than a traceback; so is a wrong word, with the smallest installation, too."""
    (tmp_path / "x.jsonl").write_text('{"question": "q", "candidates": ["a"]}\n')
    calls = {
        "rank x.jsonl": "cerberank rank: 'onnxruntime' is not installed; run in the checkout: pip install '.[serve]'",
        "serve": "cerberank serve: 'fastapi' is not installed; run in the checkout: pip install '.[serve]'",
        "evaluate --data jsonl:x": "run in the checkout: pip install '.[training]'",
        "train distil": "run in the checkout: pip install '.[training]'",
        "store list memory://x": "'fsspec' is not installed; run in the checkout: pip install '.[url]'",
        "trian foo": 'cerberank: Unknown command "trian". Did you mean "cerberank train"? See cerberank --help',
    }
    absent = dict.fromkeys(("fastapi", "torch", "transformers", "onnxruntime", "pyarrow", "scipy", "fsspec"))
    script = (
        f"import sys\nsys.modules.update({absent})\nfrom cerberank.cli import main\n"
        f"for call in {list(calls)}: print(main(call.split()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(calls), "a message of one line for each call"
    for message, shown, code in zip(calls.values(), lines[::2], lines[1::2], strict=True):
        assert shown.endswith(message)
        assert code == ("2" if "Unknown command" in message else "1")


@pytest.mark.parametrize(("variable", "value"), [("ALL_PROXY", "socks5://proxy:1"), ("NO_PROXY", "localhost,[::1]")])
def test_a_proxy_that_a_library_cannot_use_is_one_line(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever a library makes a client of httpx, as huggingface_hub does."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setattr(rank_command, "read_line", lambda *_: httpx.Client())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    assert main(["rank"]) == 1
    assert capsys.readouterr().err.startswith(f"cerberank rank: the proxy of {variable} cannot be used: ")


def test_an_error_that_nobody_expects_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is not told as if it were a wrong value; a module of this project that is missing is a bug too."""

    def broken(*_: object) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr(rank_command, "read_line", broken)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    with pytest.raises(AttributeError):
        main(["rank"])

    def lacking(*_: object) -> None:
        raise ModuleNotFoundError(name="cerberank_models.gone")

    monkeypatch.setattr(rank_command, "read_line", lacking)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    with pytest.raises(ModuleNotFoundError):
        main(["rank"])
