from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.program import program
from tests.tiny import bert_tokenizer

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands import shape as command
from cerberank_models.convert.random_weights import SHAPES

main = program("checkpoint random")

SMALL = ("--max-length", "48")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoders with few weights."""
    sizes = {"width": 32, "embedding": 32, "attention_heads": 4, "vocabulary": 300}
    monkeypatch.setattr(command, "SHAPES", {name: replace(shape, **sizes) for name, shape in SHAPES.items()})


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    bert_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def test_the_notation_of_the_paper_gives_the_shape(
    tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B2 2H1 with an exit; the output says that the weights are random."""
    out = tmp_path / "out"
    call = ["B2", "2H1", str(out), *SMALL, "--exits", "1", "--tokenizer", tokenizer]
    assert main(call) == 0
    checkpoint = read_checkpoint(out)
    assert f"{out}: random-b2-2h1-electra-base (B2 2H1, 2 stages), random weights" in capsys.readouterr().out
    assert (str(checkpoint.config.architecture), len(checkpoint.config.stages)) == ("B2 2H1", 2)
    assert (checkpoint.config.transformer.hidden_size, checkpoint.config.encoding.max_length) == (32, 48)
    assert checkpoint.config.architecture.classifier_activation == "gelu"  # ELECTRA's, whose shape is the default


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["B3", "2H1", "--exits", "9"], "exits must come after"),
        (["B3", "0H0"], "needs an exit after its last layer"),
        (["B3", "2H1", "--max-length", "600"], "exceeds the encoder's 512 positions"),
        (["B3", "2H1", "--forms", "fp8"], "unknown precision fp8"),
        (["B3", "2H1", "--tokenizer", "nowhere.json"], "nowhere.json does not exist; name a tokenizer.json"),
        (["B3", "2H1", "--tokenizer", __file__], "is not a tokenizer"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(
    arguments: list[str], message: str, tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the reason, and no folder."""
    body, heads, *options = arguments
    out = tmp_path / "out"
    usual = [*SMALL, "--tokenizer", tokenizer]
    chosen = dict(zip(usual[::2], usual[1::2], strict=True)) | dict(zip(options[::2], options[1::2], strict=True))
    assert main([body, heads, str(out), *(word for option in chosen.items() for word in option)]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_the_shape_of_a_family_that_is_not_berts(tokenizer: str, tmp_path: Path) -> None:
    """ModernBERT's feed-forward keeps its proportion, and its classifier has no bias."""
    out = tmp_path / "out"
    call = ["B3", "2H1", str(out), *SMALL, "--like", "modernbert-base", "--exits", "1", "--tokenizer", tokenizer]
    assert main(call) == 0
    config = read_checkpoint(out).config
    assert (config.transformer.family, config.transformer.intermediate_size) == ("modernbert", 48)
    assert not config.architecture.classifier_bias


@pytest.mark.parametrize("shape", [("11", "3H1"), ("B11", "3"), ("Bx", "3H1"), ("B11", "B11")])
def test_other_notations_are_a_wrong_call(
    shape: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and an example."""
    assert main([*shape, str(tmp_path / "out")]) == 2
    assert "such as" in capsys.readouterr().err
