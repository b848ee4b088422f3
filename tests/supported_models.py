"""The rerankers that can be served: the 23 of Hugging Face's table of November 2026, by twins with random weights.

`python -m tests.supported_models docs/supported-models.md` imports a tiny twin of each form, made by the library that
defines it, compares scores with that library, and writes the table into the page.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from tests.decoders import last_logits, save_decoder
from tests.modular import save_modular
from tests.opaque import save_deberta
from tests.tiny import save_cross_encoder
from torch import nn

from cerberank_models.backends.contract import Scores, probability
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import Candidate, EncodedPairs
from cerberank_models.rank import rank_pairs

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """Models that differ in size alone."""

    models: tuple[str, ...]
    twin: Callable[[Path, str], Path]
    positions: int
    """The most tokens of a pair that the models read."""


FORMS = (
    Form(
        models=("Qwen/Qwen3-Reranker-4B", "Qwen/Qwen3-Reranker-0.6B"),
        twin=decoder("qwen3"),
        positions=40_960,
    ),
    Form(
        models=("mixedbread-ai/mxbai-rerank-large-v2", "mixedbread-ai/mxbai-rerank-base-v2"),
        twin=decoder("qwen2"),
        positions=32_768,
    ),
    Form(
        models=tuple(f"cross-encoder/ettin-reranker-{size}-v1" for size in ("1b", "400m", "150m", "68m", "32m", "17m")),
        twin=ettin,
        positions=7_999,
    ),
    Form(models=("jinaai/jina-reranker-m0",), twin=coded, positions=10_240),
    Form(models=("zeroentropy/zerank-2-reranker",), twin=decoder("qwen3"), positions=32_768),
    Form(
        models=("Alibaba-NLP/gte-reranker-modernbert-base", "ibm-granite/granite-embedding-reranker-english-r2"),
        twin=cross_encoder("modernbert", classifier_pooling="mean"),
        positions=8_192,
    ),
    Form(models=("BAAI/bge-reranker-v2-m3",), twin=cross_encoder("xlm-roberta"), positions=8_192),
    Form(
        models=("BAAI/bge-reranker-large", "BAAI/bge-reranker-base"),
        twin=cross_encoder("xlm-roberta"),
        positions=512,
    ),
    Form(
        models=tuple(f"cross-encoder/ms-marco-MiniLM-L{layers}-v2" for layers in (4, 6, 12)),
        twin=cross_encoder("bert"),
        positions=512,
    ),
    Form(
        models=tuple(f"mixedbread-ai/mxbai-rerank-{size}-v1" for size in ("xsmall", "base", "large")),
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
    name = form.models[-1].rpartition("/")[2]
    with tempfile.TemporaryDirectory() as scratch:
        source = form.twin(Path(scratch), name)
        try:
            import_model(str(source), Path(scratch) / "out", precisions=precisions)
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


def table() -> str:
    """A row a model, with what its form's twin gave."""
    lines = [
        "| model | read as | score | difference from its own library, by precision | tokens of a pair |",
        "|---|---|---|---|---|",
    ]
    for form in FORMS:
        found = measure(form)
        for model in form.models:
            if isinstance(found, str):
                lines.append(f"| {model} | refused | | {found} | |")
                continue
            told = ", ".join(f"{name} {value:.0e}" for name, value in found.differences.items())
            lines.append(f"| {model} | {found.family} | {found.score} | {told} | {form.positions:,} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Write the table into the page."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    page = Path(argv[0])
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
