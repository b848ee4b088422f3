"""`cerberank data score`: a teacher's scores of a data set, in a cache that students learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter, Token
from numpy.typing import NDArray

from cerberank_models.backends.registry import precisions_help
from cerberank_models.commands.options import Device, check_device, chosen_device
from cerberank_models.commands.values import Count, DataSpec, data_help
from cerberank_models.convert.checkpoint_cache import trainable
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.output import UsageError, note
from cerberank_models.shards import Work, map_here, map_on_ray
from cerberank_training.teachers.scoring.external_scores import (
    Form,
    ScoreTable,
    external_teacher,
    scores_of_data,
    scores_of_file,
)
from cerberank_training.teachers.scoring.model_scores import Questions, reader_of, texts_of
from cerberank_training.teachers.scoring.open import cut_line, open_teacher, teacher_identity
from cerberank_training.teachers.scoring.scoring_run import WHOLE, Part, Scores, score_into
from cerberank_training.teachers.scoring.teacher import TeacherSpec
from cerberank_training.teachers.teacher_reader import Pair
from cerberank_training.teachers.teacher_score_cache import TeacherIdentity, TeacherScoreCache


def _shard(type_: Any, tokens: Sequence[Token]) -> Part:
    first, _, last = tokens[0].value.partition("/")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ValueError(f"takes I/N with I from 1 to N, such as 2/8, not {tokens[0].value!r}")
    return int(first), int(last)


Shard = Annotated[
    tuple[int, int] | None,
    Parameter(
        converter=_shard,
        n_tokens=1,
        help="Share of the data that this call scores, such as 2/8 on the second of 8 machines.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of a model that scores; each is None unless it is given."""

    teacher: str | None = None
    """Model that scores: a checkpoint folder, or a Hugging Face sequence classifier (folder or hub id).
    `train distil --teacher` takes the model, too, or its scores, the folder OUT."""
    backend: Literal["onnx", "torch"] | None = None
    """Backend of a checkpoint (default: torch)."""
    precision: Annotated[str | None, Parameter(help=f"{precisions_help()} (default: fp32).")] = None
    device: Device | None = None
    max_length: Count | None = None
    """Most tokens of a pair, for a Hugging Face teacher (default: as it was trained)."""
    context: bool | None = None
    """Let a Hugging Face teacher read previous and next sentence (default: as it was trained)."""
    engine: Literal["local", "ray"] | None = None
    """Scoring in this process (default), or on a Ray cluster (RAY_ADDRESS)."""
    copies: Count | None = None
    """Number of copies of the teacher that score in parallel with --engine ray (default: 1)."""
    shard: Shard = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExternalOptions:
    """The options of scores from elsewhere: a file, or the data."""

    scores: Path | None = None
    """File of JSON lines {"question", "text", "score"}, one for each pair."""
    own_scores: bool = False
    """Take the scores that the data have beside their labels."""
    form: Annotated[Form | None, Parameter(name="as")] = None
    """Meaning of given scores: log-odds (logit), probabilities, or numbers on any scale (score), which are calibrated
    on the labels."""
    name: str | None = None
    """Name of the source of given scores, such as a judge's name and version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherScores:
    """A folder with a teacher's scores."""

    folder: Path
    pairs: int | None
    """The number of scores; None while shards are missing."""
    missing_shards: int
    """The number of shards that other calls score."""


MODEL, EXTERNAL = ModelOptions(), ExternalOptions()


