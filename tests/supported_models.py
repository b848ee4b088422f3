"""The rerankers that can be served: the 23 of Hugging Face's table of November 2026, by twins with random weights.

`python -m tests.supported_models docs/supported-models.md` imports a tiny twin of each form, made by the library that
defines it, compares scores with that library, and writes the table into the page.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from tests.decoders import PROMPT, decoder_shape, last_logits, save_decoder
from tests.modular import save_modular
from tests.opaque import save_deberta
from tests.tiny import hugging_face_config, save_cross_encoder
from torch import nn

from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Scores, probability
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.decoders import decoder_config
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.hugging_face import ranker_config
from cerberank_models.encoding import Candidate, EncodedPairs
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

QUESTION = "how tall is the tower ?"
TEXTS = ["it is 330 metres", "", "it was built in paris . " * 4, "what do bees make honey from"]
BEGIN, END = "<!-- begin of the table -->\n", "<!-- end of the table -->\n"


def cross_encoder(family: str, **changes: object) -> Callable[[Path, str], Path]:
    return lambda folder, name: save_cross_encoder(
        family, folder / name, num_labels=1, **({"num_hidden_layers": 2} | changes)
    )


def ettin(folder: Path, name: str) -> Path:
    return save_modular("modernbert", folder, num_hidden_layers=2).rename(folder / name)


def decoder(family: str) -> Callable[[Path, str], Path]:
    return lambda folder, name: save_decoder(folder / name, family=family)


def deberta(folder: Path, name: str) -> Path:
    return save_deberta(folder / name)


def coded(folder: Path, name: str) -> Path:
    """A repository whose architecture is in Python files of its own."""
    (folder / name).mkdir(parents=True)
    described = {
        "model_type": "qwen2_vl",
        "architectures": ["JinaVLForRanking"],
        "auto_map": {"AutoModel": "code.Model"},
    }
    (folder / name / "config.json").write_text(json.dumps(described))
    (folder / name / "code.py").write_text("raise SystemExit('run')")
    return folder / name


Layers = tuple[int, int, int, int]
"""Layers, width, attention heads and inner width of a feed-forward, after the model's configuration."""
APACHE, MIT, NOT_COMMERCIAL = "Apache-2.0", "MIT", "CC-BY-NC-4.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A public model, after its card and its configuration."""

    name: str
    licence: str = APACHE
    layers: Layers | None = None
    """None where its speed is not measured: the network is opaque, or larger than this program measures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """Models that differ in size alone."""

    models: tuple[Model, ...]
    twin: Callable[[Path, str], Path]
    positions: int
    """The most tokens of a pair that the models read."""
    speed: Callable[[Layers], RankingNetwork] | None = None
    """A network of these layers with random weights."""


def encoder_of(family: str, pooling: str = "cls") -> Callable[[Layers], RankingNetwork]:
    changes: dict[str, object] = {"classifier_pooling": pooling} if family == "modernbert" else {}

    def made(layers: Layers) -> RankingNetwork:
        number, width, heads, inner = layers
        described = hugging_face_config(
            family,
            num_hidden_layers=number,
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=inner,
            max_position_embeddings=130,
            num_labels=1,
            **changes,
        )
        return RankingNetwork(ranker_config(described, name="shape", encoding=EncodingConfig(), logits=1))

    return made


def decoder_layers(family: str, head_size: int, shared: int) -> Callable[[Layers], RankingNetwork]:
    """A decoder with attention heads of this size, and `shared` heads of keys and values."""

    def made(layers: Layers) -> RankingNetwork:
        number, width, heads, inner = layers
        described = decoder_shape(
            family,
            num_hidden_layers=number,
            hidden_size=width,
            num_attention_heads=heads,
            num_key_value_heads=shared,
            head_dim=head_size,
            intermediate_size=inner,
        )
        return RankingNetwork(decoder_config(described, name="shape", encoding=EncodingConfig(prompt=PROMPT)))

    return made


ETTIN: Mapping[str, Layers | None] = {
    "1b": None,
    "400m": (28, 1024, 16, 2624),
    "150m": (22, 768, 12, 1152),
    "68m": (19, 512, 8, 768),
    "32m": (10, 384, 6, 576),
    "17m": (7, 256, 4, 384),
}
FORMS = (
    Form(
        models=(
            Model(name="Qwen/Qwen3-Reranker-4B"),
            Model(name="Qwen/Qwen3-Reranker-0.6B", layers=(28, 1024, 16, 3072)),
        ),
        twin=decoder("qwen3"),
        positions=40_960,
        speed=decoder_layers("qwen3", 128, 8),
    ),
    Form(
        models=(
            Model(name="mixedbread-ai/mxbai-rerank-large-v2"),
            Model(name="mixedbread-ai/mxbai-rerank-base-v2", layers=(24, 896, 14, 4864)),
        ),
        twin=decoder("qwen2"),
        positions=32_768,
        speed=decoder_layers("qwen2", 64, 2),
    ),
    Form(
        models=tuple(
            Model(name=f"cross-encoder/ettin-reranker-{size}-v1", layers=each) for size, each in ETTIN.items()
        ),
        twin=ettin,
        positions=7_999,
        speed=encoder_of("modernbert"),
    ),
    Form(models=(Model(name="jinaai/jina-reranker-m0", licence=NOT_COMMERCIAL),), twin=coded, positions=10_240),
    Form(
        models=(Model(name="zeroentropy/zerank-2-reranker", licence=NOT_COMMERCIAL),),
        twin=decoder("qwen3"),
        positions=32_768,
    ),
    Form(
        models=(
            Model(name="Alibaba-NLP/gte-reranker-modernbert-base", layers=(22, 768, 12, 1152)),
            Model(name="ibm-granite/granite-embedding-reranker-english-r2", layers=(22, 768, 12, 1152)),
        ),
        twin=cross_encoder("modernbert", classifier_pooling="mean"),
        positions=8_192,
        speed=encoder_of("modernbert", "mean"),
    ),
    Form(
        models=(Model(name="BAAI/bge-reranker-v2-m3", layers=(24, 1024, 16, 4096)),),
        twin=cross_encoder("xlm-roberta"),
        positions=8_192,
        speed=encoder_of("xlm-roberta"),
    ),
    Form(
        models=(
            Model(name="BAAI/bge-reranker-large", licence=MIT, layers=(24, 1024, 16, 4096)),
            Model(name="BAAI/bge-reranker-base", licence=MIT, layers=(12, 768, 12, 3072)),
        ),
        twin=cross_encoder("xlm-roberta"),
        positions=512,
        speed=encoder_of("xlm-roberta"),
    ),
    Form(
        models=tuple(
            Model(name=f"cross-encoder/ms-marco-MiniLM-L{number}-v2", layers=(number, 384, 12, 1536))
            for number in (4, 6, 12)
        ),
        twin=cross_encoder("bert"),
        positions=512,
        speed=encoder_of("bert"),
    ),
    Form(
        models=tuple(Model(name=f"mixedbread-ai/mxbai-rerank-{size}-v1") for size in ("xsmall", "base", "large")),
        twin=deberta,
        positions=512,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The result of a twin's import."""

    family: str
    score: str
    differences: Mapping[str, float]
    """The largest difference of a score from the library's, by backend and precision."""


