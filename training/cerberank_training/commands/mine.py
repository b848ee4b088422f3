"""`cerberank data mine`: hard negatives for questions with positives, from a corpus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from cerberank_models.commands.options import check_device, chosen_device
from cerberank_models.commands.values import Count, DataSpec, data_help
from cerberank_models.convert.checkpoint_cache import trainable
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.output import note
from cerberank_models.progress import progress
from cerberank_models.request import is_blank
from cerberank_models.tokens import replace_surrogates
from cerberank_training.data import DataError, Question, corpus_texts, open_questions
from cerberank_training.data.generic import writing_lines
from cerberank_training.data.mining.miner import Miner, positive_texts
from cerberank_training.data.mining.search import Search, bm25_search, vector_search
from cerberank_training.data.mining.select import Selection
from cerberank_training.data.mining.work import Work, texts_digest
from cerberank_training.teachers.scoring.open import open_teacher, teacher_identity
from cerberank_training.teachers.scoring.teacher import TeacherSpec

BM25 = "bm25"
USUAL = Selection()
CHUNK = 32
"""Questions that are searched, and scored by the cross-encoder, at once."""
NO_NEGATIVE, TOO_SIMILAR = "without a negative", "too similar"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mined:
    """A file of questions with negatives."""

    path: Path
    questions: int
    negatives: int
    too_similar: int
    """The number of texts that were too similar to a positive."""
    without_positive: int
    """The number of questions that were left out, because they have no positive."""
    without_negative: int

    def __str__(self) -> str:
        """The file's content in words."""
        return (
            f"{self.path}: {self.questions} questions with {self.negatives} negatives; {self.too_similar} texts too "
            f"similar; left out: {self.without_positive} questions without a positive, {self.without_negative} "
            "without a negative"
        )


class NothingFoundError(ValueError):
    """The questions have been searched, and none has a negative."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MineOptions:
    """The options of `data mine`."""

    data: Annotated[DataSpec, Parameter(help=data_help("Questions with their positives"))]
    corpus: DataSpec | None = None
    """Texts to search: beir:FOLDER, trec:FOLDER, documents:PATH, or the candidates of any FORMAT:PATH
    (default: those of --data)."""
    by: str = BM25
    """Search that finds negatives: bm25, or a bi-encoder's folder, hub id or checkpoint."""
    filter: str | None = None
    """Cross-encoder that scores what was found: a checkpoint, or a Hugging Face folder or hub id."""
    out: Path
    """File to write, .jsonl or .jsonl.gz."""
    selection: Selection = USUAL
    vectors: Path | None = None
    """Folder to keep a bi-encoder's vectors in, for further runs."""
    candidate_length: Count = 128
    """Most tokens of a text for a bi-encoder."""
    device: str = "auto"
    """Device of the bi-encoder and the cross-encoder: cpu, cuda, cuda:N (default: a GPU if there is one)."""
    precision: str = "fp32"
    """Precision of the bi-encoder and the cross-encoder: fp32, bf16, fp16."""