def score(
    out: Path,
    /,
    *,
    data: Annotated[tuple[DataSpec, ...], Parameter(help=data_help("Data to score, of one set or of several"))],
    model: ModelOptions = MODEL,
    external: ExternalOptions = EXTERNAL,
    parts: tuple[Path, ...] = (),
    shard_pairs: Count = 8192,
) -> TeacherScores:
    """Score a data set with a teacher, into a cache that students learn from.

    A killed run continues when the command is repeated. `squad-as2-article:PATH` scores each question against its whole
    article.

    Args:
        out: Cache folder to create, or to complete.
        data: Data to score.
        model: Options of a model.
        external: Options of scores from elsewhere.
        parts: Cache folder that a call with --shard wrote, to take scores from; repeat for several.
        shard_pairs: Pairs per shard; a killed run loses one shard.
    """
    # The data are read several times: for their number and keys, and as shards are scored.
    questions = reader_of(data)
    sources = {"--teacher": model.teacher, "--scores": external.scores, "--own-scores": external.own_scores or None}
    if sum(value is not None for value in sources.values()) != 1:
        raise UsageError(f"Give one of {', '.join(sources)}.")
    shard_map, teacher = (
        _model_scores(model, external, questions) if model.teacher else _external_scores(model, external, questions)
    )
    missing = score_into(
        out,
        texts_of(questions),
        shard_map,
        teacher=teacher,
        data=list(data),
        shard_pairs=shard_pairs,
        part=model.shard or WHOLE,
        parts=parts,
    )
    if missing:
        note(
            f"cerberank data score: {out} lacks {missing} shards, which other calls score; join their folders by this "
            "command with --parts FOLDER for each, instead of --shard"
        )
        return TeacherScores(folder=out, pairs=None, missing_shards=missing)
    pairs = TeacherScoreCache.open(out).manifest.pairs
    note(
        f"cerberank data score: {out} has {pairs} scores by {teacher.name}; next: cerberank evaluate --scores {out} "
        f"--data FORMAT:PATH, or cerberank train distil --teacher {out}"
    )
    return TeacherScores(folder=out, pairs=pairs, missing_shards=0)


def _model_scores(
    model: ModelOptions, external: ExternalOptions, questions: Questions
) -> tuple[Scores, TeacherIdentity]:
    """A model that scores; texts that do not fit are told. Raises UsageError for options of given scores."""
    for flag, value in (("--as", external.form), ("--name", external.name)):
        if value is not None:
            raise UsageError(f"{flag} is for --scores and --own-scores.")
    source = model.teacher or ""
    texts = {name: value for name in ("max_length", "context") if (value := getattr(model, name))}
    spec = TeacherSpec(
        source=trainable(source),
        backend=model.backend or "torch",
        precision=model.precision or "fp32",
        device=chosen_device(model.device or "auto"),
        input=TeacherInput.read(source).model_copy(update=texts),
    )
    if model.engine != "ray":  # Ray's workers have devices of their own
        check_device(spec.device, spec.backend if spec.is_checkpoint else "torch")
    identity = teacher_identity(spec)
    if line := cut_line(spec, texts_of(questions), tokens=identity.max_length):
        note(f"cerberank data score: {line}")
    if model.engine != "ray":
        return map_here(_opened(spec)), identity
    return map_on_ray(partial(_opened, spec), workers=model.copies or 1, device=spec.device), identity


def _external_scores(
    model: ModelOptions, external: ExternalOptions, questions: Questions
) -> tuple[Scores, TeacherIdentity]:
    """Scores that are given. Raises UsageError for options of a model, and the errors of `external_teacher`."""
    for name, value in vars(model).items():
        if value is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for --teacher: scores are given.")
    if external.form is None or external.name is None:
        raise UsageError("Given scores need --as, their meaning, and --name, their source.")
    source = str(external.scores or "the data's own scores")
    values = scores_of_file(external.scores) if external.scores else scores_of_data(questions())
    teacher = external_teacher(external.name, ScoreTable(values, source), questions(), external.form)
    if teacher.unused:
        note(f"cerberank data score: {source}: {teacher.unused} pairs are not in the data, and not used")
    note(f"cerberank data score: {external.name}, {teacher.identity.precision}")
    return map_here(teacher.differences), teacher.identity


def _opened(spec: TeacherSpec) -> Work[list[Pair], NDArray[np.float32]]:
    return open_teacher(spec).differences
