"""From an imported cross-encoder and unlabelled questions to a checkpoint that drops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from tests.bounds import PROBABILITIES
from tests.decoders import save_decoder
from tests.first_stages import attached
from tests.opaque import write_opaque
from tests.program import program, replaced
from tests.training.acceleration.unlabelled import imported, write_questions

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.import_model import ImportOptions, import_model
from cerberank_models.commands.question_lines import read_questions
from cerberank_models.config import ExitConfig
from cerberank_models.rank_pairs import rank_pairs
from cerberank_training.acceleration.exits_job import ExitsJob
from cerberank_training.acceleration.settings import AccelerateOptions
from cerberank_training.evaluation.schedule_search import SECTION
from cerberank_training.runs.settings import RunOptions
from cerberank_training.runs.tracking.log_file import LogFile, read_log
from cerberank_training.runs.unlabelled import unlabelled, unlabelled_content

main = program("train accelerate")

COMMON = ["--exits", "2", "--held-out", "25", "--epochs", "10", "--gate-questions", "5"]
ONNX = ["--forms", "fp32"]


@pytest.fixture(scope="session")
def made(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with `imported`, `questions.jsonl` and `faster`."""

    def make(folder: Path) -> None:
        folder.mkdir()
        call = [str(imported(folder)), "--data", str(write_questions(folder / "questions.jsonl"))]
        bounds = ["--max-cost", "0.7", "--min-agreement", "0"]
        assert main([*call, *COMMON, *ONNX, *bounds, "--out", str(folder / "faster")]) == 0

    return made_once("accelerated", make)


