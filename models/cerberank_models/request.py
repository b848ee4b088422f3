"""The request of a question: its fields, their limits, and the errors that name what is wrong.

`POST /v1/rank`, `cerberank.Ranker`, `cerberank.Client` and `cerberank rank` check texts and options by this module, so
that they accept the same and say the same. In Python an option that is None counts as left out.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any, Self, TypedDict

import numpy as np
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticUseDefault

from cerberank_models.encoding import Candidate
from cerberank_models.tokens import replace_surrogates
from cerberank_models.windows import Reading

MOST_FIELDS = 64
"""The most fields of an object in a request."""

Few = Field(max_length=64, fail_fast=True)
"""Length limits of every list but that of the candidates."""

WORD = re.compile(r"\w")
CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""The places of the underscores in a name such as topK."""
INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Mn", "Me"})
"""Unicode's categories of characters that show nothing when they stand alone."""
REPLACEMENT = "\ufffd"

MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "too_long": "holds far more items than this service takes; send fewer",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "union_tag_not_found": "must be a text or an object",
}
"""Messages that replace pydantic's own, by its error type, to tell a client what to change."""
REMEDIES = {
    ("candidates", "list_type"): ', such as ["a text", {"text": "another", "id": 7}]',
    ("min_score", "less_than_equal"): ", as scores are probabilities: 0.5 is 50 %",
    ("min_precision", "less_than"): ": 0.85 is 85 %",
    ("drop_ratio", "less_than"): ": 0.2 drops a fifth of the candidates at each exit",
}
"""The ends of some messages, by field and error type, where the right value may not be known."""

EXAMPLE: JsonValue = {
    "question": "How tall is the Eiffel Tower?",
    "candidates": [
        "The Eiffel Tower was built for the World's Fair of 1889.",
        "With its antennas the Eiffel Tower is 330 metres tall.",
        {"id": "s3", "text": "It was painted again last year.", "metadata": {"page": 3}},
    ],
    "top_k": 2,
}


def is_blank(text: str) -> bool:
    r"""True for a text without a visible character, such as blanks, zero-width characters or a lone accent.

    A tokenizer that cleans its texts makes no token of such a text, so a model would read nothing.

    >>> is_blank(" \u200b\ufeff"), is_blank("?"), is_blank("\N{GRINNING FACE}")
    (True, False, False)
    """
    if WORD.search(text):
        return False
    # A set, because a body may hold megabytes of one such character.
    return all(unicodedata.category(each) in INVISIBLE or each == REPLACEMENT for each in set(text))


def not_blank(text: str) -> str:
    """Refuse a question without a visible character."""
    if is_blank(text):
        raise ValueError("must not be blank")
    return text


QuestionText = Annotated[str, AfterValidator(not_blank)]
"""The text of a question."""

Ratio = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]


class Wire(BaseModel):
    """A strict model: unknown fields (such as misspelt options) and values of another type ("3" for 3) are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        """Refuse an object with very many fields by one error instead of one for each field."""
        if isinstance(value, dict) and len(value) > MOST_FIELDS:
            raise ValueError("has far too many fields")
        return value


def _id_kind(value: Any) -> str:
    return "<text>" if isinstance(value, str) else "<number>"


IdIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[int, Field(ge=-(2**63), lt=2**64), Tag("<number>")],
    Discriminator(_id_kind),
]
"""A candidate's id, such as a database key: a text, or an integer of 64 bits."""


class CandidateObject(Wire):
    """A candidate with the caller's id and its neighbouring sentences."""

    id: IdIn | None = None
    text: str
    previous: str | None = None
    next: str | None = None
    metadata: Annotated[
        dict[str, Any] | None, Field(description="Anything; it is not read, and comes back with the result.")
    ] = None


def candidate_kind(value: Any) -> str | None:
    """The tag of the union's branch, so that error messages only mention that branch; None for any other type."""
    return "<text>" if isinstance(value, str) else "<object>" if isinstance(value, dict) else None


