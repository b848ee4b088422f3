"""Piece `peers`: compares with sentence-transformers' CrossEncoder, with the same weights and texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import ONE_HEAD
from cerberank_benchmarks.gpu.reference import BOUND
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import MAX_LENGTH, cross_encoder
from cerberank_benchmarks.workload import Task, Workload
from cerberank_models.backends.stage_contract import Scores
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.from_hugging_face import load_weights, ranker_config
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

TEXT = (
    "Candidates a second of one question in one process. CrossEncoder pads, sorts by length, and runs with SDPA in the "
    "same precision at the best of several batch sizes; both tokenise unless the row says otherwise. The runs take "
    "turns."
)
PEER = "CrossEncoder"


def run(lab: Lab) -> Findings:
    """Rows for each number of candidates: one per batch size of the peer, then a comparison at its best batch size."""
    shape = ONE_HEAD
    settings = BenchmarkSettings(
        layers=min(shape.layers, lab.sizes.training_layers),
        width=lab.sizes.width or shape.width,
        tokenizer=lab.tokenizer,
        seed=lab.seed,
    )
    # A word is a token, and the question has twelve.
    mean = lab.sizes.tokens - 15
    settings = replace(settings, words=(max(1, mean // 2), mean + mean // 2))
    peer, ours = _same_weights(lab, settings)
    for count in lab.sizes.counts:
        task = Workload(settings).task(count)
        batches = {batch: lab.seconds(partial(_predicted, peer, task, batch)) for batch in lab.sizes.batches}
        for batch, seconds in batches.items():
            yield {"candidates": count, "by": PEER, "batch": batch, "pairs/s": count / seconds}
        best = min(batches, key=batches.__getitem__)
        yield from _compared(lab, task, partial(_predicted, peer, task, best), ours)


@dataclass(frozen=True, slots=True)
class _Ours:
    network: TorchBackend
    encoder: PairEncoder


def _compared(lab: Lab, task: Task, predicted: Callable[[], NDArray[Any]], ours: _Ours) -> Findings:
    pairs = ours.encoder.encode(task.question, task.candidates)
    runs: dict[str, Callable[[], NDArray[Any]]] = {
        PEER: predicted,
        "cerberank": lambda: rank_pairs(ours.network, ours.encoder.encode(task.question, task.candidates)).scores,
        "cerberank, tokens known": lambda: rank_pairs(ours.network, pairs).scores,
    }
    scores: dict[str, Scores] = {name: np.asarray(each()) for name, each in runs.items()}
    seconds = lab.compared(runs)
    for name, value in seconds.items():
        difference = float(np.abs(scores[name] - scores[PEER]).max())
        yield {
            "candidates": len(pairs),
            "by": name,
            "tokens": pairs.tokens,
            "ms": 1000 * value,
            "pairs/s": len(pairs) / value,
            "ratio": seconds[PEER] / value,
            "largest difference": difference,
        }
        if not difference <= BOUND[lab.precision]:
            yield Problem(f"{len(pairs)} candidates: {name} differs from {PEER} by {difference:.2g}")


def _same_weights(lab: Lab, settings: BenchmarkSettings) -> tuple[Any, _Ours]:
    """The peer, and a backend with the same weights."""
    from sentence_transformers import CrossEncoder  # noqa: PLC0415 - takes seconds, and other pieces do not need it
    from tokenizers import Tokenizer  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

    folder = cross_encoder(settings, lab.scratch / "peer")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    config = ranker_config(
        model.config, name="peer", encoding=EncodingConfig(max_length=MAX_LENGTH, question_length=64), logits=1
    )
    ranker = RankingNetwork(config)
    load_weights(ranker, model.state_dict())
    options = {"dtype": lab.dtype, "attn_implementation": "sdpa"}
    peer = CrossEncoder(str(folder), max_length=MAX_LENGTH, device=lab.device, model_kwargs=options)
    encoder = PairEncoder(
        Tokenizer.from_file(str(lab.tokenizer)),
        family=config.body.family,
        config=config.encoding,
        type_vocab_size=config.transformer.type_vocab_size,
    )
    return peer, _Ours(lab.backend(ranker, graph_tokens=2 * max(lab.sizes.counts) * lab.sizes.tokens), encoder)


def _predicted(peer: Any, task: Task, batch: int) -> NDArray[Any]:
    pairs = [(task.question, text) for text in task.texts]
    return np.asarray(peer.predict(pairs, batch_size=batch, show_progress_bar=False))
