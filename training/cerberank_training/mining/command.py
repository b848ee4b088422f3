"""`cerberank data mine`: hard negatives for questions with positives, from a corpus, in the generic form (`jsonl`).

Each question is searched for by BM25 or a bi-encoder. Its relevant texts, and texts that hold a short answer, are no
negatives. With --filter a cross-encoder scores what was found and the positives: negatives are ordered by its scores,
margins are against them, and its log-odds are written. A killed run goes on when the command is repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.progress import progress
from cerberank_models.tokens import replace_surrogates
from cerberank_training.data import DataError, Question, open_questions
from cerberank_training.data.corpus import corpus_texts
from cerberank_training.mining.miner import Miner, positive_texts
from cerberank_training.mining.search import Search, bm25_search, vector_search
from cerberank_training.mining.select import Selection
from cerberank_training.mining.work import Work
from cerberank_training.teachers.scoring.open import open_teacher, teacher_identity
from cerberank_training.teachers.scoring.teacher import TeacherSpec

BM25 = "bm25"
CHUNK = 32
"""Questions that are searched, and scored by the cross-encoder, at once."""
NO_POSITIVE, NO_NEGATIVE, TOO_SIMILAR = "without a positive", "without a negative", "too similar"


class NothingFoundError(ValueError):
    """The questions have been searched, and none has a negative."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        told = mine(arguments)
    except (ValueError, ArithmeticError, OSError) as error:
        print(f"cerberank data mine: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"cerberank data mine: {told}", file=sys.stderr)  # noqa: T201
    return 0


def mine(arguments: argparse.Namespace) -> str:
    """Write the file; returns a line that says what is in it. Raises ValueError for what cannot be mined."""
    if arguments.out.exists():
        raise ValueError(f"{arguments.out} exists; choose another file")
    selection = Selection(**{field.name: getattr(arguments, field.name) for field in fields(Selection)})
    spec, identity = _filter(arguments)
    given = open_questions(arguments.data)
    questions = [question for question in given if positive_texts(question)]
    if not questions:
        raise DataError(f"{arguments.data}: no question has a positive")
    if any(question.missed for question in questions) and "run=" in arguments.data:
        raise DataError(f"{arguments.data}: a run misses relevant documents, which could be mined; leave run= out")
    positives = (text for question in questions for text in positive_texts(question))
    texts = corpus_texts(arguments.corpus or arguments.data, None if arguments.corpus else given)
    corpus = [text for text in dict.fromkeys(map(replace_surrogates, [*texts, *positives])) if text.strip()]
    folder = arguments.out.with_name(f"{arguments.out.name}.work")
    settings = {name: str(value) for name, value in asdict(selection).items()} | {
        "by": arguments.by,
        "filter": identity,
        "questions": _digest(json.dumps([q.id, q.text, positive_texts(q), q.answers]) for q in questions),
        "corpus": _digest(corpus),
    }
    work = Work(folder, settings, chunk=CHUNK)
    try:
        _search_all(arguments, work, questions, corpus=corpus, selection=selection, spec=spec, folder=folder)
        told = _write(arguments.out, work.records(), without=len(given) - len(questions))
    except NothingFoundError:
        work.remove()
        raise
    except (ValueError, ArithmeticError, OSError) as error:
        raise ValueError(f"{error}{work.given_up()}") from error
    work.remove()
    return told


def _search_all(
    arguments: argparse.Namespace,
    work: Work,
    questions: Sequence[Question],
    *,
    corpus: Sequence[str],
    selection: Selection,
    spec: TeacherSpec | None,
    folder: Path,
) -> None:
    """Add the records of the questions that are not done to the work."""
    miner = Miner(
        corpus=corpus,
        places={text: place for place, text in enumerate(corpus)},
        search=_search(arguments, corpus, folder),
        selection=selection,
        teacher=None if spec is None else open_teacher(spec),
    )
    with progress(total=len(questions), initial=work.done, unit="question") as bar:
        for start in range(work.done, len(questions), CHUNK):
            chunk = questions[start : start + CHUNK]
            work.add(list(miner.mined(chunk)))
            bar.update(len(chunk))


def _digest(texts: Iterable[str]) -> str:
    digest = sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()


def _search(arguments: argparse.Namespace, corpus: Sequence[str], folder: Path) -> Search:
    if arguments.by == BM25:
        return bm25_search(corpus)
    with progress(total=len(corpus), unit="text") as bar:
        return vector_search(
            corpus,
            arguments.by,
            arguments.vectors or folder / "vectors",
            device=arguments.device,
            precision=arguments.precision,
            candidate_length=arguments.candidate_length,
            progress=bar.update,
        )


def _filter(arguments: argparse.Namespace) -> tuple[TeacherSpec | None, str]:
    """The cross-encoder that filters, if any, and its identity. Raises ValueError, which names it."""
    if arguments.filter is None:
        return None, ""
    try:
        spec = TeacherSpec(
            source=arguments.filter,
            precision=arguments.precision,
            device=arguments.device,
            input=TeacherInput.read(arguments.filter),
            batch_tokens=arguments.batch_tokens,
        )
        return spec, teacher_identity(spec).model_dump_json()
    except (OSError, ValueError) as error:
        raise ValueError(f"--filter {arguments.filter}: {error}") from error


def _write(out: Path, records: Iterable[dict[str, Any]], *, without: int) -> str:
    """Write the lines; returns what is in them. Raises NothingFoundError when there is none."""
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        raw = stack.enter_context(replacing(out))
        file = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, 0)) if out.suffix == ".gz" else raw
        for record in records:
            counts[TOO_SIMILAR] += record["above"]
            line = record["line"]
            if line is None:
                counts[NO_NEGATIVE] += 1
                continue
            counts["questions"] += 1
            counts["negatives"] += sum(not row["label"] for row in line["candidates"])
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        if not counts["questions"]:
            raise NothingFoundError("no question has a negative that the settings let through; nothing is written")
    return (
        f"{out}: {counts['questions']} questions with {counts['negatives']} negatives; {counts[TOO_SIMILAR]} texts "
        f"{TOO_SIMILAR}; left out: {without} questions {NO_POSITIVE}, {counts[NO_NEGATIVE]} {NO_NEGATIVE}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank data mine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Selection()
    parser.add_argument("--data", required=True, metavar="FORMAT:PATH", help="questions with their positives")
    parser.add_argument("--corpus", metavar="FORMAT:PATH", help="where negatives come from (default: the data's texts)")
    parser.add_argument("--by", default=BM25, help="bm25 (default), or a bi-encoder: a folder, hub id, or checkpoint")
    parser.add_argument("--filter", help="a cross-encoder: a checkpoint, or a Hugging Face folder or hub id")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, .jsonl or .jsonl.gz")
    parser.add_argument("--negatives", type=int, default=usual.negatives, help="most negatives of a question (8)")
    parser.add_argument("--skip", type=int, default=usual.skip, help="leave out so many of the most similar texts (0)")
    parser.add_argument("--top", type=int, default=usual.top, help="how many texts are looked at (100)")
    parser.add_argument(
        "--absolute-margin", type=float, help="how far a negative's score is below the lowest positive's"
    )
    parser.add_argument("--relative-margin", type=float, help="the same, as a share of the positive's score: 0.05")
    parser.add_argument("--max-score", type=float, help="the highest score of a negative")
    parser.add_argument("--choose", choices=("top", "random"), default=usual.choose, help="the best ones, or a draw")
    parser.add_argument("--seed", type=int, default=usual.seed, help="of the draw")
    parser.add_argument("--vectors", type=Path, help="folder to keep a bi-encoder's vectors in, for further runs")
    parser.add_argument("--candidate-length", type=int, default=128, help="tokens of a text for a bi-encoder (128)")
    parser.add_argument("--device", default="cpu", help="of bi-encoder and cross-encoder: cpu, cuda, cuda:1")
    parser.add_argument("--precision", default="fp32", help="of both: fp32, bf16, fp16")
    parser.add_argument("--batch-tokens", type=int, default=16384, help="tokens of the cross-encoder's batches")
    return parser
