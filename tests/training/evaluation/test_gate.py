"""The gate of an export: a form that ranks differently is not written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.bounds import PROBABILITIES
from tests.program import program
from tests.tiny import bert_tokenizer, random_ranker
from tests.training.letters import jsonl, questions

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.convert.graphs import export_stages
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.evaluation.gate import GateBounds, GateError, Parity, measure_parity
from cerberank_training.evaluation.variants import Scorer

main = program("export")


def test_a_form_agrees_with_itself(tiny_checkpoint: Path) -> None:
    """fp32 against fp32: every first candidate, no MAP lost; against int8 of random weights, something differs."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    exact, again, int8 = (Scorer.open(checkpoint, kind="onnx", precision=name) for name in ("fp32", "fp32", "int8"))
    same = measure_parity(exact, again, questions())
    assert same == Parity(questions=5, agreement=100.0, map_change=0.0, difference=0.0)
    assert measure_parity(int8, exact, questions()).difference > 0
    with pytest.raises(ValueError, match="positive"):
        measure_parity(exact, again, [])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"agreement": 96.9}, "top-1 agreement 96.9"),
        ({"map_change": -0.6}, "MAP -0.60"),
        ({"map_change": float("nan")}, "MAP"),
        ({"difference": 0.2}, "score difference 0.200"),
    ],
)
def test_every_bound_is_kept(changes: dict[str, float], named: str) -> None:
    """Values just inside the bounds pass; outside, the message says which bound and by how much."""
    good = {"agreement": 97.0, "map_change": 0.5, "difference": 0.15}
    Parity(questions=5, **good).check("int8", GateBounds())
    with pytest.raises(GateError, match=named):
        Parity(questions=5, **(good | changes)).check("int8", GateBounds())


@pytest.fixture(scope="module")
def plain_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a ranker of one stage, which is exported in a third of the time."""
    folder = tmp_path_factory.mktemp("plain") / "checkpoint"
    ranker = random_ranker(body_layers=1, heads=2, exits=(), num_hidden_layers=2)
    export_checkpoint(
        ranker, bert_tokenizer(), folder, card="# random\n", version="1", source="tests", forms=Forms(precisions=())
    )
    return folder


@pytest.fixture(scope="module")
def graphs(plain_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return export_stages(load_ranker(read_checkpoint(plain_checkpoint)), tmp_path_factory.mktemp("graphs"))


@pytest.fixture
def exported(graphs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fp32 graphs of the plain checkpoint are those that were made before."""

    def copied(ranker: RankingNetwork, folder: Path, **_: object) -> list[Path]:
        folder.mkdir(parents=True)
        return [Path(shutil.copy(graph, folder)) for graph in graphs]

    monkeypatch.setattr("cerberank_models.convert.graphs.export_stages", copied)


@pytest.mark.usefixtures("exported")
def test_the_verb_writes_nothing_that_fails(
    plain_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bound that fp32 itself cannot keep leaves no folder."""
    out = tmp_path / "out"
    call = [str(plain_checkpoint), str(out), "--forms", "fp32", "--gate", jsonl(tmp_path)]
    assert main([*call, "--min-agreement", "101"]) == 1
    assert "does not rank like fp32 on 5 questions: top-1 agreement 100.0" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize(
    ("options", "precisions", "has_weights"),
    [
        (["--forms", "fp32"], ("fp32",), True),
        (["--forms", "fp32", "--no-weights"], ("fp32",), False),
        (["--forms", "none"], (), True),
    ],
)
def test_weights_are_kept_unless_told_otherwise(
    options: list[str],
    precisions: tuple[str, ...],
    has_weights: bool,
    plain_checkpoint: Path,
    tmp_path: Path,
    *,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The weights that torch serves on a GPU are in the new folder; --no-weights makes one for ONNX alone; its last
    line says so.

    With the usual bounds fp32 passes the gate.
    """
    given = read_checkpoint(plain_checkpoint)
    call = [str(plain_checkpoint), str(tmp_path / "out"), "--gate", jsonl(tmp_path)]
    assert main([*call, *options]) == 0
    has = ", ".join(["weights"] * has_weights + [f"ONNX {each}" for each in precisions])
    assert f"{tmp_path / 'out'} has {has}; next: " in capsys.readouterr().err.splitlines()[-1]
    exported = read_checkpoint(tmp_path / "out")
    assert exported.precisions == precisions
    assert (exported.weights is not None) == has_weights
    assert set(exported.golden[0].scores) == {"fp32", *precisions}
    assert exported.golden[0].scores["fp32"] == pytest.approx(given.golden[0].scores["fp32"], abs=PROBABILITIES)
