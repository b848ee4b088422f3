"""The manifest of a checkpoint, and its golden questions, whose recorded scores every backend must reproduce."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen

MANIFEST = "manifest.json"
LONGEST_NAME, LONGEST_PATH = 255, 1000
"""The most bytes of a file name, and of a path within a checkpoint. File systems limit names to 255 bytes, and whole
paths to 4096."""
MOST_FILES = 1000
"""The most files of a checkpoint. One with 20 stages in three precisions has 130."""
MOST_METRICS = 200
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Manifest(Frozen):
    """The content of `manifest.json`, which is written last. A folder without it is not a checkpoint."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    created: str
    """The time in UTC, as ISO 8601."""
    source: str
    """The origin of the weights, such as a recipe with its commit or a Hugging Face id."""
    metrics: dict[str, Finite] = Field(default_factory=dict, max_length=MOST_METRICS)
    files: Annotated[dict[str, Sha256], Field(max_length=MOST_FILES)]
    """The SHA-256 of every other file, by its path within the folder."""

    @field_validator("files")
    @classmethod
    def _stay_within(cls, files: dict[str, str]) -> dict[str, str]:
        if outside := [name for name in files if not is_path_within(name)]:
            raise ValueError(f"{outside[0][:LONGEST_PATH]!r} is not a path within the checkpoint")
        paths = sorted(name.split("/") for name in (*files, MANIFEST))  # a path below a file follows that file
        if clash := [below for file, below in pairwise(paths) if below[: len(file)] == file]:
            raise ValueError(f"{'/'.join(clash[0])!r} has the path of another file, or lies below one")
        return files


def is_path_within(name: str) -> bool:
    r"""True for a relative path that stays within its folder and has no empty, `.` or `..` part.

    >>> [is_path_within(name) for name in ("onnx/int8/stage-0.onnx", "../x", "/etc/passwd", "a\0b", "a" * 300)]
    [True, False, False, False, False]
    """
    parts = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and not {"", ".", ".."}.intersection(parts)
        and len(name.encode()) <= LONGEST_PATH
        and max(len(part.encode()) for part in parts) <= LONGEST_NAME
    )


class GoldenCandidate(Frozen):
    """A candidate of a golden question."""

    text: str
    previous: str = ""
    next: str = ""


class GoldenQuestion(Frozen):
    """One line of `golden.jsonl`: a question and the scores that each precision must give it.

    Scores are computed without dropping. `tolerance` is the largest allowed difference of scores, by precision.
    """

    question: str
    candidates: Annotated[tuple[GoldenCandidate, ...], Field(min_length=1)]
    scores: dict[str, tuple[Finite, ...]]
    tolerance: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]

    @property
    def texts(self) -> tuple[Candidate, ...]:
        """The candidates as encoders read them."""
        return tuple(Candidate(text=each.text, previous=each.previous, next=each.next) for each in self.candidates)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if set(self.scores) != set(self.tolerance):
            raise ValueError("scores and tolerance must name the same precisions")
        for precision, scores in self.scores.items():
            if len(scores) != len(self.candidates):
                raise ValueError(f"{precision}: {len(scores)} scores for {len(self.candidates)} candidates")
        return self
