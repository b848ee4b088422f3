"""The promises of a run that every job keeps: students, teachers, text rankers and pre-trained encoders."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.models.convert.test_source import COMMIT
from tests.papers.pretraining.documents import articles
from tests.papers.pretraining.networks import save_base
from tests.program import program, replaced
from tests.training.letters import dev_jsonl, jsonl
from transformers import AutoConfig

from cerberank_models import progress
from cerberank_models.checkpoint.regular import file_digest
from cerberank_models.convert.source import Source
from cerberank_training.runs import base
from cerberank_training.runs.record import read_record
from cerberank_training.runs.summary import training_data
from cerberank_training.runs.tracking.log_file import LogFile, read_log


def options(verb: str, folder: Path) -> list[str]:
    questions = ("--train", jsonl(folder), "--dev", dev_jsonl(folder))
    match verb:
        case "distil":
            student = ("--recipe", "tiny", "--body-layers", "1", "--exits", "", "--forms", "none")
            return [*questions, *student]
        case "pairwise":
            lengths = ("--question-length", "12", "--document-length", "30", "--window", "16")
            return [*questions, *lengths, "--system", "mono", "--positives", "any", "--own-share", "1"]
        case "teach":
            return [*questions, "--precision", "fp32", "--max-length", "32"]
        case _:
            documents = ("--documents", articles(folder), "--dev", articles(folder / "dev", sizes=(4, 3, 5)))
            examples = ("--objective", "all", "--examples-per-step", "10", "--dev-groups", "1", "--max-length", "48")
            return [*documents, *examples, "--precision", "fp32", "--warmup", "1"]


JOBS = pytest.mark.parametrize("verb", ["distil", "pairwise", "pretrain", "teach"])


@JOBS
def test_a_run_is_repeated_and_bound(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished, it says so and does nothing; other settings, data steps or processes are refused by their names."""
    base, out = save_base("bert", tmp_path / "base"), tmp_path / "out"
    common = ["--base", str(base), "--out", str(out), "--device", "cpu", "--evaluate-every", "1"]
    words, train = [*common, *options(verb, tmp_path)], program(f"train {verb}")
    capsys.readouterr()
    assert train([*words, "--steps", "2"]) == 0
    result = out / {"distil": "checkpoint", "pairwise": "ranker"}.get(verb, "model.safetensors")
    said = capsys.readouterr()
    assert "Writing model shards" not in said.err  # transformers' own bar
    assert said.out
    written = result.stat().st_mtime_ns
    assert train([*words, "--steps", "2"]) == 0
    again = capsys.readouterr()
    assert " is finished" in again.err
    assert again.out == ""
    assert result.stat().st_mtime_ns == written

    name, file = ("documents", "articles.jsonl") if verb == "pretrain" else ("data", "data.jsonl")
    content = (tmp_path / file).read_text()
    (tmp_path / file).write_text(content.replace("city", "town"))
    with monkeypatch.context() as torchrun:
        torchrun.setenv("WORLD_SIZE", "2")
        assert train([*words, "--steps", "3", "--seed", "2"]) == 1
    error = capsys.readouterr().err
    other = f"begun with other content of {name} (SHA-256: {file} "
    for difference in (other, "seed 1, not 2", "steps 2, not 3", "processes 1, not 2"):
        assert difference in error


