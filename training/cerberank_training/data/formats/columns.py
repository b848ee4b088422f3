"""The columns of a table: questions, texts and labels. They have known names, or names that options give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from cerberank_models.transformer import Frozen
from cerberank_training.data.question import DataError

KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "id": ("qid", "query_id", "query-id", "question_id"),
        "question": ("question", "query", "anchor"),
        "text": ("text", "texts", "passage", "passages", "document", "documents", "docs", "answer", "sentence"),
        "label": ("label", "labels", "relevance"),
        "score": ("score", "scores"),
        "positive": ("positive", "positives", "pos"),
        "negative": ("negative", "negatives", "neg"),
        "positive_score": ("positive_score", "positive_scores", "pos_scores"),
        "negative_score": ("negative_score", "negative_scores", "neg_scores"),
        "previous": ("previous",),
        "next": ("next",),
    }
)
"""The names that a column may have if no option gives its name."""
OF_PAIRS, OF_POSITIVES = ("label", "score", "previous", "next"), ("positive", "positive_score", "negative_score")
"""The fields that are only read from tables of labelled texts, and from tables of positives and negatives."""


class ColumnOptions(Frozen):
    """The names of columns, and the threshold of numeric labels."""

    id: str = ""
    question: str = ""
    text: str = ""
    label: str = ""
    score: str = ""
    positive: str = ""
    negative: str = ""
    """The name of a column, or the beginning of the names of several: `negative` includes `negative_1`,
    `negative_2`."""
    positive_score: str = ""
    negative_score: str = ""
    previous: str = ""
    next: str = ""
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """If set, labels are scores, and a text is relevant if its score is at least this value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The names of a table's columns by their content; empty if there is no such column."""

    id: str
    question: str
    text: str
    label: str
    score: str
    positive: str
    negatives: tuple[str, ...]
    positive_score: str
    negative_score: str
    previous: str
    next: str

    @classmethod
    def of(cls, names: Sequence[str], options: ColumnOptions, place: str) -> Columns:
        """Find the columns among `names`. Raises DataError, which lists the columns, if the choice is not clear."""
        found = {field: _one(field, getattr(options, field), names, place) for field in KNOWN if field != "negative"}
        if found["text"] and found["positive"] and not (options.text or options.positive):
            raise DataError(f"{place}: both {found['text']!r} and {found['positive']!r} hold texts; name one of them")
        if found["positive"] and not options.text:
            found["text"] = ""
        negatives = _negatives(options.negative, names) if found["positive"] and not found["text"] else ()
        missing = [field for field in ("question", "text") if not found[field]]
        if found["positive"] and not found["text"]:
            missing = [
                field for field in ("question", "negative") if not (negatives if field == "negative" else found[field])
            ]
        elif not found["label"]:
            missing.append("label")
        if missing:
            raise DataError(f"{place}: which column is the {missing[0]}? {missing[0]}=NAME names one of {_list(names)}")
        found |= dict.fromkeys(OF_PAIRS if found["positive"] and not found["text"] else OF_POSITIVES, "")
        return cls(**found, negatives=negatives)

    def unused(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are not read."""
        used = set(self.used)
        return [name for name in names if name not in used]

    @property
    def used(self) -> list[str]:
        """The names of the columns that are read."""
        single = (self.id, self.question, self.text, self.label, self.score, self.positive, self.positive_score)
        return [name for name in (*single, *self.negatives, self.negative_score, self.previous, self.next) if name]


def _one(field: str, given: str, names: Sequence[str], place: str) -> str:
    if given:
        if given not in names:
            raise DataError(f"{place}: there is no column {given!r} for {field}; there are {_list(names)}")
        return given
    known = [name for name in KNOWN[field] if name in names]
    if len(known) > 1:
        raise DataError(f"{place}: several columns may be the {field}: {_list(known)}; {field}=NAME names one")
    return known[0] if known else ""


def _negatives(given: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of negatives: the one with this name, and those with a number after it, by number."""
    for stem in (given,) if given else KNOWN["negative"]:
        numbered = {name: name.removeprefix(f"{stem}_") for name in names if name.startswith(f"{stem}_")}
        ordered = sorted((name for name, rest in numbered.items() if rest.isdecimal()), key=lambda n: int(numbered[n]))
        if found := (*((stem,) if stem in names else ()), *ordered):
            return found
    return ()


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
