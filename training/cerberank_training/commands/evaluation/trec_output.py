"""The TREC files that `cerberank evaluate` writes of its table's questions: one ranking as a run, and qrels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cerberank_models.checkpoint.atomic import replacing
from cerberank_training.commands.evaluation.evaluate_options import EvaluateOptions
from cerberank_training.commands.evaluation.sources import source_name
from cerberank_training.data import DataError, Subset
from cerberank_training.data.question import within
from cerberank_training.evaluation.sources.rankings import RankedQuestion
from cerberank_training.evaluation.trec_files.writing import WrittenRun, write_qrels_rows, write_run_rows

FINAL = "final"


@dataclass(kw_only=True, slots=True)
class TrecOutput:
    """Writes nothing where no file is asked for."""

    run: Path | None
    qrels: Path | None
    ranking: str
    tag: str
    subset: Subset
    written: WrittenRun = field(default_factory=WrittenRun)
    _run_file: BinaryIO | None = None
    _qrels_file: BinaryIO | None = None

    @classmethod
    def of(cls, options: EvaluateOptions) -> TrecOutput:
        """As the options tell. Raises ValueError for options of a run that is not written, and for a bad tag."""
        if not options.trec_run and (options.tag is not None or options.ranking != FINAL):
            raise ValueError("--ranking and --tag are of a --trec-run")
        if options.tag is not None and options.tag.split() != [options.tag]:
            raise ValueError(f"the tag of a run is one word, not {options.tag!r}")
        name = source_name(options) + ("" if options.ranking == FINAL else f" {options.ranking}")
        return cls(
            run=options.trec_run,
            qrels=options.trec_qrels,
            ranking=options.ranking,
            tag=options.tag or "-".join(name.split()),
            subset=options.subset,
        )

    def check(self, variants: Mapping[str, object]) -> None:
        """Raises ValueError for a ranking that is none of the variants, if those are known."""
        if self.run and variants and self.ranking not in variants:
            raise ValueError(f"no ranking {self.ranking!r}; there are: {', '.join(variants)}")

    @contextmanager
    def files(self) -> Iterator[None]:
        """Both files are open; an exception leaves neither."""
        with ExitStack() as stack:
            self._run_file = stack.enter_context(replacing(self.run)) if self.run else None
            self._qrels_file = stack.enter_context(replacing(self.qrels)) if self.qrels else None
            yield

    def add(self, ranked: RankedQuestion) -> None:
        """Append a question, if it is in the subset. Raises DataError where it lacks the ranking."""
        question = ranked.question
        if not within(question.labels, question.missed, self.subset):
            return
        if self._qrels_file is not None:
            write_qrels_rows(self._qrels_file, question)
        if self._run_file is None:
            return
        if self.ranking not in ranked.ranks:
            names = ", ".join(ranked.ranks)
            raise DataError(f"question {question.id!r} has no ranking {self.ranking!r}; there are: {names}")
        ranks, scores = ranked.ranks[self.ranking], ranked.scores.get(self.ranking)
        write_run_rows(self._run_file, question, ranks, scores, tag=self.tag, written=self.written)

    def summary(self) -> str:
        """The content of the run, and the places where TREC's programs will see another order."""
        written = self.written
        content = f"ranking {self.ranking!r} of {written.questions} questions, {written.documents} documents"
        parts = [f"{content}, tag {self.tag}."]
        if written.by_rank:
            parts.append(
                f"{written.by_rank} questions have n - rank as scores, because their own do not give the order."
            )
        if written.tied:
            parts.append(
                f"{written.tied} documents are tied with one of another grade: TREC's programs order them by id, "
                "the table takes the mean over all orders."
            )
        return " ".join(parts)
