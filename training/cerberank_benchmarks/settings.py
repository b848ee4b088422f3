"""What the benchmarks share: how much they measure, on which texts, with which weights, against whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The options of `cerberank bench`. A report is valid for the settings that it was made with."""

    candidates: tuple[int, ...] = (200, 1000)
    """Per question."""
    rounds: int = 5
    """Times that everything which is compared runs, in turn."""
    words: tuple[int, int] = (12, 60)
    """Words of a made-up candidate, least and most; `data` gives real ones instead."""
    data: str | None = None
    """`FORMAT:PATH` of questions whose candidates are taken, but for the longest."""
    questions: int = 40
    """Of `data`, for what is measured question by question."""
    model: Path | None = None
    """A Hugging Face cross-encoder; None makes one of all-MiniLM-L6-v2's shape with random weights."""
    tokenizer: Path | None = None
    """`tokenizer.json` for the made one; None takes the bundled checkpoint's."""
    layers: int = 6
    """Of the networks that are made."""
    width: int = 384
    """Of their hidden states, in attention heads of 32."""
    checkpoint: Path | None = None
    """What is served where weights matter or load is measured; None serves the bundled one."""
    infinity: Path | None = None
    """Python of an environment with infinity-emb, to measure it too."""
    precision: str = "int8"
    seconds: float = 60.0
    """Of each phase of `load`, and of `closed` and `fairness` in all."""
    slack: float = 5.0
    """Times its own compute time that a question may take, beyond a second, before it counts as late."""
    mix: tuple[tuple[int, float], ...] = ((20, 0.6), (200, 0.3), (1000, 0.08), (5000, 0.02))
    """Sizes of questions under load, with their shares."""
    seed: int = 0