@pytest.mark.parametrize("verb", ["distil", "pairwise", "teach"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--train", "train.jsonl"), "data is named FORMAT:PATH with FORMAT one of wikiqa, "),
        (("--dev", "jsonl:gone.jsonl"), "gone.jsonl: there is no such file or folder"),
        (("--dev", "asnq:dev.tsv?question=1"), "asnq has no option 'question'; it has questions"),
    ],
)
def test_data_that_cannot_be_are_told_before_the_base_is_looked_for(
    verb: str, changes: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = replaced(options(verb, tmp_path), *changes)
    assert program(f"train {verb}")([*words, "--base", "someone/gone", "--out", str(tmp_path / "out"), "--steps", "1"])
    assert message in capsys.readouterr().err


@JOBS
def test_batches_and_processes_share_a_step_equally(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Examples of a smaller batch would have more weight, and an empty batch none."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = [*options(verb, tmp_path), "--base", "someone/gone", "--out", str(tmp_path / "out"), "--steps", "1"]
    words = replaced(words, "--examples-per-step", "30", "--accumulate", "4", "--warmup", "0")
    assert program(f"train {verb}")(words) == 1
    message = "--examples-per-step is 30: it must be a multiple of {}, for 4 accumulated batches in each of 2 processes"
    assert message.format(40 if verb == "pretrain" else 8) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@JOBS
def test_a_base_on_the_hub_is_looked_up_and_hashed_once(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is loaded from the snapshot: nobody else asks the hub, which does not have the model. The result
    knows the data that the base was trained on.
    """
    snapshot, calls = save_base("bert", tmp_path / "snapshot"), Counter[str]()
    earlier = {"name": "jsonl:b", "sha256": {"b": "c"}}
    digest = base.file_digest

    def find(place: str) -> Source:
        calls["look-ups"] += 1
        return Source(place=place, folder=snapshot, commit=COMMIT)

    def download(place: str, *, revision: str, allow_patterns: list[str], **_: Any) -> None:
        calls["downloads"] += 1
        assert (place, revision) == ("someone/tiny", COMMIT)
        assert "run.json" in allow_patterns
        (snapshot / "run.json").write_text(json.dumps({"data": earlier}))

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
    assert record.bound["base"] == {"sha256": {name: digest(snapshot / name) for name in calls if "." in name}}
    result = tmp_path / "out" / {"distil": "checkpoint", "pairwise": "ranker"}.get(verb, "")
    assert training_data(result)[-1] == earlier


def test_the_log_has_a_line_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the step, the loss and the figure on dev; the result alone is on standard output."""
    base = save_base("bert", tmp_path / "base")
    common = ["--base", str(base), "--out", str(tmp_path / "out"), "--steps", "2", "--evaluate-every", "1"]
    call = [*common, "--device", "cpu", *options("teach", tmp_path)]
    assert program("train teach")(call) == 0
    assert "/2 [" not in capsys.readouterr().err  # a short run
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    shutil.rmtree(tmp_path / "out")
    assert program("train teach")(call) == 0
    said = capsys.readouterr()
    last = [line for line in said.err.splitlines() if line.startswith("out: 100%")][-1]
    assert "2/2 [" in last
    assert "loss=" in last
    assert "dev=" in last
    assert len(said.out.splitlines()) == 1


@JOBS
def test_a_killed_job_ends_with_the_weights_of_one_call(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in step 5, after the state of step 4, and called again: equal SHA-256 of the weights, and an equal log."""
    base, log = save_base("bert", tmp_path / "base"), LogFile.figures

    def killed(file: LogFile, step: int, values: Mapping[str, float]) -> None:
        if step == 5:
            raise KeyboardInterrupt
        log(file, step, values)

    def call(out: str) -> int:
        common = ["--base", str(base), "--out", str(tmp_path / out), "--device", "cpu", "--steps", "6"]
        every = ["--evaluate-every", "3", "--save-every", "2"]
        return program(f"train {verb}")([*common, *every, *options(verb, tmp_path)])

    assert call("whole") == 0
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "figures", killed)
        assert call("cut") == 130
    assert call("cut") == 0
    weights = {"distil": "checkpoint/model.safetensors", "pairwise": "ranker/model.safetensors"}
    digests, logs = set(), []
    for out in ("whole", "cut"):
        digests.add(file_digest(tmp_path / out / weights.get(verb, "model.safetensors")))
        logs.append(
            [
                {name: row[name] for name in row if "second" not in name}
                for row in read_log(tmp_path / out / "log.jsonl")
            ]
        )
    assert len(digests) == 1
    assert logs[0] == logs[1]


@pytest.mark.parametrize("verb", ["distil", "teach"])
def test_another_metric_chooses_the_weights(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log, the record, the tracker and the last line have it in place of MAP; epochs and shares give the steps."""
    out = tmp_path / "out"
    call = ["--base", str(save_base("bert", tmp_path / "base")), "--out", str(out), "--device", "cpu"]
    call += ["--select", "p@1", "--epochs", "2", "--evaluate-every", "0.5", "--examples-per-step", "2"]
    assert program(f"train {verb}")([*call, "--track", "tensorboard", *options(verb, tmp_path)]) == 0
    figures = {row["step"]: row["dev_p_at_1"] for row in read_log(out / "log.jsonl") if "dev_p_at_1" in row}
    assert list(figures) == [0, 2, 4, 5]
    record = read_record(out)
    assert record.results["best"] == pytest.approx(max(figures[step] for step in (2, 4, 5)), rel=1e-5)
    assert record.bound["dev"]["select"] == "p@1"
    assert f"dev P@1 {record.results['best']:.2f}" in capsys.readouterr().out
    assert list((out / "tensorboard").iterdir())
