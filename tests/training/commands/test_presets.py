"""The papers' presets: each fits its command, and gives the numbers that the papers print; one of each command runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.program import program
from tests.tiny import bert_tokenizer, save_cross_encoder
from tests.training.data.trec.collections import write_web_collection
from tests.training.letters import questions
from tests.training.pretraining.documents import articles
from tests.training.pretraining.networks import save_base

from cerberank_models.commands.values import arguments_of
from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.output import UsageError
from cerberank_training.commands import pairwise, pretrain, teach
from cerberank_training.commands.presets import options_from_recipe, presets, read_preset, student_settings
from cerberank_training.data import read_questions
from cerberank_training.data.sampling import Group, PairSampling
from cerberank_training.data.wikiqa import COLUMNS
from cerberank_training.learning.student_run import TokenSteps
from cerberank_training.learning.train_config import ramp_steps
from cerberank_training.pretraining.examples import GROUP
from cerberank_training.pretraining.pretraining_run import PretrainingConfig
from cerberank_training.teachers.fine_tuning import TeacherConfig

COMMANDS = {"teach": teach.teach, "pretrain": pretrain.pretrain, "pairwise": pairwise.pairwise}
NEEDED = {
    "teach": ("--base", "b", "--train", "asnq:t", "--dev", "asnq:d", "--out", "nowhere"),
    "pretrain": ("--base", "b", "--documents", "text:t", "--dev", "text:d", "--out", "nowhere"),
    "pairwise": ("--base", "b", "--train", "trec:t", "--dev", "trec:d", "--out", "nowhere"),
}
PAIRS = {"asnq": 23_662_238, "wikiqa": 8_672, "wikiqa, all": 20_360}
"""Pairs of training sets: CERBERUS table 1, and WikiQA's with the questions that no candidate answers."""


def options(name: str, *words: str) -> Any:
    """The options of a call with the preset."""
    verb = read_preset(name).verb
    call = [*NEEDED[verb], "--recipe", name, *words]
    return arguments_of(COMMANDS[verb], call, config=options_from_recipe(verb))["options"]


def teacher(name: str, pairs: int = PAIRS["asnq"]) -> TeacherConfig:
    """The run of `train teach` on so many pairs."""
    chosen: teach.TeachOptions = options(name)
    steps = chosen.length.steps or math.ceil((chosen.length.epochs or 0) * pairs / chosen.training.questions_per_step)
    return teach.configuration(chosen, steps)


@pytest.mark.parametrize("name", [name for name in presets() if "/" in name])
def test_a_preset_fits_its_command_and_names_its_sources(name: str) -> None:
    """Every value is one that the command takes, and reaches it; every value has a source."""
    preset = read_preset(name)
    ours = presets()[preset.recipe].settings if preset.recipe else {}
    assert all(setting.source for option, setting in preset.settings.items() if ours.get(option) != setting)
    match preset.verb:
        case "distil":
            assert isinstance(student_settings(name).sampling, PairSampling)
            assert student_settings(name).shape.truncation == "longest_first"
            assert preset.values["dev_questions"] == "all"
        case "teach":
            assert (options(name).dev_questions, options(name).examples.sampling) == ("all", "pairs")
            teacher(name)
        case "pretrain":
            assert options(name).objective == name.rpartition("-")[2]
        case "pairwise":
            named = () if "system" in preset.settings else ("--system", "twin")
            assert (options(name, *named).select, options(name, *named).schedule.clip) == ("p@20", 0)


def test_a_step_of_the_cascade_transformer() -> None:
    """Section 5.2, footnote 9: 237 pairs an update of 8 x 2,000 tokens, 950,000 in the 4,000 updates of the warm-up."""
    train, pairs = student_settings("ct/asnq").train, MeanLength()
    update = len(TokenSteps(pairs, pairs.encoder, train.tokens_per_step).take(0))
    assert update == 237
    ramp = ramp_steps(train.warmup, train.steps)
    assert (ramp, train.rate(3999)) == (4000, 1)
    assert ramp * update == pytest.approx(950_000, rel=0.01)
    assert ramp * update / PAIRS["asnq"] == pytest.approx(0.04, rel=0.01)


class MeanLength:
    """Pairs of 67 and 68 tokens in turns: 16,000 tokens by 237 pairs are 67.5."""

    def __init__(self) -> None:
        encoding = EncodingConfig(max_length=128, question_length=16)
        self.encoder = PairEncoder(bert_tokenizer(), family="bert", config=encoding, type_vocab_size=2)

    def step(self, step: int, size: int) -> list[Group]:
        text = " ".join(["a"] * (63 + step % 2))
        return [Group(question="b", candidates=(Candidate(text=text),), labels=(0.0,))]


