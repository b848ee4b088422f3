"""The columns of a table: questions, texts and labels. They have known names, or names that options give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


class Columns(ColumnOptions):
    """The names of a table's columns by their content; empty if there is no such column."""

    negatives: tuple[str, ...] = ()
    """All columns that `negative` includes."""

    @classmethod
    def of(cls, names: Sequence[str], options: ColumnOptions, place: str) -> Columns:
        """Find the columns among `names`. Raises DataError, which lists the columns, if the choice is not clear."""
        columns = {field: _one(field, getattr(options, field), names, place) for field in KNOWN if field != "negative"}
        if columns["text"] and columns["positive"] and not (options.text or options.positive):
            raise DataError(
                f"{place}: both {columns['text']!r} and {columns['positive']!r} hold texts; name one of them"
            )
        if columns["positive"] and not options.text:
            columns["text"] = ""
        negatives = _negatives(options.negative, names) if columns["positive"] and not columns["text"] else ()
        missing = [field for field in ("question", "text") if not columns[field]]
        if columns["positive"] and not columns["text"]:
            needed = {"question": columns["question"], "negative": negatives}
            missing = [name for name, value in needed.items() if not value]
        elif not columns["label"]:
            missing.append("label")
        if missing:
            raise DataError(f"{place}: which column is the {missing[0]}? {missing[0]}=NAME names one of {_list(names)}")
        columns |= dict.fromkeys(OF_PAIRS if columns["positive"] and not columns["text"] else OF_POSITIVES, "")
        return cls(**columns, negatives=negatives, threshold=options.threshold)

    def unused(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are not read."""
        used = set(self.used)
        return [name for name in names if name not in used]

    @property
    def used(self) -> list[str]:
        """The names of the columns that are read."""
        single = [getattr(self, field) for field in KNOWN if field != "negative"]
        return [name for name in (*single, *self.negatives) if name]


def _one(field: str, option: str, names: Sequence[str], place: str) -> str:
    if option:
        if option not in names:
            raise DataError(f"{place}: there is no column {option!r} for {field}; there are {_list(names)}")
        return option
    present = [name for name in KNOWN[field] if name in names]
    if len(present) > 1:
        raise DataError(f"{place}: several columns may be the {field}: {_list(present)}; {field}=NAME names one")
    return present[0] if present else ""


def _negatives(option: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of negatives: the one with this name, and those with a number after it, by number."""
    for stem in (option,) if option else KNOWN["negative"]:
        numbered = {name: name.removeprefix(f"{stem}_") for name in names if name.startswith(f"{stem}_")}
        ordered = sorted((name for name, rest in numbered.items() if rest.isdecimal()), key=lambda n: int(numbered[n]))
        if columns := (*((stem,) if stem in names else ()), *ordered):
            return columns
    return ()


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
