"""The settings that all benchmarks share: how much they measure, on which texts, with which weights and peers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DataNeededError(ValueError):
    """Measuring accuracy needs questions with labels, and most benchmarks one set of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkSettings:
    """The options of `python -m cerberank_benchmarks`. A report is valid for the settings that it was made with."""

    candidates: tuple[int, ...] = (200, 1000)
    """The numbers of candidates per question."""
    rounds: int = 5
    """Number of runs of each of the compared systems."""
    words: tuple[int, int] = (12, 60)
    """Words of a made-up candidate, least and most; with `data`, candidates are real."""
    data: tuple[str, ...] = ()
    """`FORMAT:PATH` of questions whose candidates are used, except for the longest; `frontier` measures several."""
    questions: int = 40
    """Number of questions of `data` that are measured where each question is measured by itself."""
    model: Path | None = None
    """A Hugging Face cross-encoder; None generates one with all-MiniLM-L6-v2's shape and random weights."""
    tokenizer: Path | None = None
    """`tokenizer.json` for generated networks; None takes the bundled checkpoint's."""
    layers: int = 6
    """The layers of generated networks."""
    width: int = 384
    """The width of generated networks; their attention heads are 32 wide, from a width of 512 on 64."""
    checkpoint: Path | None = None
    """The checkpoint that is served where weights matter or load is measured; None serves the bundled one."""
    bi_encoder: Path | None = None
    """A sentence-transformers bi-encoder for `frontier`; None leaves it out."""
    infinity: Path | None = None
    """The Python of an environment with infinity-emb; None leaves infinity-emb out."""
    precision: str = "int8"
    seconds: float = 60.0
    """The duration of each phase of `load`, and of `closed` and `fairness` in all."""
    queue_seconds: float = 5.0
    """A question of `load` is late when it takes longer than this beyond its own compute time."""
    mix: tuple[tuple[int, float], ...] = ((20, 0.6), (200, 0.3), (1000, 0.08), (5000, 0.02))
    """Sizes of questions under load, with their shares."""
    seed: int = 0

    def one_set(self, benchmark: str) -> str:
        """The only set of `data`. Raises DataNeededError for none or several."""
        if len(self.data) != 1:
            raise DataNeededError(f"{benchmark} needs one set of questions with labels: --data FORMAT:PATH")
        return self.data[0]
