"""`cerberank train pretrain`: what it writes and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.papers.pretraining.documents import articles, paragraphs
from tests.papers.pretraining.networks import save_base
from tests.program import program, replaced

from cerberank_training.learning.settings import StudentShape
from cerberank_training.learning.student_network import build_student
from cerberank_training.runs.base import open_base
from cerberank_training.runs.tracking.log_file import read_log


def options(folder: Path, out: str, *, family: str = "bert", steps: int = 4, every: int = 2) -> list[str]:
    base = folder / family
    if not base.is_dir():
        save_base(family, base)
    documents, dev = articles(folder), articles(folder / "dev", sizes=(4, 3, 5))
    return [
        *("--objective", "all", "--base", str(base), "--documents", documents, "--dev", dev, "--dev-groups", "3"),
        *(
            "--out",
            str(folder / out),
            "--steps",
            str(steps),
            "--examples-per-step",
            "10",
            "--warmup",
            "1",
            "--device",
            "cpu",
        ),
        *("--learning-rate", "1e-3", "--max-length", "48", "--evaluate-every", str(every), "--precision", "fp32"),
    ]


def logged(out: Path) -> set[str]:
    """The names of all figures of a run."""
    return set().union(*read_log(out / "log.jsonl"))


def test_electra_learns_and_a_student_starts_from_the_folder(tmp_path: Path) -> None:
    """ELECTRA with a new generator; a student starts from it."""
    assert program("train pretrain")(options(tmp_path, "out", family="electra")) == 0
    written = load_file(tmp_path / "out" / "model.safetensors")
    before = load_file(tmp_path / "electra" / "model.safetensors")
    name = "electra.encoder.layer.0.output.dense.weight"
    assert not torch.equal(written[name], before[name])
    shape = StudentShape(name="s", body_layers=1, heads=1, max_length=32, question_length=12, context=True)
    student = build_student(shape, open_base(str(tmp_path / "out")), seed=1, dropout=0.0)
    table = written["electra.embeddings.token_type_embeddings.weight"]
    assert len(table) == 3
    assert torch.equal(student.ranker.embeddings.types.weight, table)


def plain(path: Path, count: int) -> str:
    """Articles as plain text: a sentence a line."""
    texts = (paragraphs(number, [4, 5, 4]) for number in range(count))
    path.write_text("\n\n\n".join("\n\n".join("\n".join(each) for each in text) for text in texts))
    return f"text:{path}"


def test_ssp_alone_on_plain_text_is_trained_without_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With weight 0 nothing is masked, and no other loss is logged; the whole table of token types is drawn anew."""
    documents, dev = plain(tmp_path / "train.txt", 4), plain(tmp_path / "dev.txt", 3)
    asked = replaced(options(tmp_path, "out", steps=2), "--documents", documents, "--dev", dev)
    asked += ["--mlm-weight", "0", "--token-types", "anew"]
    assert program("train pretrain")(asked) == 0
    assert "loss/mlm" not in logged(tmp_path / "out")
    assert "4 documents" in capsys.readouterr().err
    name = "bert.embeddings.token_type_embeddings.weight"
    table, old = (load_file(tmp_path / folder / "model.safetensors")[name] for folder in ("out", "bert"))
    assert len(table) == 3
    assert not any(torch.allclose(table[row], old[row], atol=2e-3) for row in range(len(old)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--examples-per-step", "6"], "--examples-per-step must be a multiple of 5, not 6"),
        (["--ssp-weight", "0", "--mlm-weight", "0"], "--ssp-weight must be above 0 if the other losses"),
    ],
)
def test_what_no_run_could_do_is_refused(
    changed: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and an exit code."""
    code = program("train pretrain")(replaced(options(tmp_path, "out", steps=1), *changed))
    error = capsys.readouterr().err.splitlines()[-1]
    assert code == (2 if error.endswith("See cerberank train pretrain --help") else 1)
    assert error.startswith("cerberank train pretrain: ")
    assert message in error
