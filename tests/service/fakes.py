"""A deterministic stand-in for a trained ranker, with faults on demand. Everything around it is real.

Scores are hashes of the token ids, so that equal pairs score equal and nothing depends on the batch. Marker
words in a candidate's text cause faults: see `Faults`.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.backends.stage_contract import BackendCounts, StageOutput
from cerberank_models.checkpoint.folder import Checkpoint, GoldenCandidate, GoldenQuestion, Manifest
from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate, EncodedPairs, concat_pairs
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.transformer import TransformerConfig
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded, Loader

RAISES, GIVES_NAN = "explode", "nan"
MARKERS = (RAISES, GIVES_NAN)
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789?.,'-"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *MARKERS, *CHARACTERS, *(f"##{c}" for c in CHARACTERS)]
TOKEN_ID = {token: index for index, token in enumerate(VOCABULARY)}
BYTES_A_TOKEN = 16
"""Four numbers of four bytes."""
SECRET = "secret internals of the backend"


def ranker_config(
    *, exits: int = 2, heads: int = 3, head_layers: int = 1, schedule: tuple[float, ...] = ()
) -> RankerConfig:
    """A ranker of `exits` one-layer exits and then `heads` heads."""
    body = max(1, exits)
    return RankerConfig(
        name="fake-ranker",
        transformer=TransformerConfig(
            family="bert",
            vocab_size=len(VOCABULARY),
            hidden_size=4,
            layers=body + head_layers,
            attention_heads=1,
            intermediate_size=4,
            max_positions=64,
            embedding_size=4,
        ),
        architecture=ArchitectureConfig(body_layers=body, heads=heads, head_layers=head_layers),
        exits=tuple(ExitConfig(after=layer + 1) for layer in range(exits)),
        encoding=EncodingConfig(max_length=64, question_length=24),
        drop_schedule=schedule,
    )


@dataclass(frozen=True)
class FakeState:
    """The pairs themselves, and the stage that they wait for."""

    pairs: EncodedPairs
    stage: int


@dataclass
class Faults:
    """The faults, and their times."""

    stage: int = 0
    """The stage in which a candidate with the word `explode` raises, or one with `nan` scores NaN."""
    gate: threading.Event | None = None
    """If set, every run waits until the event is set."""
    always: bool = False
    """Every run raises."""
    memory_tokens: int | None = None
    """A run of more tokens raises as a device does that has no more memory."""
    error: Callable[[], BaseException] = lambda: RuntimeError(SECRET)
    """The exception that a fault raises."""


@dataclass
class FakeBackend:
    """Fulfils the stage contract, checks that its caller does, and remembers what it ran."""

    config: RankerConfig = field(default_factory=ranker_config)
    faults: Faults = field(default_factory=Faults)
    runs: list[tuple[int, int]] = field(default_factory=list)
    """(stage, pairs) of every run that succeeded."""
    precision: str = "int8"
    counts: BackendCounts = field(default_factory=BackendCounts)
    device_memory: DeviceMemory | None = None
    freed: int = 0
    """Number of times that memory was freed."""
    prepared: list[int] = field(default_factory=list)
    """The tokens of a step that it was prepared for."""
    entered: threading.Event = field(default_factory=threading.Event)
    """Set once a run has begun."""
    threads: set[str] = field(default_factory=set)

    def start(self, pairs: EncodedPairs) -> FakeState:
        return FakeState(pairs, 0)

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        assert state.stage == stage, f"a state that waits for stage {state.stage} was run through {stage}"
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        if self.faults.gate is not None:
            assert self.faults.gate.wait(timeout=30), "the test never opened the gate"
        if self.faults.always or (stage == self.faults.stage and self._rows_with(state.pairs, RAISES).any()):
            raise self.faults.error()
        if self.faults.memory_tokens is not None and state.pairs.tokens > self.faults.memory_tokens:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        columns = 1 if self.config.stages[stage].kind == "exit" else self.config.architecture.heads
        values = np.stack([_hashed(state.pairs, stage, column) for column in range(columns)], axis=1)
        if stage == self.faults.stage:
            values[self._rows_with(state.pairs, GIVES_NAN)] = np.nan
        self.runs.append((stage, len(state.pairs)))
        padding = int((state.pairs.lengths.max() - state.pairs.lengths).sum())
        self.counts += BackendCounts(padding_tokens=padding)
        last = stage == len(self.config.stages) - 1
        return StageOutput(
            state=None if last else FakeState(state.pairs, stage + 1),
            scores=values.mean(axis=1),
            head_scores=values if self.config.stages[stage].kind == "heads" else None,
        )

    def select(self, state: FakeState, rows: NDArray[np.integer]) -> FakeState:
        return FakeState(state.pairs.select(rows), state.stage)

    def concat(self, states: Sequence[FakeState]) -> FakeState:
        assert len({state.stage for state in states}) == 1, "states that wait for different stages were joined"
        return FakeState(concat_pairs([state.pairs for state in states]), states[0].stage)

    def state_bytes(self, state: FakeState) -> int:
        return BYTES_A_TOKEN * state.pairs.tokens

    def free_memory(self) -> None:
        self.freed += 1

    def prepare(self, step_tokens: int) -> None:
        self.prepared.append(step_tokens)

    @staticmethod
    def _rows_with(pairs: EncodedPairs, marker: str) -> NDArray[np.bool_]:
        spans = zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)
        return np.asarray([TOKEN_ID[marker] in pairs.token_ids[start:stop] for start, stop in spans], dtype=np.bool_)


def _hashed(pairs: EncodedPairs, stage: int, column: int) -> NDArray[np.float64]:
    spans = zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)
    salt = bytes([stage, column])
    return np.asarray([zlib.crc32(salt + pairs.token_ids[a:b].tobytes()) / 2**32 for a, b in spans])


def tokenizer() -> Tokenizer:
    """One token a character, and one for each marker word."""
    made = Tokenizer(WordPiece(vocab=TOKEN_ID, unk_token="[UNK]", max_input_chars_per_word=200))
    made.pre_tokenizer = BertPreTokenizer()
    return made


def checkpoint_for(backend: FakeBackend, folder: Path, *, tolerance: float = 1e-6) -> Checkpoint:
    """A checkpoint whose golden scores are the backend's own; only its tokenizer lies on disk."""
    content = tokenizer().to_str().encode()
    (folder / "tokenizer.json").write_bytes(content)
    files = {"tokenizer.json": hashlib.sha256(content).hexdigest()}
    checkpoint = Checkpoint(
        path=folder,
        config=backend.config,
        manifest=Manifest(version="7", created="2026-11-21T00:00:00+00:00", source="tests", files=files),
        golden=(),
    )
    texts = ("the tower is 330 metres tall", "it was built in 1889", "")
    pairs = checkpoint.encoder().encode("how tall is the tower?", [Candidate(text=text) for text in texts])
    clean = FakeBackend(backend.config)
    scores = rank_pairs(clean, pairs, RatioSchedule((0.0,) * (len(clean.config.stages) - 1))).scores
    golden = GoldenQuestion(
        question="how tall is the tower?",
        candidates=tuple(GoldenCandidate(text=text) for text in texts),
        scores={"int8": tuple(scores.tolist())},
        tolerance={"int8": tolerance},
    )
    return Checkpoint(path=folder, config=checkpoint.config, manifest=checkpoint.manifest, golden=(golden,))


def loader(backend: FakeBackend, folder: Path) -> Loader:
    """The loader for `create_app` whose checkpoint has the backend's own golden scores."""
    return lambda checkpoint, settings: Loaded(checkpoint_for(backend, folder), backend)


@contextmanager
def slow_loader(folder: Path) -> Iterator[Loader]:
    """A loader for `create_app` that returns at the end of the block."""
    gate, load = threading.Event(), loader(FakeBackend(), folder)

    def slowly(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        assert gate.wait(20)
        return load(checkpoint, settings)

    try:
        yield slowly
    finally:
        gate.set()
