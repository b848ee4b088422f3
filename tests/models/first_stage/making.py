"""A store made on the spot, by an encoder that counts what it encodes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.first_stages import first_stage_config, network_of, ranker_of
from tests.tiny import WORDS, bert_tokenizer

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.embedding import embed, encoder_of
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.shards import map_here
from cerberank_models.text_encoding import TextEncoder

SHAPES: list[dict[str, Any]] = [{"token_ranker": "dot"}, {"first_ranker": "residual", "token_ranker": "colbert"}]

TEXTS = [*WORDS, "", "\ud800", *(f"{word} tower" for word in WORDS), *WORDS[:7]]
SHAPES: list[dict[str, Any]] = [{"token_ranker": "dot"}, {"first_ranker": "residual", "token_ranker": "colbert"}]


class Counting:
    """An encoder that counts what it encodes, and dies after some texts."""

    def __init__(self, shape: dict[str, Any], *, dies_after: int = 10**9) -> None:
        self.inner = TorchEncoder(network_of(ranker_of(shape), first_stage_config(**shape)))
        self.config, self.precision, self.left, self.count = self.inner.config, "fp32", dies_after, 0

    def encode(self, texts: EncodedPairs) -> list[Vector]:
        self.left -= len(texts)
        if self.left < 0:
            raise KeyboardInterrupt
        self.count += len(texts)
        return list(self.inner.encode(texts))


def made(folder: Path, backend: Counting, texts: list[str] = TEXTS, graph: str = "a") -> Path:
    encoder = TextEncoder(bert_tokenizer(), backend.config)
    names = {"inputs": sha256(json.dumps(texts).encode()).hexdigest(), "computed_by": graph * 64}
    shard_map, config = map_here(encoder_of(backend, encoder)), backend.config
    embed(
        lambda: iter(texts),
        folder / "store",
        **names,
        config=config,
        precision=backend.precision,
        shard_map=shard_map,
        shard=16,
    )
    return folder / "store"
