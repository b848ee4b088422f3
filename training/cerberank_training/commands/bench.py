"""`cerberank bench`: candidates per second against `sentence_transformers.CrossEncoder`, in one run.

Both score the same pairs with the same weights: a Hugging Face cross-encoder (made on the spot with random
weights unless one is named: speed does not depend on them) and its import. The two alternate, so that a
noisy machine disturbs both; figures are medians and their ratio, and the results are checked to be equal.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder
from tqdm import tqdm

from cerberank_models.backend import Backend
from cerberank_models.backends import open_backend
from cerberank_models.bundled import default_checkpoint
from cerberank_models.checkpoint import Checkpoint, read_checkpoint
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.import_command import import_model
from cerberank_models.rank import rank_pairs

TEXT = (
    "tower river answer city metal sentence bridge engine question north history built opened water people during "
    "largest first second country the of in and was by for with it on from at as an is are which were"
)
WORDS = TEXT.split()
EQUAL = {"fp32": 1e-3, "int8": 0.1}
"""Largest difference in probability that still counts as the same result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One number of candidates: median seconds per question of both, and their ratio."""

    candidates: int
    cross_encoder_seconds: float
    cerberank_seconds: dict[str, float]
    speed_up: dict[str, float]
    candidates_per_second: dict[str, float]
    largest_difference: dict[str, float]


def main(argv: list[str]) -> int:
    """Run the verb; returns 1 when the results are not equal."""
    parser = argparse.ArgumentParser(prog="cerberank bench", description=__doc__)
    parser.add_argument("--model", type=Path, help="Hugging Face cross-encoder folder (default: MiniLM-L6's shape)")
    parser.add_argument("--tokenizer", type=Path, default=None, help="tokenizer.json for the default model")
    parser.add_argument("--candidates", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--words", type=int, nargs=2, default=[12, 60], metavar=("LEAST", "MOST"), help="per candidate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        source = arguments.model or _random_cross_encoder(Path(scratch) / "model", arguments.tokenizer)
        import_model(str(source), Path(scratch) / "checkpoint", name="bench", max_length=128)
        rows = _measure(source, read_checkpoint(Path(scratch) / "checkpoint"), arguments)
    machine = {"cpu": platform.processor() or platform.machine(), "python": platform.python_version()}
    versions = {name: version(name) for name in ("torch", "sentence-transformers", "onnxruntime")}
    _report(rows, machine | versions)
    if arguments.json:
        content = {"machine": machine, "versions": versions, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    wrong = [row for row in rows if any(row.largest_difference[name] > bound for name, bound in EQUAL.items())]
    return 1 if wrong else 0


def _random_cross_encoder(folder: Path, tokenizer: Path | None) -> Path:
    """all-MiniLM-L6-v2's shape with random weights, and the bundled checkpoint's tokenizer."""
    bundled = default_checkpoint() / "tokenizer.json"
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        num_labels=1,
        initializer_range=0.06,  # wide enough that candidates score apart, or equal results would mean nothing
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer or bundled),
        model_max_length=512,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)
    return folder


def _measure(source: Path, checkpoint: Checkpoint, arguments: argparse.Namespace) -> list[Row]:
    peer = CrossEncoder(str(source), max_length=128, device="cpu")
    encoder = checkpoint.encoder()
    backends = {name: open_backend(checkpoint, precision=name) for name in ("fp32", "int8")}
    rows = []
    for count in arguments.candidates:
        question, texts = _question(count, *arguments.words)

        runs: dict[str, Callable[[], Any]] = {
            "cross_encoder": partial(_theirs, peer, question, texts),
            **{name: partial(_ours, encoder, backend, question, texts) for name, backend in backends.items()},
        }
        results = {name: np.asarray(run()) for name, run in runs.items()}  # also the warm-up
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in tqdm(range(arguments.rounds), desc=f"{count} candidates", disable=None):
            for name, run in runs.items():
                started = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - started)
        rows.append(_row(count, seconds, results))
    return rows


def _theirs(peer: Any, question: str, texts: Sequence[str]) -> Any:
    return peer.predict([(question, text) for text in texts], show_progress_bar=False)


def _ours(encoder: PairEncoder, backend: Backend[Any], question: str, texts: Sequence[str]) -> Any:
    return rank_pairs(backend, encoder.encode(question, [Candidate(text=text) for text in texts])).scores


def _row(count: int, seconds: dict[str, list[float]], results: dict[str, Any]) -> Row:
    median = {name: statistics.median(values) for name, values in seconds.items()}
    theirs = median.pop("cross_encoder")
    return Row(
        candidates=count,
        cross_encoder_seconds=theirs,
        cerberank_seconds=median,
        speed_up={name: theirs / value for name, value in median.items()},
        candidates_per_second={name: count / value for name, value in median.items()},
        largest_difference={name: float(np.abs(results[name] - results["cross_encoder"]).max()) for name in median},
    )


def _question(count: int, least: int, most: int) -> tuple[str, tuple[str, ...]]:
    """A question and distinct candidates of mixed length, the same in every run."""
    rng = random.Random(0)
    texts = tuple(" ".join(rng.choices(WORDS, k=rng.randint(least, most))) for _ in range(count))
    return "which tower was built first in the largest city of the north", texts


def _report(rows: list[Row], context: dict[str, str]) -> None:
    lines = [
        "| candidates | CrossEncoder s | fp32 s | int8 s | fp32 ratio | int8 ratio | int8 candidates/s | int8 diff |"
    ]
    lines.append("|" + "---|" * 8)
    for row in rows:
        ours = " | ".join(f"{row.cerberank_seconds[name]:.3f}" for name in ("fp32", "int8"))
        ratios = " | ".join(f"{row.speed_up[name]:.2f}x" for name in ("fp32", "int8"))
        rest = f"{row.candidates_per_second['int8']:.0f} | {row.largest_difference['int8']:.3f}"
        lines.append(f"| {row.candidates} | {row.cross_encoder_seconds:.3f} | {ours} | {ratios} | {rest} |")
    lines.append("\n" + ", ".join(f"{name} {value}" for name, value in context.items()))
    sys.stdout.write("\n".join(lines) + "\n")