@pytest.mark.parametrize(
    ("name", "pairs", "steps", "evaluations"),
    [
        ("tanda/transfer-bert", "asnq", 315_497, 2),
        ("tanda/adapt-roberta", "wikiqa", 116, 2),
        ("ssp/fine-tune-wikiqa-roberta", "wikiqa, all", 19_088, 30),
        ("ssp/no-context-wikiqa-electra", "wikiqa, all", 4_772, 30),
        ("ssp/fine-tune-asnq-electra", "asnq", 138_646, 30),
    ],
)
def test_epochs_of_pairs_are_steps(name: str, pairs: str, steps: int, evaluations: int) -> None:
    """The papers give passes over the pairs and evaluations as a share of the run."""
    config = teacher(name, PAIRS[pairs])
    assert (config.steps, config.evaluate_every) == (steps, steps // evaluations)


def test_pre_training_takes_whole_groups_near_the_papers_4096() -> None:
    """One positive and four negatives, shared by eight processes."""
    size = options("ssp/pretrain-dpc").training.examples_per_step
    assert size % GROUP == 0
    assert 4096 - size < 2 * 8 * GROUP
    assert PretrainingConfig(examples_per_step=size).batch(8) % GROUP == 0


def test_a_call_changes_a_preset(tmp_path: Path) -> None:
    """Options that are given count, steps instead of epochs; a file changes a preset for any command."""
    assert options("tanda/adapt-bert", "--learning-rate", "3e-5").training.learning_rate == 3e-5
    changed: teach.TeachOptions = options("tanda/adapt-bert", "--steps", "9")
    assert (changed.length.steps, changed.length.epochs) == (9, None)
    (tmp_path / "mine.toml").write_text(
        'from = "tanda/adapt-bert"\nepochs = { value = 3, source = "ours" }\nmax-length = 64\n'
    )
    mine: teach.TeachOptions = options(str(tmp_path / "mine.toml"))
    assert (mine.length.epochs, mine.training.max_length, mine.training.learning_rate) == (3, 64, 1e-6)
    assert read_preset(str(tmp_path / "mine.toml")).name == "mine.toml (from tanda/adapt-bert: epochs 3, max_length 64)"
    with pytest.raises(ValueError, match="--recipe mini is for `train distil`, not for `train teach`"):
        arguments_of(teach.teach, [*NEEDED["teach"], "--recipe", "mini"], config=options_from_recipe("teach"))
    with pytest.raises(ValueError, match="is for `train teach`, not for `train distil`"):
        student_settings("tanda/adapt-bert")
    with pytest.raises(ValueError, match="'cerberus/wikqa' is unknown, perhaps 'cerberus/wikiqa'"):
        student_settings("cerberus/wikqa")
    with pytest.raises(UsageError, match=r"--evaluate-every is 2.5"):
        teach.configuration(options("tanda/adapt-bert", "--evaluate-every", "2.5"), 9)


def test_every_value_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """A preset shows every value's source, a recipe all settings; the list names each with its command."""
    assert program("train recipes")(["tanda/transfer-bert"]) == 0
    shown = capsys.readouterr().out
    for option, setting in read_preset("tanda/transfer-bert").settings.items():
        (line,) = [each for each in shown.splitlines() if each.startswith(f"--{option.replace('_', '-')} ")]
        assert json.dumps(setting.value) in line
        assert line.endswith(setting.source)
    assert program("train recipes")(["cerberus/wikiqa"]) == 0
    assert "objective.tau = [3.0]" in capsys.readouterr().out
    assert program("train recipes")([]) == 0
    names = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert {(name, preset.verb) for name, preset in presets().items()} == set(map(tuple, names))


def files(folder: Path) -> dict[str, str]:
    """The letters in the public formats, to train on and, with the questions in another order, for dev."""
    made = {}
    for part, rows in (("train", questions()), ("dev", questions()[::-1])):
        pairs = [(question, row) for question in rows for row in question.candidates]
        asnq = "".join(f"{q.text}\t{row.candidate.text}\t{4 if row.relevant else 1}\n" for q, row in pairs)
        (folder / f"{part}.tsv").write_text(asnq)
        lines = [
            (q.id, q.text, "D", "T", f"{q.id}-{place}", row.candidate.text, str(row.label))
            for place, (q, row) in enumerate(pairs)
        ]
        (folder / f"WikiQA-{part}.tsv").write_text("".join("\t".join(line) + "\n" for line in (COLUMNS, *lines)))
        sentences = [
            {
                "question": question.text,
                "candidates": [
                    {"sentence": row.candidate.text, "label": int(row.relevant)} for row in question.candidates
                ],
            }
            for question in rows
        ]
        (folder / f"{part}-filtered.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sentences))
        made |= {
            f"asnq {part}": f"asnq:{folder / f'{part}.tsv'}",
            f"wikiqa {part}": f"wikiqa:{folder / f'WikiQA-{part}.tsv'}",
            f"trecqa {part}": f"trecqa:{folder / f'{part}-filtered.jsonl'}",
        }
    collection = folder / "robust04"
    (collection / "documents").mkdir(parents=True)
    texts = [row.candidate.text for row in questions()[0].candidates]
    (collection / "documents" / "news").write_text(
        "".join(f"<DOC><DOCNO>N-{number}</DOCNO><TEXT>{text} é</TEXT></DOC>\n" for number, text in enumerate(texts)),
        encoding="latin-1",
    )
    (collection / "queries.tsv").write_text(
        "".join(f"{n}\twhat is {text[0]} é ?\n" for n, text in enumerate(texts)), encoding="latin-1"
    )
    judged = [(query, text) for query in range(len(texts)) for text in range(len(texts))]
    (collection / "qrels.txt").write_text("".join(f"{q} 0 N-{text} {int(q == text)}\n" for q, text in judged))
    (collection / "run.txt").write_text("".join(f"{q} Q0 N-{text} {text + 1} {-text} bm25\n" for q, text in judged))
    (collection / "folds.txt").write_text("0\n1\n2\n3\n4\n")
    fold = f"trec:{collection}?encoding=latin-1&folds=folds.txt&fold=1&run=run.txt"
    made |= {"robust04 train": f"{fold}&part=train", "robust04 dev": f"{fold}&part=dev"}
    (folder / "clueweb09b").mkdir()
    web = f"trec:{write_web_collection(folder / 'clueweb09b')}?run=indri.run&k=3&folds=folds.txt&fold="
    return made | {"clueweb09b train": f"{web}1&part=train", "clueweb09b dev": f"{web}3&part=test"}


SMALL = ("--steps", "1", "--evaluate-every", "1", "--precision", "fp32", "--device", "cpu")


def run(verb: str, *words: object) -> None:
    assert program(f"train {verb}")([str(word) for word in (*words, *SMALL)]) == 0


def test_public_formats_run_through_the_commands(tmp_path: Path) -> None:
    """ASNQ and TrecQA by `teach`, WikiQA by `distil`, Robust04 (latin-1) and ClueWeb09b by `pairwise`, documents by
    `pretrain`.
    """
    data = files(tmp_path)
    base = save_cross_encoder("roberta", tmp_path / "base")

    def on(form: str, out: str) -> tuple[str, ...]:
        return ("--train", data[f"{form} train"], "--dev", data[f"{form} dev"], "--out", str(tmp_path / out))

    asnq, short = on("asnq", "transfer"), ("--max-length", 64)
    run("teach", "--recipe", "ct/sr-asnq", "--layers", 2, "--base", base, *asnq, *short)
    run("teach", "--recipe", "ct/sr-adapt", "--base", tmp_path / "transfer", *on("trecqa", "adapted"), *short)
    described = json.loads((tmp_path / "adapted" / "config.json").read_text())
    assert described["num_hidden_layers"] == 2
    record = json.loads((tmp_path / "adapted" / "record.json").read_text())
    assert record["free"]["recipe"] == "ct/sr-adapt"
    assert (record["bound"]["settings"]["questions_per_step"], record["bound"]["dev"]["size"]) == (150, "all")
    exits = ("--body-layers", 4, "--exits", "2,4", "--tokens-per-step", 200, "--warmup", 0, "--no-export", *short)
    run("distil", "--recipe", "ct/asnq", "--base", base, *on("wikiqa", "cascade"), *exits)
    record = json.loads((tmp_path / "cascade" / "record.json").read_text())
    assert (record["free"]["recipe"], record["bound"]["dev"]["size"]) == ("ct/asnq", "all")
    assert record["bound"]["settings"]["encoding"]["truncation"] == "longest_first"
    bert = save_cross_encoder("bert", tmp_path / "bert")
    lengths = ("--question-length", 12, "--document-length", 30, "--window", 16, "--triples-per-step", 4)
    for form, name in (("robust04", "twin"), ("clueweb09b", "colbert")):
        run("pairwise", "--recipe", f"trmd/{name}", "--base", bert, *on(form, name), *lengths)
        assert (tmp_path / name / "ranker").is_dir()
    (question, *_) = read_questions(data["robust04 dev"])
    assert question.text.endswith(" é ?")
    assert all(row.candidate.text.endswith(" é") for row in question.candidates)
    save_base("bert", tmp_path / "encoder")
    documents = ("--documents", articles(tmp_path), "--dev", articles(tmp_path / "held", sizes=(4, 3, 5)))
    small = ("--warmup", 1, "--examples-per-step", 10, "--max-length", 48, "--dev-groups", 2)
    run(
        "pretrain",
        "--recipe",
        "ssp/pretrain-dslc",
        "--base",
        tmp_path / "encoder",
        *documents,
        *small,
        "--out",
        tmp_path / "ssp",
    )
    assert (tmp_path / "ssp" / "model.safetensors").is_file()
