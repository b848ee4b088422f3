"""The settings that all benchmarks share: sizes, texts, weights and peers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DataNeededError(ValueError):
    """The benchmark needs questions with labels, or exactly one set of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkSettings:
    """The options of `python -m cerberank_benchmarks`. A report is reused only for equal settings."""

    candidates: tuple[int, ...] = (200, 1000)
    """The numbers of candidates per question."""
    rounds: int = 5
    """Number of runs of each compared system."""
    words: tuple[int, int] = (12, 60)
    """Least and most words of a generated candidate; with `data`, the most words of a real candidate."""
    data: tuple[str, ...] = ()
    """`FORMAT:PATH` of questions whose candidates are used; only `frontier` takes several."""
    questions: int = 40
    """Number of questions of `data`, for benchmarks that measure questions one by one."""
    model: Path | None = None
    """A Hugging Face cross-encoder; None generates one with all-MiniLM-L6-v2's shape and random weights."""
    tokenizer: Path | None = None
    """`tokenizer.json` for generated networks; None for the bundled checkpoint's tokenizer."""
    layers: int = 6
    """The number of layers of generated networks."""
    width: int = 384
    """The width of generated networks; see `weights.head_width` for the width of their attention heads."""
    checkpoint: Path | None = None
    """The checkpoint for benchmarks of accuracy and load; None for the bundled one."""
    bi_encoder: Path | None = None
    """A sentence-transformers bi-encoder for `frontier`; None leaves it out."""
    infinity: Path | None = None
    """The Python of an environment with infinity-emb; None leaves infinity-emb out."""
    precision: str = "int8"
    seconds: float = 60.0
    """The duration of each phase of `load`, and the whole duration of `closed`."""
    queue_seconds: float = 5.0
    """A question of `load` is late if it takes longer than its own compute time plus these seconds."""
    mix: tuple[tuple[int, float], ...] = ((20, 0.6), (200, 0.3), (1000, 0.08), (5000, 0.02))
    """Sizes of questions under load, with their shares."""
    seed: int = 0

    def one_set(self, benchmark: str) -> str:
        """The only set of `data`. Raises DataNeededError for none or several."""
        if len(self.data) != 1:
            raise DataNeededError(f"{benchmark} needs one set of questions with labels: --data FORMAT:PATH")
        return self.data[0]