def _ratio_kind(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


CandidateIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[CandidateObject, Tag("<object>")], Discriminator(candidate_kind)
]
DropRatioIn = Annotated[
    Annotated[Ratio, Tag("<number>")] | Annotated[list[Ratio], Few, Tag("<list>")], Discriminator(_ratio_kind)
]
OTHER_NAMES = {"question": "query", "candidates": "documents", "top_k": "top_n"}
"""Names that other services have for three fields; a request may use one of each two."""
OWN_NAMES = {other: own for own, other in OTHER_NAMES.items()}
MEANT = {
    **dict.fromkeys(("content", "page_content", "passage", "document", "body"), "text"),
    **dict.fromkeys(("texts", "passages", "docs", "contexts"), "candidates"),
    **dict.fromkeys(("k", "n", "limit", "top"), "top_k"),
    **dict.fromkeys(("threshold", "score_threshold"), "min_score"),
    **dict.fromkeys(("alpha", "drop"), "drop_ratio"),
    "lexical": "lexical_ratio",
    "return_documents": "return_text",
}
"""The field that is meant by a name of another service's or library's."""


def _either(name: str) -> AliasChoices:
    return AliasChoices(name, OTHER_NAMES[name])


QUESTION = Field(
    description="The question; it must not be blank. `query` is another name.", validation_alias=_either("question")
)
CANDIDATES = Field(
    description="Texts, or objects with id, text, previous, next and metadata. `documents` is another name.",
    validation_alias=_either("candidates"),
)

Texts = Iterable[str | Candidate | Mapping[str, Any]]
"""The candidates of a call in Python: texts, or objects with `text` and perhaps `id`, `previous` and `next`."""
Questions = Iterable[str | Mapping[str, Any]]
"""Several questions of a call in Python: texts, or objects with the fields of a request."""


class Options(TypedDict, total=False):
    """The options of a question in Python: `RankOptions` with the types that callers may give."""

    top_k: int | None
    min_score: float | None
    min_precision: float | None
    drop_ratio: float | Sequence[float] | None
    lexical_ratio: float | None
    deadline_ms: float | None
    windows: Reading | None
    instruction: str | None
    return_heads: bool | None


class ServiceOptions(Options, total=False):
    """The options of a question to a service."""

    model: str | None
    latency_target_ms: float | None
    priority: int | None


class QuestionIn(Wire):
    """A question and its candidates."""

    question: Annotated[QuestionText, QUESTION]
    candidates: Annotated[list[CandidateIn], Field(fail_fast=True), CANDIDATES]


class RankOptions(Wire):
    """The options of a question."""

    model: Annotated[str | None, Field(description="Name of the model; the default model if left out.")] = None
    top_k: Annotated[
        int | None,
        Field(
            ge=1,
            description="Results to return; all when left out. `top_n` is another name.",
            validation_alias=_either("top_k"),
        ),
    ] = None
    min_score: Annotated[
        float | None,
        Field(
            le=1.0,
            allow_inf_nan=False,
            description="Leave out results whose `score` is lower or null; applied last, after `top_k`.",
        ),
    ] = None
    min_precision: Annotated[
        float | None,
        Field(
            gt=0.0,
            lt=1.0,
            description="Leave out results whose `score` is below the model's threshold for this precision of first "
            "results (`calibration` in `/v1/models`); only for calibrated models.",
        ),
    ] = None
    drop_ratio: Annotated[
        DropRatioIn | None,
        Field(description="Share of the candidates that each exit drops: one number, or one per exit."),
    ] = None
    lexical_ratio: Annotated[
        Ratio | None,
        Field(
            description="Share of the candidates that is dropped before any stage, by the words that they share with "
            "the question; 0 if left out beside `drop_ratio`."
        ),
    ] = None
    deadline_ms: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Answer after this time, with the best order known by then."),
    ] = None
    latency_target_ms: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Use the tuned schedule that drops least and meets this time."),
    ] = None
    windows: Annotated[
        Reading | None,
        Field(
            description="Read a long text in overlapping windows; its score is that of the best window, or the mean. "
            "`off` cuts the text. The model's own rule (`windows` in `/v1/models`) if left out."
        ),
    ] = None
    priority: Annotated[int, Field(ge=0, le=999, description="0 is the highest; a hundred more halve the share.")] = 0
    instruction: Annotated[
        str | None, Field(description="The task in words, for models with a prompt; others refuse it.")
    ] = None
    return_text: Annotated[bool, Field(description="Repeat each candidate's text in the answer.")] = False
    return_heads: Annotated[bool, Field(description="Give each head's probability.")] = False

    @field_validator("priority", "return_text", "return_heads", mode="before")
    @classmethod
    def _null_is_left_out(cls, value: Any) -> Any:
        if value is None:
            raise PydanticUseDefault
        return value


