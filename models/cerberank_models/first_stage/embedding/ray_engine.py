"""Encodes shards on a Ray cluster: the one that RAY_ADDRESS names, or else a local one on this machine.

Every worker opens the checkpoint itself, so its folder must have the same path on every machine. Texts and vectors pass
through Ray's object store, which spills to disk. Only this process writes the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
import ray.data
import ray.exceptions

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.first_stage.embedding.shards import EncodedShard, Engine, Shard, encode_shard
from cerberank_models.first_stage.open import open_encoder, open_first_stage


def ray_engine(
    checkpoint: Path, *, kind: str, precision: str, device: str, threads: int | None, workers: int
) -> Engine:
    """An engine of `workers` actors, each with its own encoder on `threads` processors and, for `cuda`, its own GPU.

    A worker that fails, or whose encoder takes another precision than `precision`, ends the run with RuntimeError.
    """

    def run(shards: Iterator[Shard]) -> Iterator[EncodedShard]:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
        blocks = [ray.put(_table(shard)) for shard in shards]
        if not blocks:
            return
        encoded = ray.data.from_arrow_refs(blocks).map_batches(
            _Encoder,
            fn_constructor_args=(checkpoint.resolve(), kind, precision, device, threads or 1),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(blocks))),
            num_cpus=None if device.startswith("cuda") else threads or 1,
            num_gpus=1 if device.startswith("cuda") else 0,
        )
        try:
            for row in encoded.iter_rows():
                numbers = np.frombuffer(row["numbers"], dtype=np.float16)
                yield EncodedShard(int(row["shard"]), numbers, np.frombuffer(row["sizes"], dtype=np.int64))
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"a Ray worker failed: {str(error).strip().splitlines()[-1]}") from error

    return run


class _Encoder:
    """The actor of one worker, which holds its encoder."""

    def __init__(self, checkpoint: Path, kind: str, precision: str, device: str, threads: int) -> None:
        read = read_checkpoint(checkpoint)
        self._encoder = open_encoder(read)
        self._backend = open_first_stage(read, kind=kind, precision=precision, device=device, threads=threads)
        if self._backend.precision != precision:
            raise RuntimeError(f"this encoder runs in {self._backend.precision}: give it as --precision")

    def __call__(self, table: pa.Table) -> pa.Table:
        """Encode one shard: a table of one row in, a table with its vectors out."""
        (row,) = table.to_pylist()
        encoded = encode_shard(Shard(row["shard"], row["texts"]), self._backend, self._encoder)
        arrays = {"numbers": [encoded.numbers.tobytes()], "sizes": [encoded.sizes.tobytes()]}
        return pa.table({"shard": [encoded.number], **arrays})


def _table(shard: Shard) -> pa.Table:
    """A shard as a table of one row: Ray splits and joins blocks between rows, and a shard must stay together."""
    return pa.table({"shard": [shard.number], "texts": pa.array([shard.texts], pa.list_(pa.string()))})
