"""The summary and the card of a run are made from its record alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cerberank_models.checkpoint.model_card import UNSTATED
from cerberank_training.runs.record import Call, RunRecord, software
from cerberank_training.runs.summary import dev_map, dev_metric, run_card, summary_of

SETTINGS = {"objective": {"strategy": "cerberus"}, "train": {"seed": 7}}
TEACHER = {"name": "electra", "revision": "e" * 64, "dev_map": 70.5, "dev": "asnq:dev.tsv", "questions": 50}


def record(**names: Any) -> RunRecord:
    names = {"train": "jsonl:/home/me/train.jsonl", "dev": "jsonl:/home/me/dev.jsonl", "base": "encoder"} | names
    return RunRecord(
        verb="distil",
        result="checkpoint",
        bound={
            "base": {"sha256": {"model.safetensors": "b" * 64}},
            "data": {"sha256": {"train.jsonl": "d" * 64}},
            "dev": {"sha256": {"dev.jsonl": "f" * 64}},
            "settings": SETTINGS,
            "steps": 20,
            "patience": 2,
        },
        free={"recipe": "mini", "names": names, "device": "cpu"},
        calls=(
            Call(at="t", software={"torch": "1"}),
            Call(at="u", software=software()),
            Call(at="v", software={"torch": "1"}),
        ),
        results={"reached": 15, "best": 61.234, "start": 50.0, "questions": 300},
    )


def test_the_card_tells_what_made_the_checkpoint() -> None:
    """Names without folders, contents by hash, teachers with their own figures, every software, all settings."""
    summary = summary_of(record(), teachers=[TEACHER, {"name": "roberta", "revision": "a" * 64}])
    card = run_card(summary, name="mine", architecture="B5 3H1", terms="CC0")
    for line in (
        "# mine",
        "| base | `encoder` (bbbbbbbb) |",
        "| data | `jsonl:train.jsonl` (dddddddd) |",
        "| chosen on | `jsonl:dev.jsonl` (ffffffff), best MAP 61.23 |",
        "| strategy | `cerberus`, teachers: `electra` (eeeeeeee), `roberta` (aaaaaaaa) |",
        "| seed | 7 |",
        "| steps | 15 of 20, then without gain |",
        "| `jsonl:dev.jsonl` | 300 | MAP | 61.23 |",
        "| `asnq:dev.tsv` | 50 | MAP of the teacher `electra` | 70.50 |",
        "CC0",
    ):
        assert line in card.splitlines(), line
    (row,) = [line for line in card.splitlines() if line.startswith("| software |")]
    assert row.startswith("| software | torch 1; python 3")
    assert row.count("torch") == 2
    assert "/home/me" not in card + json.dumps(summary)
    assert json.loads(card.split("```json")[1].split("```")[0])["train"] == {"seed": 7}
    assert summary["dev_map_at_start"] == 50.0
    assert UNSTATED in run_card(summary, name="mine", architecture="B5 3H1", terms=None)


def test_a_base_of_the_hub_has_its_commit() -> None:
    """And groups that were sampled beforehand are the data."""
    summary = summary_of(record(commit="c0ffee", groups="jsonl:groups.jsonl.gz"), teachers=[])
    card = run_card(summary, name="mine", architecture="B5 3H1", terms=None)
    assert "| base | `encoder` (bbbbbbbb), commit `c0ffee` |" in card
    assert "| data | `jsonl:groups.jsonl.gz` (dddddddd) |" in card
    assert "teachers: none" in card


def test_paths_that_options_have_are_cut_too() -> None:
    """A checkpoint is given away, and tells no folder of the machine that trained it."""
    spec = "msmarco:/home/me/tr.tsv?collection=/home/me/coll.tsv&queries=../me/q.tsv"
    summary = summary_of(record(train=spec, dev=spec), teachers=[])
    card = run_card(summary, name="mine", architecture="B5 3H1", terms=None)
    assert "| data | `msmarco:tr.tsv?collection=coll.tsv&queries=q.tsv` (dddddddd) |" in card
    assert "/me" not in card + json.dumps(summary)


def test_another_metric_that_chose_the_weights_is_named() -> None:
    """In the summary, the card and the manifest; MAP is nowhere, because it was not measured."""
    run = record()
    run.bound["dev"]["select"] = "p@1"
    summary = summary_of(run, teachers=[])
    card = run_card(summary, name="mine", architecture="B5 3H1", terms=None)
    assert (summary["dev_p_at_1"], summary["dev_p_at_1_at_start"]) == (61.234, 50.0)
    assert "| `jsonl:dev.jsonl` | 300 | p@1 | 61.23 |" in card
    assert "MAP" not in card
    assert dev_metric(summary) == "dev_p_at_1[jsonl:dev.jsonl:ffffffff/300]"


def test_figures_of_different_dev_sets_have_different_names() -> None:
    """Format, name, options, content and number of questions; old checkpoints have the bare name."""
    name = dev_metric(summary_of(record(), teachers=[]))
    assert name == "dev_map[jsonl:dev.jsonl:ffffffff/300]"
    specs = [f"beir:/home/me/nq?{options}" for options in ("split=dev", "split=test", "run=bm25", "run=bm25&k=10")]
    names = [dev_metric(summary_of(record(dev=spec), teachers=[])) for spec in specs]
    assert names[0] == "dev_map[beir:nq?split=dev:ffffffff/300]"
    assert len(set(names)) == len(specs)
    assert dev_map({"other": 1.0, name: 61.0}) == dev_map({"dev_map": 61.0}) == 61.0
    with pytest.raises(KeyError):
        dev_map({"dev_mapping": 1.0})
