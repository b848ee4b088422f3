"""Stand-in until the models side is merged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cerberank_models.backends.contract import Vector


@dataclass(frozen=True)
class VectorStore:
    """Vectors."""

    encoder: str
    vectors: Mapping[str, Vector]

    @classmethod
    def open(cls, path: Path) -> VectorStore:
        """Open."""
        content = json.loads((path / "vectors.json").read_text())
        return cls(content["encoder"], {k: np.asarray(v, np.float16) for k, v in content["vectors"].items()})

    def __len__(self) -> int:
        """Size."""
        return len(self.vectors)

    def find(self, texts: Sequence[str]) -> list[Vector | None]:
        """Find."""
        return [self.vectors.get(text) for text in texts]
