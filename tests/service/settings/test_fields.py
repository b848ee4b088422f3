from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_models.backends.registry import BACKENDS, Form
from cerberank_service.settings import Settings, SettingsError, read_settings

pytestmark = pytest.mark.usefixtures("no_settings")


def test_every_field_is_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable sets the field of its name, with the field's type."""
    monkeypatch.setenv("CERBERANK_PORT", "9001")
    monkeypatch.setenv("CERBERANK_CHECKPOINT", "some/folder")
    monkeypatch.setenv("CERBERANK_BACKEND", "torch")
    monkeypatch.setenv("CERBERANK_PRECISION", "bf16")
    settings = read_settings()
    assert (settings.port, settings.checkpoint, settings.backend) == (9001, Path("some/folder"), "torch")


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


FASTEST = "the fastest form on the processors that were measured"
BOTH = ("onnx/int8/stage-0.onnx", "onnx/fp16/stage-0.onnx", "model.safetensors")


@pytest.mark.parametrize(
    ("set_", "files", "form"),
    [
        ({}, BOTH, ("onnx", "int8", FASTEST)),
        ({"BACKEND": "auto", "PRECISION": "auto"}, BOTH, ("onnx", "int8", FASTEST)),
        ({}, ("onnx/fp32/stage-0.onnx",), ("onnx", "fp32", "it has no graphs in int8")),
        ({}, ("model.safetensors",), ("torch", "fp32", "it has nothing that onnx runs")),
        (
            {"PRECISION": "bf16"},
            ("model.safetensors",),
            ("torch", "bf16", "the precision as set; it has nothing that onnx runs"),
        ),
        ({"DEVICE": "cuda"}, BOTH, ("torch", "fp16", "torch is the default on a GPU")),
        ({"DEVICE": "cuda:1", "PRECISION": ""}, BOTH, ("torch", "fp16", "torch is the default on a GPU")),
        ({"DEVICE": "cuda"}, BOTH[:2], ("onnx", "fp16", "it has nothing that torch runs")),
        ({"DEVICE": "cuda", "BACKEND": "onnx"}, BOTH, ("onnx", "fp16", "as set")),
        ({"BACKEND": "torch"}, BOTH, ("torch", "fp32", "as set")),
        (
            {"DEVICE": "cuda", "PRECISION": "bf16"},
            BOTH,
            ("torch", "bf16", "the precision as set; torch is the default on a GPU"),
        ),
        ({}, (), ("onnx", "int8", FASTEST)),
    ],
)
def test_the_form_is_what_is_set_or_the_checkpoint_s(
    monkeypatch: pytest.MonkeyPatch, set_: dict[str, str], files: tuple[str, ...], form: tuple[str, str, str]
) -> None:
    """Settings that are empty or absent are as the device usually has them, where the checkpoint has the files."""
    for name, value in set_.items():
        monkeypatch.setenv(f"CERBERANK_{name}", value)
    assert read_settings().form(files) == Form(*form)


@pytest.mark.parametrize(
    ("device", "processors", "threads"),
    [("cpu", 1, 2), ("cpu", 16, 2), ("cpu", 17, 4), ("cuda", 1, 2), ("cuda", 64, 8)],
)
def test_the_threads_that_read_follow_from_the_device(
    monkeypatch: pytest.MonkeyPatch, device: str, processors: int, threads: int
) -> None:
    """They follow from the usable processors too; a GPU leaves all of these to them."""
    monkeypatch.setattr("cerberank_service.settings.fields.usable_processors", lambda: processors)
    assert Settings(device=device).encode_workers == threads


def test_a_model_names_its_revision(tmp_path: Path) -> None:
    """Behind an @, which may also be in the name of a folder."""
    (tmp_path / "a@b").mkdir()
    for model, source in (
        ("owner/name", ("owner/name", None)),
        ("owner/name@v1", ("owner/name", "v1")),
        (str(tmp_path / "a@b"), (str(tmp_path / "a@b"), None)),
    ):
        assert Settings(model=model).source == source


def test_a_precision_that_the_checkpoint_s_backend_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 belongs to torch, and this checkpoint is for ONNX Runtime."""
    monkeypatch.setenv("CERBERANK_PRECISION", "bf16")
    with pytest.raises(ValueError, match="onnx has no precision 'bf16'"):
        read_settings().form(BOTH[:1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "a", "store": "s"}, "goes with neither CERBERANK_CHECKPOINT nor CERBERANK_STORE"),
        ({"model": "a", "checkpoint": "c"}, "goes with neither CERBERANK_CHECKPOINT nor CERBERANK_STORE"),
    ],
)
def test_settings_of_a_model_that_contradict_others_are_refused(given: dict[str, str], message: str) -> None:
    """None of them is left out in silence."""
    with pytest.raises(SettingsError, match=message):
        read_settings(given)
