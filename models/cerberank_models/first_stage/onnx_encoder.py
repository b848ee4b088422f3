"""The first stage's encoder on ONNX Runtime, without torch. Texts of similar lengths are padded to the same length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.onnx_backend import padded_ids
from cerberank_models.backends.onnx_session import open_session, place_of
from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.stage_contract import Vector
from cerberank_models.backends.thread_pool import ThreadPool
from cerberank_models.encoding import EncodedPairs, packed_rows
from cerberank_models.first_stage.vector_backend import split_vectors, token_roles
from cerberank_models.text_config import TextRankerConfig


class OnnxEncoder:
    """Runs the graph `encoder.onnx`."""

    def __init__(
        self,
        graph: Path,
        config: TextRankerConfig,
        *,
        precision: str = "fp32",
        threads: int | None = None,
        device: str = "cpu",
        buckets: BucketRule | None = None,
    ) -> None:
        """Open the graph. `threads` None uses all processors that this process may use.

        Raises DeviceError if the device's provider is not installed.
        """
        self.config = config
        self.precision = precision
        self._buckets = buckets or BucketRule()
        self._threads = compute_threads(threads) if place_of(device)[0] == "cpu" else 1
        self._pool = ThreadPool(self._threads)
        self._session = open_session(graph, threads=1, device=device)

    def encode(self, texts: EncodedPairs) -> Sequence[Vector]:
        """The vector of each text."""
        lengths, config = texts.lengths, self.config
        fixed = np.empty((len(texts), config.fixed_width), dtype=np.float16)
        colbert = config.token_ranker == "colbert"
        tokens = np.empty((texts.tokens, config.projection), dtype=np.float16) if colbert else None
        roles = token_roles(texts, config.encoding.colbert)

        def run_bucket(rows: NDArray[np.int64]) -> None:
            index, _ = packed_rows(texts.offsets, rows)
            mask = np.arange(int(lengths[rows].max()))[None, :] < lengths[rows][:, None]
            inputs = padded_ids(texts, index, mask)
            if roles.attended is not None:
                inputs["mask"] = mask.copy()
                inputs["mask"][mask] = roles.attended[index]
            outputs = self._session.run(None, inputs)
            if config.fixed_width:
                fixed[rows] = outputs[0]
            if tokens is not None:
                tokens[index] = outputs[-1][mask]

        self._pool.run(partial(run_bucket, rows) for rows in buckets_of(lengths, self._buckets, self._threads))
        return split_vectors(fixed, tokens, texts.offsets, roles.compared)
