"""Reads answer-sentence-selection data; the entry point is `read_questions("squad-as2:dev.jsonl.gz")`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from cerberank_training.data.asnq import read_asnq
from cerberank_training.data.generic import read_generic
from cerberank_training.data.question import DataError, LabelledCandidate, Question, Subset, sampled, subset
from cerberank_training.data.squad import Articles, articles_path, read_squad, read_squad_articles
from cerberank_training.data.trec.collection import read_trec
from cerberank_training.data.trecqa import read_trecqa
from cerberank_training.data.wikiqa import read_wikiqa

__all__ = [
    "Articles",
    "DataError",
    "LabelledCandidate",
    "Question",
    "Subset",
    "articles_path",
    "read_questions",
    "read_squad",
    "sampled",
    "subset",
]

READERS: dict[str, Callable[[Path], Iterable[Question]]] = {
    "wikiqa": read_wikiqa,
    "squad-as2": read_squad,
    "squad-as2-article": read_squad_articles,
    "asnq": read_asnq,
    "jsonl": read_generic,
    "trec": read_trec,
    "trecqa": read_trecqa,
}


def read_questions(spec: str) -> Iterable[Question]:
    """Questions of `FORMAT:PATH`, such as `wikiqa:WikiQA-test.tsv`; raises DataError for an unknown format."""
    name, separator, path = spec.partition(":")
    if not separator or name not in READERS:
        raise DataError(f"data is named FORMAT:PATH with FORMAT one of {', '.join(READERS)}, not {spec!r}")
    return READERS[name](Path(path))
