"""A deterministic stand-in for a first stage's encoder, with faults on demand, and engines' backends that have one."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from tests.service.fakes import (
    GIVES_NAN,
    RAISES,
    TOKEN_ID,
    FakeBackend,
    FakeState,
    Faults,
    checkpoint_for,
    ranker_config,
    tokenizer,
)

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.checkpoint.first_stage_files import GOLDEN
from cerberank_models.checkpoint.folder import Checkpoint, GoldenCandidate, GoldenQuestion
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.backend import WithFirstStage
from cerberank_models.first_stage.question_texts import FirstStage
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.vector_store import (
    DIGESTS,
    MANIFEST,
    VECTORS,
    StoreManifest,
    describe_files,
    text_digests,
)
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_service.versions.loading import Loaded, Loader

WIDTH = 4
ENCODER = "e" * 64


def config_with_first_stage(schedule: tuple[float, ...] = (), *, encoder: str = ENCODER) -> RankerConfig:
    """The fake ranker behind a first stage: four scored stages."""
    config = ranker_config()
    first = TextRankerConfig(
        encoder=encoder,
        transformer=config.transformer,
        token_ranker="dot",
        encoding=TextEncodingConfig(question_length=24, document_length=32, window=32),
    )
    return config.model_copy(update={"first_stage": first, "drop_schedule": schedule})


@dataclass
class FakeVectors:
    """Fulfils `VectorBackend`: a text's vector follows from its token ids; remembers what it encoded."""

    config: TextRankerConfig
    faults: Faults = field(default_factory=Faults)
    precision: str = "fp32"
    encoded: list[int] = field(default_factory=list)
    """The number of texts of each call."""
    entered: threading.Event = field(default_factory=threading.Event)

    def encode(self, texts: EncodedPairs) -> Sequence[Vector]:
        self.entered.set()
        if self.faults.gate is not None:
            assert self.faults.gate.wait(timeout=30), "the test never opened the gate"
        parts = [texts.token_ids[a:b] for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True)]
        if self.faults.always or any(TOKEN_ID[RAISES] in part for part in parts):
            raise self.faults.error()
        if self.faults.memory_tokens is not None and texts.tokens > self.faults.memory_tokens:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.encoded.append(len(parts))
        return [_vector(part.tobytes(), bad=TOKEN_ID[GIVES_NAN] in part) for part in parts]


def _vector(ids: bytes, *, bad: bool) -> Vector:
    numbers = np.asarray([zlib.crc32(bytes([place]) + ids) / 2**32 - 0.5 for place in range(WIDTH)])
    unit: Vector = (numbers / np.linalg.norm(numbers)).astype(np.float16)
    return np.full_like(unit, np.nan) if bad else unit


def with_first_stage(
    config: RankerConfig | None = None, *, first: Faults | None = None, pairs: Faults | None = None
) -> tuple[WithFirstStage[FakeState], FakeVectors, FakeBackend]:
    """A backend whose stage 0 is a fake first stage, and its two parts."""
    config = config or config_with_first_stage()
    assert config.first_stage is not None
    vectors = FakeVectors(config.first_stage, first or Faults())
    backend = FakeBackend(config, pairs or Faults())
    return WithFirstStage(vectors, backend), vectors, backend


def loaded_with_first_stage(checkpoint: Checkpoint, vectors: FakeVectors, pairs: FakeBackend) -> Loaded:
    """The checkpoint with a first stage whose golden scores are the fake's own; its tokenizer is that of the pairs."""
    encoder = TextEncoder(tokenizer(), vectors.config, tokenizer_digest="first")
    scorer = FirstStageScorer(vectors.config, {})
    texts = ("the tower", "it was built in 1889", "")
    first = FirstStage(backend=vectors, encoder=encoder, scorer=scorer)
    recording = replace(first, backend=FakeVectors(vectors.config))
    scores = recording.compute(recording.read("how tall?", texts))
    golden = GoldenQuestion(
        question="how tall?",
        candidates=tuple(GoldenCandidate(text=text) for text in texts),
        scores={"fp32": tuple(scores.tolist())},
        tolerance={"fp32": 1e-6},
    )
    path = checkpoint.path / GOLDEN
    path.parent.mkdir(exist_ok=True)
    path.write_text(golden.model_dump_json() + "\n")
    return Loaded(
        replace(checkpoint, config=pairs.config),
        pairs,
        first,
    )


def load_with_first_stage(folder: Path, vectors: FakeVectors, pairs: FakeBackend) -> Loader:
    """The loader for `create_app`, which reads no checkpoint."""
    return lambda checkpoint, settings: loaded_with_first_stage(checkpoint_for(pairs, folder), vectors, pairs)


def store_of(folder: Path, vectors: FakeVectors, texts: Sequence[str], *, encoder: str) -> Path:
    """A store of the fake's vectors of `texts`."""
    tokens = TextEncoder(tokenizer(), vectors.config).candidates(texts)
    numbers = np.stack(FakeVectors(vectors.config).encode(tokens))
    digests = text_digests(texts)
    places = np.lexsort((digests[:, 1], digests[:, 0]))
    folder.mkdir()
    np.save(folder / DIGESTS, digests[places])
    np.save(folder / VECTORS, numbers[places])
    manifest = StoreManifest(
        encoder=encoder,
        precision="fp32",
        texts=len(texts),
        width=WIDTH,
        inputs="0" * 64,
        computed_by="0" * 64,
        files=describe_files(folder),
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json())
    return folder