def mine(*, options: MineOptions) -> Mined:
    """Find hard negatives for questions with positives in a corpus, and write them in the generic form (jsonl).

    Each question is searched for by BM25 or a bi-encoder. Its relevant texts, and texts that hold a short answer, are
    not negatives. With --filter a cross-encoder scores the texts that were found and the positives: negatives are
    ordered by its scores, margins are against them, and its log-odds are written. A killed run continues when the
    command is repeated.

    Args:
        options: Options.
    """
    device = chosen_device(options.device)
    if options.filter is not None or options.by != BM25:
        check_device(device)
    try:
        mined = write_negatives(replace(options, device=device))
    except (ValueError, ArithmeticError, OSError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    note(f"cerberank data mine: {mined}")
    return mined


def write_negatives(options: MineOptions) -> Mined:
    """Write the file. Raises ValueError for what cannot be mined."""
    if options.out.exists():
        raise ValueError(f"{options.out} exists; choose another file")
    options.selection.check()
    # What is read before any search: the cross-encoder, and the questions that have a positive.
    spec, identity = _filter(options)
    every = open_questions(options.data)
    questions = [question for question in every if positive_texts(question)]
    if not questions:
        raise DataError(f"{options.data}: no question has a positive")
    if any(question.missed for question in questions) and "run=" in options.data:
        raise DataError(f"{options.data}: a run misses relevant documents, which could be mined; leave run= out")
    # The corpus holds each text once, with the positives, whose scores the margins compare with.
    positives = (text for question in questions for text in positive_texts(question))
    texts = corpus_texts(options.corpus or options.data, None if options.corpus else every)
    corpus = [text for text in dict.fromkeys(map(replace_surrogates, [*texts, *positives])) if not is_blank(text)]
    # A killed run goes on only with the same settings and data, which the work's folder holds.
    folder = options.out.with_name(f"{options.out.name}.work")
    settings = {name: str(value) for name, value in asdict(options.selection).items()} | {
        "by": options.by,
        "filter": identity,
        "questions": texts_digest(json.dumps([q.id, q.text, positive_texts(q), q.answers]) for q in questions),
        "corpus": texts_digest(corpus),
    }
    work = Work(folder, settings, chunk=CHUNK)
    try:
        _search_all(options, work, questions, corpus=corpus, spec=spec, folder=folder)
        mined = _write(options.out, work.records(), without=len(every) - len(questions))
    except NothingFoundError:
        work.remove()
        raise
    except (ValueError, ArithmeticError, OSError) as error:
        raise ValueError(f"{error}{work.given_up()}") from error
    work.remove()
    return mined


def _search_all(
    options: MineOptions,
    work: Work,
    questions: Sequence[Question],
    *,
    corpus: Sequence[str],
    spec: TeacherSpec | None,
    folder: Path,
) -> None:
    """Add the records of the questions that are not done to the work."""
    miner = Miner(
        corpus=corpus,
        numbers={text: number for number, text in enumerate(corpus)},
        search=_search(options, corpus, folder),
        selection=options.selection,
        score=None if spec is None else open_teacher(spec).differences,
    )
    with progress(total=len(questions), initial=work.done, unit="question") as bar:
        for start in range(work.done, len(questions), CHUNK):
            chunk = questions[start : start + CHUNK]
            work.add(list(miner.mined(chunk)))
            bar.update(len(chunk))


def _search(options: MineOptions, corpus: Sequence[str], folder: Path) -> Search:
    if options.by == BM25:
        return bm25_search(corpus)
    with progress(total=len(corpus), unit="text") as bar:
        return vector_search(
            corpus,
            options.by,
            options.vectors or folder / "vectors",
            device=options.device,
            precision=options.precision,
            candidate_length=options.candidate_length,
            progress=bar.update,
        )


def _filter(options: MineOptions) -> tuple[TeacherSpec | None, str]:
    """The cross-encoder that filters, if any, and its identity. Raises ValueError, which names it."""
    if options.filter is None:
        return None, ""
    try:
        spec = TeacherSpec(
            source=trainable(options.filter),
            precision=options.precision,
            device=options.device,
            input=TeacherInput.read(options.filter),
        )
        return spec, teacher_identity(spec).model_dump_json()
    except (OSError, ValueError) as error:
        raise ValueError(f"--filter {options.filter}: {error}") from error


def _write(out: Path, records: Iterable[dict[str, Any]], *, without: int) -> Mined:
    """Write the lines. Raises NothingFoundError when there is none."""
    counts: Counter[str] = Counter()
    with writing_lines(out) as write:
        for record in records:
            counts[TOO_SIMILAR] += record["above"]
            line = record["line"]
            if line is None:
                counts[NO_NEGATIVE] += 1
                continue
            counts["questions"] += 1
            counts["negatives"] += sum(not row["label"] for row in line["candidates"])
            write(line)
        if not counts["questions"]:
            raise NothingFoundError("no question has a negative that the settings let through; nothing is written")
    return Mined(
        path=out,
        questions=counts["questions"],
        negatives=counts["negatives"],
        too_similar=counts[TOO_SIMILAR],
        without_positive=without,
        without_negative=counts[NO_NEGATIVE],
    )
