from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerberank_models.backends.registry import BACKENDS
from cerberank_service.settings import Settings, SettingsError, read_settings
from cerberank_service.settings.environment import markdown_table

pytestmark = pytest.mark.usefixtures("no_settings")


def test_every_field_is_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable sets the field of its name, with the field's type."""
    monkeypatch.setenv("CERBERANK_PORT", "9001")
    monkeypatch.setenv("CERBERANK_CHECKPOINT", "some/folder")
    monkeypatch.setenv("CERBERANK_BACKEND", "torch")
    monkeypatch.setenv("CERBERANK_PRECISION", "bf16")
    settings = read_settings()
    assert (settings.port, settings.checkpoint, settings.backend) == (9001, Path("some/folder"), "torch")


def test_defaults_are_the_ones_that_the_issue_states() -> None:
    """Port 8000, int8 on ONNX, 10,000 candidates, 4 MB."""
    settings = read_settings()
    assert (settings.port, settings.backend, settings.precision) == (8000, "onnx", "int8")
    assert (settings.max_candidates, settings.max_body_bytes) == (10_000, 4 * 1024 * 1024)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_precision_that_the_backend_lacks_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Each backend takes all of its own; another one's is refused with the names of those that there are."""
    monkeypatch.setenv("CERBERANK_BACKEND", backend)
    own = BACKENDS[backend].precisions
    for precision in own:
        monkeypatch.setenv("CERBERANK_PRECISION", precision)
        assert read_settings().precision == precision
    others = {each for spec in BACKENDS.values() for each in spec.precisions} - set(own)
    for precision in (*others, "fp64"):
        monkeypatch.setenv("CERBERANK_PRECISION", precision)
        with pytest.raises(SettingsError, match=f"CERBERANK_PRECISION='{precision}'.*only {', '.join(own)}"):
            read_settings()


def test_an_unknown_backend_is_named_with_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message about the backend, none about the precision that it might have had."""
    monkeypatch.setenv("CERBERANK_BACKEND", "tensorflow")
    with pytest.raises(SettingsError, match="only onnx, torch") as caught:
        read_settings()
    assert "PRECISION" not in str(caught.value)


def test_settings_do_not_change() -> None:
    """They are read once; nothing can alter them afterwards."""
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]


def test_aliases_are_a_set_of_names() -> None:
    """Blanks and empty names are ignored."""
    assert Settings(aliases=" rerank-v3.5 ,, a").alias_names == {"rerank-v3.5", "a"}


def test_the_readme_table_has_a_row_for_every_setting() -> None:
    """`python -m cerberank_service.settings` prints each variable once, with its meaning."""
    command = [sys.executable, "-m", "cerberank_service.settings"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == markdown_table() + "\n"
    for name, field in Settings.model_fields.items():
        assert printed.count(f"`CERBERANK_{name.upper()}`") == 1
        assert field.description is not None
        assert field.description in printed


@pytest.mark.parametrize(
    ("set_", "backend", "precision"),
    [
        ({}, "onnx", "int8"),
        ({"DEVICE": "cuda"}, "torch", "fp16"),
        ({"DEVICE": "cuda:1", "PRECISION": ""}, "torch", "fp16"),
        ({"DEVICE": "cuda", "BACKEND": "onnx"}, "onnx", "fp16"),
        ({"BACKEND": "torch"}, "torch", "fp32"),
        ({"DEVICE": "cuda", "PRECISION": "bf16"}, "torch", "bf16"),
    ],
)
def test_one_setting_is_enough_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch, set_: dict[str, str], backend: str, precision: str
) -> None:
    """A backend and a precision that are not set, or empty, are those that the device usually has."""
    for name, value in set_.items():
        monkeypatch.setenv(f"CERBERANK_{name}", value)
    settings = read_settings()
    assert (settings.backend, settings.precision) == (backend, precision)


def test_an_imported_model_is_served_in_its_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """fp32 on a processor, unless int8 is asked for by name."""
    assert read_settings({"model": "a/b"}).precision == "fp32"
    assert read_settings().precision == "int8"
    monkeypatch.setenv("CERBERANK_CHECKPOINT", "")  # as templates leave a variable out
    monkeypatch.setenv("CERBERANK_MODEL_REVISION", "")
    monkeypatch.setenv("CERBERANK_MODEL", "a/b")
    monkeypatch.setenv("CERBERANK_DEVICE", "cuda")
    assert (read_settings().precision, read_settings({"model": "c"}).model) == ("fp16", "c")
    monkeypatch.setenv("CERBERANK_DEVICE", "cpu")
    monkeypatch.setenv("CERBERANK_PRECISION", "int8")
    assert read_settings().precision == "int8"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "a", "store": "s"}, "goes with neither CERBERANK_CHECKPOINT nor CERBERANK_STORE"),
        ({"model": "a", "checkpoint": "c"}, "goes with neither CERBERANK_CHECKPOINT nor CERBERANK_STORE"),
        ({"model_revision": "main"}, "CERBERANK_MODEL_REVISION needs CERBERANK_MODEL"),
    ],
)
def test_settings_of_a_model_that_contradict_others_are_refused(given: dict[str, str], message: str) -> None:
    """None of them is left out in silence."""
    with pytest.raises(SettingsError, match=message):
        read_settings(given)