def test_an_imported_model_drops_and_its_survivors_score_as_before(made: Path) -> None:
    """The default schedule drops within its cost; every old weight is as it was, survivors' final scores too."""
    old, new = read_checkpoint(made / "imported"), read_checkpoint(made / "faster")
    assert [exit_.after for exit_ in new.config.exits] == [2]
    assert any(new.config.drop_schedule)
    assert new.config.tuned_schedules[-1].cost <= 0.7
    assert new.manifest.version == f"{old.manifest.version}-accelerated"
    source = open_backend(old, kind="torch", precision="fp32")
    weights = [load_ranker(each).state_dict() for each in (old, new)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    for kind in ("torch", "onnx"):
        faster: Backend[object] = open_backend(new, kind=kind, precision="fp32")
        question, candidates = read_questions(made / "questions.jsonl")[0]
        pairs = old.encoder().encode(question, candidates)
        whole, ranking = rank_pairs(source, pairs).scores, rank_pairs(faster, pairs)
        survivors = ranking.stages == len(new.config.stages) - 1
        assert 0 < survivors.sum() < len(pairs)
        assert np.abs(ranking.scores - whole)[survivors].max() <= PROBABILITIES


def test_the_figures_say_what_they_are_measured_against(made: Path) -> None:
    """No metric of labels is stated; the card tells the reference, and names no path; each loss is what was dropped."""
    new = read_checkpoint(made / "faster")
    for entry in new.config.tuned_schedules:
        assert set(entry.metrics) == {
            *("agreement", "top1_agreement", "overlap@5"),
            *("agreement_loss", "agreement_loss_error"),
        }
        assert entry.metrics["agreement_loss"] == pytest.approx(100 - entry.metrics["agreement"], abs=2e-3)
    card = (new.path / "README.md").read_text().partition(f"## {SECTION}\n")[2]
    assert "35 questions without labels" in card
    assert "against the model's own ranking" in card
    assert str(made) not in card


def test_an_opaque_graph_gets_the_lexical_layer_alone(tmp_path: Path) -> None:
    """Its share is chosen by its own ranking, and half of the candidates share a word with the question."""
    write_opaque(tmp_path / "opaque", ("fp32",))
    lines = [
        {
            "question": "river",
            "candidates": [f"{'river' if k % 2 else 'lake'} {chr(97 + i % 9)} {chr(97 + k)}" for k in range(9)],
        }
        for i in range(30)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bounds = ["--max-cost", "0.7", "--min-agreement", "0"]
    out = tmp_path / "faster"
    assert main([str(tmp_path / "opaque"), "--data", str(tmp_path / "q.jsonl"), *bounds, "--out", str(out)]) == 0
    config = read_checkpoint(out).config
    assert 0.3 <= config.lexical_ratio < 1
    assert config.tuned_schedules[-1].cost == pytest.approx(4 / 9)


def test_a_decoder_drops_by_the_states_of_its_last_tokens(tmp_path: Path) -> None:
    """Its exits cannot read token features, and have none unless they are asked for."""
    source = save_decoder(tmp_path / "Qwen3-Reranker-tiny")
    import_model(str(source), tmp_path / "decoder", ImportOptions(forms=()))
    call = [str(tmp_path / "decoder"), "--data", str(write_questions(tmp_path / "questions.jsonl"))]
    call += ["--exits", "1", "--held-out", "25", "--epochs", "5", "--gate-questions", "5"]
    bounds = ["--max-cost", "0.9", "--min-agreement", "0", "--forms", "none"]
    assert main([*call, *bounds, "--out", str(tmp_path / "faster")]) == 0
    config = read_checkpoint(tmp_path / "faster").config
    assert config.exits == (ExitConfig(after=1, pooling="last"),)
    assert any(config.drop_schedule)


def test_a_killed_run_goes_on_to_the_same_checkpoint(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while states are computed, in a step of the exits, and before the export: nothing is computed twice, and
    the result is that of one call.
    """
    call = [str(made / "imported"), "--data", str(made / "questions.jsonl"), *COMMON, "--max-cost", "0.7"]
    call += ["--min-agreement", "0", "--forms", "none", "--out", str(tmp_path / "again")]
    starts = 0
    start = TorchBackend.start

    def counted(self: TorchBackend, pairs: object) -> object:
        nonlocal starts
        starts += 1
        if starts == 20:
            raise KeyboardInterrupt
        return start(self, pairs)  # type: ignore[arg-type]

    monkeypatch.setattr(TorchBackend, "start", counted)
    assert main(call) == 130
    log = LogFile.figures
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "figures", lambda file, step, values: stop() if step == 3 else log(file, step, values))
        assert main(call) == 130
    monkeypatch.setattr("cerberank_training.acceleration.accelerated.export_checkpoint", stop)
    assert main(call) == 130
    assert starts == 20 + (60 - 19) + 5  # the gate reads five questions
    monkeypatch.undo()
    assert main(call) == 0
    steps = [row["step"] for row in read_log(tmp_path / "again.work" / "log.jsonl") if "loss" in row]
    assert steps == list(range(1, 45))  # 10 times 35 questions, 8 a step
    wanted, got = (read_checkpoint(path) for path in (made / "faster", tmp_path / "again"))
    assert got.config == wanted.config
    weights = load_ranker(got).state_dict()
    for name, value in load_ranker(wanted).state_dict().items():
        # The body's pass may round otherwise by where its tensors lie in memory: 2e-8 was seen, in exits alone.
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5)


def stop(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def test_a_repeat_that_differs_is_refused_by_the_fields(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OUT.work belongs to checkpoint, questions and settings."""
    work = tmp_path / "out.work"
    work.mkdir()
    (work / "record.json").write_bytes((made / "faster.work" / "record.json").read_bytes())
    options = ["--exits", "1", "--pooling", "first", "--held-out", "26", "--learning-rate", "0.1", "--seed", "7"]
    options += ["--precision", "bf16", "--data", str(write_questions(tmp_path / "other.jsonl", seed=1))]
    assert main([*replaced([made / "imported", *COMMON], *options), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    fields = (
        "exits.1.after",
        "exits.1.pooling",
        "held_out",
        "settings.learning_rate",
        "settings.seed",
        "precision",
        "questions",
    )
    assert [field for field in fields if f" {field} " not in error] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--device", "cuda"], "--device cuda cannot be used: "),
        (["--exits", "2,1"], "--exits 2,1 must come after distinct, ascending body layers 1..3"),
        (["--exits", "2,4"], "--exits 2,4 must"),
        (["--gate-questions", "0"], "for --gate-questions. Must be >= 1."),
    ],
)
def test_a_wrong_option_leaves_no_trace(
    *,
    option: list[str],
    message: str,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message names it, and OUT.work does not keep it, so that the command can be repeated without it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    call = replaced([made / "imported", "--data", made / "questions.jsonl", *COMMON], *option)
    code, error = main([*call, "--out", str(tmp_path / "out")]), capsys.readouterr().err
    assert code == (2 if "--help" in error else 1)
    assert message in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("workers", "expected"), [(None, 0), (2, 2)])
def test_batches_are_read_without_processes_unless_some_are_asked_for(
    made: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, expected: int
) -> None:
    """On a GPU too, where other jobs have up to four: the states of a step's tokens would be copied between them."""
    monkeypatch.setattr("cerberank_training.runs.settings.chosen_device", lambda device: "cuda")
    options = AccelerateOptions(data="q.jsonl", out=made / "never", run=RunOptions(workers=workers))
    assert ExitsJob(options, read_checkpoint(made / "imported")).batch_workers == expected


def test_several_processes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([str(tmp_path), "--data", "a.jsonl", "--out", str(tmp_path / "out")]) == 2
    assert "runs in one process" in capsys.readouterr().err


def test_what_cannot_be_accelerated_is_refused_with_what_to_do(
    made: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No weights, a first stage, too few questions, exits that do not fit, an unreachable gate or bound, an old OUT."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": "a", "candidates": [{"text": "b", "grade": 1}]}) + "\n")
    questions, few = made / "questions.jsonl", write_questions(tmp_path / "few.jsonl", count=30)
    model = made / "imported"
    first = attached(read_checkpoint(tiny_checkpoint), tmp_path / "first", precisions=()).path
    for checkpoint, lines, more, message in (
        (BUNDLED, questions, [], "cerberank checkpoint weights FOLDER OUT"),
        (first, questions, [], "has a first stage"),
        (model, few, [], "leaves 5 to train on"),
        (model, tmp_path / "a.jsonl", [], "candidates[0].grade"),
        (model, questions, ["--forms", "fp33"], "not fp33"),
        (model, questions, ["--max-cost", "0.01", "--max-loss", "0"], "points of agreement at a cost"),
        (model, questions, ["--max-loss", "0", "--min-agreement", "0"], "nothing would be dropped"),
        (
            model,
            questions,
            ["--max-cost", "0.7", "--min-agreement", "100", "--gate-questions", "25"],
            "with top1_agreement ",
        ),
        (model, questions, ["--out", str(made / "faster")], "never overwritten"),
    ):
        out = tmp_path / "out"
        call = replaced([checkpoint, "--data", lines, *COMMON, "--forms", "none", "--out", out], *more)
        code, error = main(call), capsys.readouterr().err
        assert code == (2 if "--help" in error else 1)
        assert message in error
        assert not out.exists()


def test_questions_are_lines_of_rank_or_any_format(made: Path, tmp_path: Path) -> None:
    """Texts are read in the order of the data; labelled data have their format and options in the run's settings."""
    path = made / "questions.jsonl"
    rows = read_questions(path)
    read = unlabelled(str(path))
    assert [(q.text, [row.candidate for row in q.candidates]) for q in read] == rows
    assert not any(q.answerable for q in read)
    table = [
        {"qid": i, "query": q, "texts": [c.text for c in cs], "labels": [1] * len(cs)} for i, (q, cs) in enumerate(rows)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    spec = f"rows:{tmp_path / 't.jsonl'}"
    assert [(q.text, [row.candidate for row in q.candidates]) for q in unlabelled(spec)] == rows
    assert unlabelled_content(spec, ())["form"] == "rows"
    assert unlabelled_content(f"{spec}?id=qid", ()) != unlabelled_content(spec, ())