def measure(form: Form, precisions: tuple[str, ...] = ("fp32", "int8")) -> Found | str:
    """The twin of a form, imported and compared; or why it was refused, in one line."""
    name = form.models[-1].name.rpartition("/")[2]
    with tempfile.TemporaryDirectory() as scratch:
        source = form.twin(Path(scratch), name)
        try:
            import_model(str(source), Path(scratch) / "out", ImportOptions(precisions=precisions))
        except UnsupportedModelError as error:
            return str(error).replace(str(source), "it")
        checkpoint = read_checkpoint(Path(scratch) / "out")
        pairs = checkpoint.encoder().encode(QUESTION, [Candidate(text=text) for text in TEXTS])
        expected = _own(source, checkpoint, pairs)
        runs = [("torch", each) for each in ("fp32",) if checkpoint.weights is not None]
        runs += [("onnx", each) for each in checkpoint.precisions]
        differences = {
            f"{kind} {precision}": float(
                np.abs(
                    rank_pairs(open_backend(checkpoint, kind=kind, precision=precision), pairs).scores - expected
                ).max()
            )
            for kind, precision in runs
        }
        config = checkpoint.config
        return Found(family=config.transformer.family, score=config.score_form, differences=differences)


def _own(source: Path, checkpoint: Checkpoint, pairs: EncodedPairs) -> Scores:
    """The scores by the library that defines the model."""
    prompt = checkpoint.config.encoding.prompt
    if prompt is None:
        model = CrossEncoder(str(source), device="cpu")
        texts = [(QUESTION, text) for text in TEXTS]
        return np.asarray(model.predict(texts, activation_fn=nn.Sigmoid(), show_progress_bar=False), dtype=np.float64)
    ids = [pairs.token_ids[a:b].tolist() for a, b in zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)]
    words = [word for word in (prompt.no, prompt.yes) if word is not None]
    logits = last_logits(source, ids, words)
    return probability((logits[:, -1] - (logits[:, 0] if prompt.no else 0)) / prompt.divisor)


PAIRS, TOKENS, ROUNDS = 64, 64, 3


def speed(ranker: RankingNetwork) -> float:
    """Tokens a second on this machine: torch in fp32, pairs of equal length, the median of some rounds after a first.

    A decoder's prefix is computed in every pair.
    """
    ids = np.ones(PAIRS * TOKENS, dtype=np.int32)
    pairs = EncodedPairs(
        token_ids=ids,
        type_ids=np.zeros_like(ids),
        offsets=np.arange(PAIRS + 1, dtype=np.int64) * TOKENS,
        truncated=np.zeros(PAIRS, dtype=np.bool_),
    )
    backend, seconds = TorchBackend(ranker.eval()), []
    for _ in range(ROUNDS + 1):
        before = time.perf_counter()
        backend.run(backend.start(pairs), 0)
        seconds.append(time.perf_counter() - before)
    return len(ids) / statistics.median(seconds[1:])


def table() -> str:
    """A row a model, with what its form's twin gave, and the speed of its own layers."""
    lines = [
        "| model | read as | score | difference from its own library, by precision | tokens of a pair "
        "| tokens a second | licence |",
        "|---|---|---|---|---|---|---|",
    ]
    for form in FORMS:
        found = measure(form)
        for model in form.models:
            if isinstance(found, str):
                lines.append(f"| {model.name} | rejected | | {found} | | | {model.licence} |")
                continue
            told = ", ".join(f"{name} {value:.0e}" for name, value in found.differences.items())
            rate = ""
            if form.speed is not None and model.layers is not None:
                rate = f"{float(f'{speed(form.speed(model.layers)):.2g}'):,.0f}"
            lines.append(
                f"| {model.name} | {found.family} | {found.score} | {told} | {form.positions:,} | {rate} "
                f"| {model.licence} |"
            )
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Write the table into the page."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(compute_threads(None))
    page = Path(argv[0])
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
