"""Scores of a teacher that is a model, which a run computes once, into a cache in its own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from cerberank_models.convert.checkpoint_cache import trainable
from cerberank_models.convert.source import Source
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate
from cerberank_models.output import note
from cerberank_models.shards import map_here
from cerberank_training.data import Question, read_questions
from cerberank_training.teachers.scoring.open import cut_line, open_teacher, teacher_identity
from cerberank_training.teachers.scoring.scoring_run import Texts, score_into
from cerberank_training.teachers.scoring.teacher import TeacherSpec
from cerberank_training.teachers.teacher_score_cache import MANIFEST, ScoreCacheError

Questions = Callable[[], Iterable[Question]]


def is_model(place: Path) -> bool:
    """True for a model's folder or its id on the hub, False for a score cache.

    Raises ScoreCacheError for any other folder, and for a path that leads nowhere.
    """
    if place.is_dir():
        source = Source(place=str(place), folder=place, commit=None)
        if (place / "config.json").is_file() or source.is_cerberus:
            return True
        if (place / MANIFEST).is_file():
            return False
    elif len(place.parts) <= 2 and not place.parent.is_dir():
        return True
    raise ScoreCacheError(
        f"--teacher {place} is neither a score cache (a folder that `cerberank data score` wrote) nor a model (a "
        "checkpoint, or a Hugging Face classifier's folder or hub id)"
    )


def score_by_model(place: Path, folder: Path, data: str, *, device: str) -> None:
    """Fill the cache `folder` with the scores that the model `place` gives the pairs of `FORMAT:PATH`.

    Scores that are there are not computed again. Raises ScoreCacheError for a model that cannot be a teacher, and the
    errors of `score_into`.
    """
    try:
        source = str(place)
        spec = TeacherSpec(source=trainable(source), device=device, input=TeacherInput.read(source))
        teacher = teacher_identity(spec)
    except (OSError, ValueError) as error:
        raise ScoreCacheError(f"--teacher {place}: {str(error).partition(chr(10))[0]}") from error
    # The network is loaded when the first shard is scored.
    opened = cache(partial(open_teacher, spec))
    texts = texts_of(reader_of([data]))
    if line := cut_line(spec, texts, tokens=teacher.max_length):
        note(f"--teacher {place}: {line}")
    score_into(folder, texts, map_here(lambda pairs: opened().differences(pairs)), teacher=teacher, data=[data])


def reader_of(data: Sequence[str]) -> Questions:
    """A function that reads the questions of several data sets, and writes each line about them once."""
    lines: set[str] = set()

    def report(line: str) -> None:
        if line not in lines:
            lines.add(line)
            note(line)

    def questions() -> Iterator[Question]:
        for name in data:
            yield from read_questions(name, report=report)

    return questions


def texts_of(questions: Questions) -> Texts:
    """A function that reads the pairs of the questions."""

    def texts() -> Iterator[tuple[str, Sequence[Candidate]]]:
        for question in questions():
            yield question.text, [labelled.candidate for labelled in question.candidates]

    return texts
