"""From teachers to a served answer, verb by verb, on tiny random networks with three tokenizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl
from tools.process import serving

from cerberank_models.checkpoint.folder import read_checkpoint

FAMILIES = ("albert", "roberta", "electra")
SMALL = ["--max-length", "32", "--question-length", "12", "--examples-per-step", "2"]


def call(verb: Callable[[list[str]], int], *arguments: object) -> None:
    assert verb([str(argument) for argument in arguments]) == 0


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Five questions as generic JSONL."""
    return jsonl(tmp_path)


def test_the_papers_recipe_from_teachers_to_an_answer(data: str, tmp_path: Path) -> None:
    """Three teachers by TANDA, scored groups, one head a teacher, exits, a tuned schedule, a push, a pull."""
    bases = {family: save_cross_encoder(family, tmp_path / "bases" / family) for family in FAMILIES}
    common = ["--steps", 2, "--examples-per-step", 2, "--evaluate-every", 1, "--max-length", 32]
    common += ["--dev", dev_jsonl(tmp_path)]
    for family, base in bases.items():
        for stage, origin in (("transferred", base), ("adapted", tmp_path / family / "transferred")):
            out = tmp_path / family / stage
            call(program("train teach"), "--base", origin, "--train", data, "--out", out, "--device", "cpu", *common)
    groups = tmp_path / "groups.jsonl.gz"
    call(program("data sample"), "--recipe", "electra-base-b11-3h1", "--train", data, "--questions", 8, "--out", groups)
    for family in FAMILIES:
        teacher = tmp_path / family / "adapted"
        call(program("data score"), tmp_path / f"{family}.scores", "--teacher", teacher, "--data", f"jsonl:{groups}")
    run = tmp_path / "run"
    teachers = [part for family in FAMILIES for part in ("--teacher", tmp_path / f"{family}.scores")]
    call(
        program("train distil"),
        *("--recipe", "electra-base-b11-3h1", "--base", bases["electra"], "--groups", f"jsonl:{groups}"),
        *("--dev", dev_jsonl(tmp_path)),
        *(*teachers, "--body-layers", 3, "--exits", "1", "--steps", 4, "--evaluate-every", 2, *SMALL, "--out", run),
        "--forms",
        "none",
    )
    assert str(read_checkpoint(run / "checkpoint").config.architecture) == "B3 3H1"
    assert "`B3 3H1`" in (run / "checkpoint" / "README.md").read_text()
    served = tmp_path / "served"
    call(program("export"), run / "checkpoint", served, "--forms", "fp32", "--version", "1")
    call(
        program("evaluate"),
        *("--checkpoint", served, "--data", data, "--precision", "fp32", "--schedule", "0.3"),
    )
    tuned = tmp_path / "tuned"
    call(
        program("train tune"),
        *(served, "--data", data, "--precision", "fp32", "--trials", 5, "--grid", "0,0.5"),
        *("--max-cost", 0.9, "--version", 2, "--out", tuned),
    )
    call(program("store push"), tuned, tmp_path / "store", "--label", "stable")
    name = read_checkpoint(tuned).config.name
    call(program("store pull"), tmp_path / "store", name, tmp_path / "pulled")
    with serving(tmp_path / "pulled", tmp_path / "log", CERBERANK_PRECISION="fp32") as service:
        body = {"question": "what is a ?", "candidates": ["a is a city", "b is a city", "c is a city"]}
        answer = httpx.post(f"{service.url}/v1/rank", json=body).raise_for_status().json()
    assert (answer["model"], answer["version"]) == (name, "2")
    assert len(answer["results"]) == 3
    assert any(answer["drop_schedule"])