class RankRequest(RankOptions, QuestionIn):
    """A question and its candidates."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    @classmethod
    def of(cls, question: str | None = None, candidates: Texts | None = None, **options: object) -> Self:
        """The request of a call in Python, whose candidates are read once; what is None is left out.

        Numbers and texts may be those of numpy and pandas. Lone surrogates become U+FFFD. Raises ValueError, which
        names the field.
        """
        return cls.from_fields({"question": question, "candidates": candidates, **options})

    @classmethod
    def each_of(cls, questions: Questions, candidates: Texts | None = None, **options: object) -> list[Self]:
        """The requests of several questions in Python, in their order (`with_shared`). Raises ValueError as `of` does.

        The message begins with the place of the question that it is about.
        """
        shared = options if candidates is None else {**options, "candidates": _items(candidates, "candidates")}
        requests = []
        for place, question in enumerate(_items(questions, "questions", "questions")):
            fields = with_shared(question, shared)
            try:
                if not isinstance(fields, Mapping):
                    raise ValueError(f"must be a text or an object, not {type(question).__name__}")
                requests.append(cls.from_fields(fields))
            except ValueError as error:
                raise ValueError(f"questions[{place}]: {error}") from None
        return requests

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> Self:
        """The request with these fields, by either of their names. Raises ValueError as `of` does."""
        fields = {
            name: _items(value, name) if OWN_NAMES.get(name, name) == "candidates" else _plain(value)
            for name, value in given.items()
            if value is not None
        }
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            raise ValueError(describe_problems(problems)) from None

    @property
    def ratios(self) -> float | tuple[float, ...] | None:
        """`drop_ratio` as `drop.drop_ratios` takes it."""
        return tuple(self.drop_ratio) if isinstance(self.drop_ratio, list) else self.drop_ratio

    @property
    def ids(self) -> tuple[str | int | None, ...]:
        """The caller's id of each candidate."""
        return tuple(None if isinstance(item, str) else item.id for item in self.candidates)

    @property
    def metadata(self) -> tuple[Mapping[str, Any] | None, ...]:
        """The caller's metadata of each candidate."""
        return tuple(None if isinstance(item, str) else item.metadata for item in self.candidates)

    @property
    def characters(self) -> int:
        """The characters of all candidates."""
        return characters_of(self.candidates)

    def texts(self) -> tuple[Candidate, ...]:
        """The candidates as encoders read them."""
        return tuple(
            Candidate(text=item)
            if isinstance(item, str)
            else Candidate(text=item.text, previous=item.previous or "", next=item.next or "")
            for item in self.candidates
        )

    def body(self) -> dict[str, Any]:
        """The body of `/v1/rank`, without the fields that were left out."""
        objects = [item if isinstance(item, str) else _chosen_fields(item) for item in self.candidates]
        return _chosen_fields(self) | {"candidates": objects}


