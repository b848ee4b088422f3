"""Measures the time that a decoder saves by computing the common prefix of a question's pairs only once."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from cerberank_benchmarks.report import Report, Value, bars
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_models.backends.contract import Scores, probability
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.decoders import decoder_config, decoder_ranker
from cerberank_models.encoding import EncodedPairs
from cerberank_models.transformer import PromptTemplate

SHAPE = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
}
"""A layer of Qwen3-Reranker-0.6B, which has 28."""
VOCABULARY = 1000
PREFIX, TAIL = 60, 9
"""Tokens before and after a candidate."""
BATCH = 32
"""Pairs of a padded batch in transformers."""
ANSWERS = (5, 6)
WAYS = ("shared", "whole", "transformers")
SAME = 1e-3


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates: the best seconds over the rounds of runs in turn."""
    torch.manual_seed(settings.seed)
    network = transformers.AutoModelForCausalLM.from_config(
        transformers.Qwen3Config(vocab_size=VOCABULARY, num_hidden_layers=settings.layers, **SHAPE)
    ).eval()
    encoding = EncodingConfig(max_length=512, prompt=PromptTemplate(tail=("?",), yes="yes", no="no"))
    config = decoder_config(network.config, name="random-decoder", encoding=encoding)
    backend = TorchBackend(decoder_ranker(config, network, ANSWERS))
    rows: list[dict[str, Value]] = []
    for candidates in settings.candidates:
        pairs = _pairs(candidates, settings)
        ways = {
            "shared": partial(_scores, backend, pairs),
            "whole": partial(_scores, backend, pairs.without_prefixes()),
            "transformers": partial(_own, network, pairs),
        }
        seconds = dict.fromkeys(WAYS, float("inf"))
        scores = {}
        for _ in range(settings.rounds):
            for name, way in ways.items():
                started = time.perf_counter()
                scores[name] = way()
                seconds[name] = min(seconds[name], time.perf_counter() - started)
        rows.append(
            {
                "candidates": candidates,
                "tokens": pairs.tokens,
                **seconds,
                "whole / shared": seconds["whole"] / seconds["shared"],
                "largest difference": max(float(np.abs(each - scores["shared"]).max()) for each in scores.values()),
            }
        )
    return Report(
        name="prefixes",
        text=f"{settings.layers} layers of Qwen3-Reranker-0.6B's shape (it has 28), random weights, fp32, "
        f"{torch.get_num_threads()} threads; pairs of {PREFIX} tokens before the candidate and {TAIL} behind it, "
        f"candidates of {settings.words[0]} to {settings.words[1]} tokens. Seconds of the best of {settings.rounds} "
        f"rounds: the prefix once a question, in every pair, and by transformers in padded batches of {BATCH}.",
        rows=rows,
        chart=bars(rows, "candidates", WAYS, value_label="seconds"),
        problems=[f"scores differ by {d:.2g}" for row in rows if (d := float(row["largest difference"])) > SAME],
    )


def _scores(backend: TorchBackend, pairs: EncodedPairs) -> Scores:
    return backend.run(backend.start(pairs), 0).scores


def _pairs(candidates: int, settings: BenchmarkSettings) -> EncodedPairs:
    """The pairs of one question, with random tokens and a common prefix."""
    random = np.random.default_rng(settings.seed)
    lengths = random.integers(settings.words[0], settings.words[1], candidates, endpoint=True) + PREFIX + TAIL
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    ids = random.integers(10, VOCABULARY, offsets[-1], dtype=np.int32)
    prefix = random.integers(10, VOCABULARY, PREFIX, dtype=np.int32)
    for start in offsets[:-1]:
        ids[start : start + PREFIX] = prefix
    return EncodedPairs(
        token_ids=ids,
        type_ids=np.zeros_like(ids),
        offsets=offsets,
        truncated=np.zeros(candidates, np.bool_),
        prefixes=np.full(candidates, PREFIX),
    )


def _own(network: Any, pairs: EncodedPairs) -> Scores:
    """The same scores from transformers, in batches of similar lengths that are padded on the left."""
    odds = np.empty(len(pairs), np.float32)
    order = np.argsort(-pairs.lengths, kind="stable")
    for rows in np.split(order, range(BATCH, len(order), BATCH)):
        longest = int(pairs.lengths[rows].max())
        ids, mask = (torch.zeros((len(rows), longest), dtype=torch.int64) for _ in range(2))
        for place, row in enumerate(rows.tolist()):
            own = pairs.token_ids[pairs.offsets[row] : pairs.offsets[row + 1]]
            ids[place, longest - len(own) :], mask[place, longest - len(own) :] = torch.from_numpy(own), 1
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        with torch.inference_mode():
            logits = network(
                input_ids=ids, attention_mask=mask, position_ids=places, logits_to_keep=1, use_cache=False
            ).logits[:, -1]
        odds[rows] = (logits[:, ANSWERS[1]] - logits[:, ANSWERS[0]]).numpy()
    return probability(odds)
