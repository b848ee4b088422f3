"""Small text rankers with random weights, and texts of given lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.tiny import hugging_face_config

from cerberank_models.convert.from_hugging_face import initialise, transformer_config
from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.network.texts import Texts
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig
from cerberank_models.transformer import Family

ENCODING = TextEncodingConfig(question_length=12, document_length=40, window=16)
MONO: dict[str, Any] = {"joint": True, "first_ranker": "linear"}
TWIN: dict[str, Any] = {"token_ranker": "twin"}
COLBERT: dict[str, Any] = {"token_ranker": "colbert"}
TR_TWIN: dict[str, Any] = {"first_ranker": "residual", "token_ranker": "twin"}
TR_COLBERT: dict[str, Any] = {"first_ranker": "residual", "token_ranker": "colbert"}
JOINT_TWIN: dict[str, Any] = {**TR_TWIN, "joint": True}
JOINT_COLBERT: dict[str, Any] = {**TR_COLBERT, "joint": True}
SHAPES = [MONO, TWIN, COLBERT, TR_TWIN, TR_COLBERT, JOINT_TWIN, JOINT_COLBERT]
NAMES = ["mono", "twin", "colbert", "tr-twin", "tr-colbert", "joint-twin", "joint-colbert"]


def text_ranker(
    shape: dict[str, Any],
    *,
    family: Family = "bert",
    seed: int = 0,
    dropout: float = 0.0,
    encoding: TextEncodingConfig = ENCODING,
    **changes: object,
) -> TextRanker:
    """Two layers, every weight random and large enough that mistakes show."""
    transformer = transformer_config(hugging_face_config(family, num_hidden_layers=2, **changes))
    torch.manual_seed(seed)
    config = TextRankerConfig(name="random", transformer=transformer, projection=8, encoding=encoding, **shape)
    ranker = TextRanker(config, dropout=dropout)
    initialise(ranker, seed=seed, deviation=0.3)
    return ranker.eval()


def with_unused_tokens(base: Path) -> Path:
    """The folder, in whose vocabulary `[unused0]` and `[unused1]` stand in place of two letters, as in BERT's own."""
    file = base / "tokenizer.json"
    text = file.read_text(encoding="utf-8")
    for number, letter in enumerate("yz"):
        assert f'"##{letter}"' in text
        text = text.replace(f'"##{letter}"', f'"[unused{number}]"')
    file.write_text(text, encoding="utf-8")
    return base


def texts(windows: list[list[int]], *, seed: int = 0) -> Texts:
    """Texts with windows of the given lengths, special tokens (2 first, 3 last) included."""
    generator = np.random.default_rng(seed)
    pieces = [[2, *generator.integers(5, 60, length - 2), 3] for text in windows for length in text]
    return Texts(
        torch.tensor([number for piece in pieces for number in piece], dtype=torch.int32),
        torch.tensor([0, *map(len, pieces)]).cumsum(0),
        torch.tensor([0, *map(len, windows)]).cumsum(0),
    )


def rows(batch: Texts, chosen: list[int]) -> Texts:
    """Some of the texts, in the given order."""
    pieces = [[window_ids(batch, w) for w in range(int(batch.windows[i]), int(batch.windows[i + 1]))] for i in chosen]
    flat = [piece for text in pieces for piece in text]
    return Texts(
        torch.cat(flat), torch.tensor([0, *map(len, flat)]).cumsum(0), torch.tensor([0, *map(len, pieces)]).cumsum(0)
    )


def window_ids(batch: Texts, window: int) -> torch.Tensor:
    """The token ids of one window."""
    return batch.token_ids[batch.offsets[window] : batch.offsets[window + 1]]