def with_shared(question: Any, shared: Mapping[str, Any]) -> Any:
    """The fields of one of several questions: its own, and those of `shared` that it does not have by either name.

    A question may be its text alone. What is neither a text nor an object is returned as it is.

    >>> with_shared({"query": "who?", "top_k": 2}, {"candidates": ["a"], "top_k": 1})
    {'candidates': ['a'], 'query': 'who?', 'top_k': 2}
    """
    fields = {"question": question} if isinstance(question, str) else question
    if not isinstance(fields, Mapping):
        return question
    own = {OWN_NAMES.get(name, name) for name in fields}
    return {name: value for name, value in shared.items() if OWN_NAMES.get(name, name) not in own} | dict(fields)


def characters_of(candidates: Iterable[Any]) -> int:
    """The characters of the texts of candidates, which may be parsed JSON; anything else counts as empty."""
    texts = (each.get("text") if isinstance(each, dict) else getattr(each, "text", each) for each in candidates)
    return sum(len(text) for text in texts if isinstance(text, str))


def _items(values: Any, name: str, kind: str = "texts") -> list[Any]:
    """The items of a list in Python, which is read once. Raises ValueError."""
    if not isinstance(values, str | bytes | Mapping | Candidate) and getattr(values, "ndim", 1) == 1:
        try:
            return list(map(_plain, values))
        except TypeError:
            pass
    raise ValueError(f"{name}: must be a list of {kind}, not {type(values).__name__}")


def _chosen_fields(model: Wire) -> dict[str, Any]:
    return {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}


def _plain(value: Any) -> Any:
    """A value of Python, numpy or pandas as JSON has it; values of other kinds are returned as they are."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Candidate):
        around = {"previous": value.previous, "next": value.next}
        return _plain({"text": value.text} | {name: text for name, text in around.items() if text})
    if isinstance(value, Mapping):
        return {name: part if name == "metadata" else _plain(part) for name, part in value.items() if part is not None}
    if isinstance(value, Integral | Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1:
        return list(map(_plain, value))
    return value


def checked_pair(pair: Iterable[str], place: int) -> tuple[str, str]:
    """A question and a text. Raises ValueError, which names the place, for anything else, such as a text alone."""
    parts = () if isinstance(pair, str | bytes | Mapping) or not isinstance(pair, Iterable) else tuple(pair)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"pairs[{place}]: must be a question and a text")
    return parts[0], parts[1]


def describe_problems(problems: Sequence[Mapping[str, Any]]) -> str:
    """The first three of pydantic's problems as one message."""
    shown = "; ".join(_problem(problem) for problem in problems[:3])
    return shown + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")


def _problem(problem: Mapping[str, Any]) -> str:
    own = problem["msg"].removeprefix("Value error, ").replace(" after validation", "")
    own = own.replace("Input should be", "must be").replace("List should have", "must have")
    message = MESSAGES.get(problem["type"], own)
    name = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        message += _meant(str(problem["loc"][-1]))
    message += REMEDIES.get((OWN_NAMES.get(name, name), problem["type"]), "")
    return f"{_place(problem['loc'])[:100]}: {message}"


def _meant(name: str) -> str:
    """The end of a message about an unknown field: the field that the caller may have meant."""
    if name in OWN_NAMES:
        return f" beside {OWN_NAMES[name]}, which it is another name of; send one of them"
    known = [*RankRequest.model_fields, *CandidateObject.model_fields, *OTHER_NAMES.values()]
    if name in known:
        return ""  # a field of the other object
    name = CAPITAL.sub("_", name[:40]).lower()
    meant = MEANT.get(name) or next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), None)
    return "" if meant is None else f"; is {meant} meant?"


def _place(location: Iterable[int | str]) -> str:
    """The path of a field, such as `candidates[3].text`, without union tags (which are in angle brackets)."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not part.startswith("<"):
            place += f".{part}" if place else part
    return place or "body"
