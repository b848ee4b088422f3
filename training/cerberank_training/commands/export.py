"""`cerberank export`: a checkpoint with ONNX graphs, a Hugging Face folder, or the authors' CERBERUS, from weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cyclopts import Parameter
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.calibration import FILE as CALIBRATION
from cerberank_models.checkpoint.first_stage_files import files_to_copy
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import RUN
from cerberank_models.commands.values import Count, DataSpec, Names
from cerberank_models.convert.cerberus import export_cerberus
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.convert.hugging_face_folder import export_hugging_face
from cerberank_models.convert.source import CERBERUS
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import UsageError, note, say
from cerberank_training.data import read_questions, sampled
from cerberank_training.evaluation.gate import GateBounds, Parity, measure_parity
from cerberank_training.evaluation.variants import Scorer
from cerberank_training.runs.run_data import check_choice
from cerberank_training.runs.summary import trained_on
from cerberank_training.runs.unlabelled import int8_questions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Form:
    """The options of a checkpoint; each is None unless it is given."""

    forms: Names | None = None
    """ONNX forms, separated by commas: fp32, fp16, int8 (default: int8); none for weights alone."""
    no_weights: bool | None = None
    """Leave model.safetensors out, which torch (GPUs) and further exports need."""
    version: str | None = None
    """Version of the new folder (default: the checkpoint's)."""
    int8_texts: DataSpec | None = None
    """Some hundred questions of the kind that will be ranked, to measure int8 ranges on: FORMAT:PATH, or a file as
    `cerberank rank` reads it (default: the golden texts, which is less exact). It does not make scores
    probabilities: `checkpoint calibrate` does."""
    gate: DataSpec | None = None
    """Dev data as FORMAT:PATH to compare each form with fp32; if it differs too much, nothing is written (default: only
    the golden texts are compared)."""
    gate_questions: Count | None = None
    """Number of questions of --gate to draw (default: 200)."""
    min_agreement: float | None = None
    """With --gate: least share of questions with the same first candidate, in percent (default: 97)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OtherFolder:
    """The options of a folder for other libraries instead of a checkpoint."""

    cerberus: bool = False
    """Write cerberus_model.pt, all heads as the code of CERBERUS's authors names and loads them."""

    hugging_face: bool = False
    """Write a sequence classifier that transformers and sentence-transformers load, with equal scores."""
    head: Count | None = None
    """Head to take, counted from 1, where there are several or exits beside it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A folder with a checkpoint, or for other libraries."""

    folder: Path
    parities: Mapping[str, Parity] = field(default_factory=dict)
    """The comparison of each ONNX form with the weights; empty without --gate."""


FORM, CHECKPOINT = Form(), OtherFolder()


def export(checkpoint: Path, out: Path, /, *, form: Form = FORM, other: OtherFolder = CHECKPOINT) -> Exported:
    """Write a checkpoint with ONNX graphs in the chosen precisions, if their scores are close enough to the weights'.

    The new folder keeps the weights, which torch serves in any precision. With --hugging-face it holds one head as a
    classifier that transformers and sentence-transformers load, and with --cerberus all heads in the authors' format.

    Args:
        checkpoint: Checkpoint folder with model.safetensors.
        out: Folder to make.
        form: Options of a checkpoint.
        other: Options of a folder for other libraries.
    """
    # 1. One of three results, whose options exclude each other.
    if other.hugging_face or other.cerberus:
        flag = "--hugging-face" if other.hugging_face else "--cerberus"
        form_options = (each.name for each in fields(form) if getattr(form, each.name) is not None)
        if wrong := next(form_options, None):
            raise UsageError(f"--{wrong.replace('_', '-')} is for a checkpoint, and has no meaning with {flag}")
    if other.hugging_face:
        if other.cerberus:
            raise UsageError("--hugging-face and --cerberus write different folders: give one of them")
        _write_hugging_face(checkpoint, out, head=other.head)
        return Exported(folder=out)
    if other.head is not None:
        raise UsageError("--head is for --hugging-face")
    if other.cerberus:
        export_cerberus(read_checkpoint(checkpoint), out)
        note(f"cerberank export: {out} has {CERBERUS} in the authors' format, which cerberank import reads too")
        return Exported(folder=out)
    # 2. The same weights, and the forms that the gate accepts.
    source = read_checkpoint(checkpoint)
    ranker = load_ranker(source)
    precisions = ("int8",) if form.forms is None else form.forms
    parities: dict[str, Parity] = {}
    weights = not form.no_weights
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(source.path / "tokenizer.json")),
        out,
        card=(source.path / "README.md").read_text(encoding="utf-8"),
        version=form.version or source.manifest.version,
        source=source.manifest.source,
        metrics=source.manifest.metrics,
        forms=Forms(
            precisions=precisions,
            weights=weights,
            calibration=int8_questions(form.int8_texts),
            accept=_gate(form, ranker, source, parities),
        ),
        files={
            **files_to_copy(source.path, source.manifest.files, precisions=precisions, weights=weights),
            **{name: source.path / name for name in (RUN, CALIBRATION) if name in source.manifest.files},
        },
    )
    forms = ", ".join([*(["weights"] if weights else []), *(f"ONNX {each}" for each in precisions)])
    note(
        f"cerberank export: {out} has {forms}; next: cerberank store push {out} STORE --label stable, or "
        f"CERBERANK_CHECKPOINT={out} cerberank serve"
    )
    return Exported(folder=out, parities=parities)


def _write_hugging_face(checkpoint: Path, out: Path, *, head: int | None) -> None:
    """Write the folder `out`. Raises the export's errors."""
    source = read_checkpoint(checkpoint)
    export_hugging_face(source, out, head=head)
    encoding = source.config.encoding
    if encoding.truncation == "last_first":
        note(
            f"cerberank export: pairs of more than {encoding.max_length} tokens, or questions of more than "
            f"{encoding.question_length}, are cut in another way by transformers, which cuts the longest text first: "
            "their scores differ"
        )
    note(
        f"cerberank export: {out} loads with AutoModelForSequenceClassification and CrossEncoder, and scores as "
        f"{source.path}"
    )


def _gate(
    form: Form, ranker: RankingNetwork, checkpoint: Checkpoint, parities: dict[str, Parity]
) -> Callable[[str, Backend[Any]], None]:
    """A check that compares each form with PyTorch on a dev sample; without data it accepts.

    The figures of each form are said, and put into `parities`.
    """
    if not form.gate:
        return lambda precision, backend: None
    # A sample that can tell rankings apart, and that the model was not trained on.
    size = 200 if form.gate_questions is None else form.gate_questions
    every = list(read_questions(form.gate))
    questions = sampled(every, size=size, seed=0, name="clean")
    check_choice(questions, every, f"--gate {form.gate}")
    if warning := trained_on(checkpoint.path, form.gate, every):
        note(f"cerberank export: --gate: {warning}")
    bounds = GateBounds() if form.min_agreement is None else GateBounds(agreement=form.min_agreement)
    encoder = checkpoint.encoder()

    def accept(precision: str, backend: Backend[Any]) -> None:
        exported, network = (Scorer(backend=each, encoder=encoder) for each in (backend, TorchBackend(ranker)))
        parity = measure_parity(exported, network, questions)
        say(
            f"{precision}: top-1 agreement {parity.agreement:.1f} %, MAP {parity.map_change:+.2f}, "
            f"scores within {parity.difference:.3f} (99 %), {parity.questions} questions"
        )
        parity.check(precision, bounds)
        parities[precision] = parity

    return accept
