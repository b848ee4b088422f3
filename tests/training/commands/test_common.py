"""Every command that trains resolves its base once, and hands it down."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.models.convert.test_source import COMMIT
from tests.program import program
from tests.training.letters import dev_jsonl, jsonl
from tests.training.pretraining.documents import articles
from tests.training.pretraining.networks import save_base
from transformers import AutoConfig

from cerberank_models.convert.source import Source
from cerberank_training.runs import base
from cerberank_training.runs.record import read_record


def options(verb: str, folder: Path) -> list[str]:
    questions = ("--train", jsonl(folder), "--dev", dev_jsonl(folder))
    match verb:
        case "distil":
            student = ("--recipe", "tiny", "--strategy", "hard", "--body-layers", "1", "--exits", "", "--no-export")
            return [*questions, *student]
        case "pairwise":
            lengths = ("--question-length", "12", "--document-length", "30", "--window", "16")
            return [*questions, *lengths, "--system", "mono", "--positives", "any", "--own", "1"]
        case "teach":
            return [*questions, "--precision", "fp32", "--max-length", "32"]
        case _:
            documents = ("--documents", articles(folder), "--dev", articles(folder / "dev", sizes=(4, 3, 5)))
            examples = ("--objective", "all", "--examples-per-step", "5", "--dev-groups", "1", "--max-length", "48")
            return [*documents, *examples, "--precision", "fp32", "--warmup", "1"]


@pytest.mark.parametrize("verb", ["distil", "pairwise", "pretrain", "teach"])
def test_a_base_on_the_hub_is_looked_up_and_hashed_once(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is loaded from the snapshot: nobody else asks the hub, which does not have the model."""
    snapshot, calls = save_base("bert", tmp_path / "snapshot"), Counter[str]()
    digest = base.file_digest

    def find(place: str) -> Source:
        calls["look-ups"] += 1
        return Source(place=place, folder=snapshot, commit=COMMIT)

    def download(place: str, *, revision: str, **_: Any) -> None:
        calls["downloads"] += 1
        assert (place, revision) == ("someone/tiny", COMMIT)

    def hashed(path: Path) -> str:
        calls[path.name] += 1
        return digest(path)

    monkeypatch.setattr(base, "find_source", find)
    monkeypatch.setattr(base, "snapshot_download", download)
    monkeypatch.setattr(base, "read_config", lambda source: AutoConfig.from_pretrained(source.folder))
    monkeypatch.setattr(base, "file_digest", hashed)
    common = ["--base", "someone/tiny", "--out", str(tmp_path / "out"), "--steps", "1", "--device", "cpu"]
    assert program(f"train {verb}")([*common, *options(verb, tmp_path)]) == 0
    assert {"look-ups", "downloads", "config.json", "model.safetensors"} <= set(calls)
    assert set(calls.values()) == {1}
    record = read_record(tmp_path / "out")
    assert record is not None
    assert record.bound["base"] == {"sha256": {name: digest(snapshot / name) for name in calls if "." in name}}
