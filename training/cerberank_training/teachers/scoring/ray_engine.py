"""Scores shards on a Ray cluster: the one that RAY_ADDRESS names, or else a local one on this machine.

Every worker opens the teacher itself, so a teacher's folder must have the same path on every machine (a hub id works
everywhere). Texts and scores pass through Ray's object store, which spills to disk (ASNQ: about 5 GB). Only this
process writes the cache, so workers need no shared disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
import ray.exceptions
from numpy.typing import NDArray

from cerberank_models.encoding import Candidate
from cerberank_training.teachers.scoring.open import open_teacher
from cerberank_training.teachers.scoring.run import Engine, Shard
from cerberank_training.teachers.scoring.teacher import TeacherSpec


def ray_engine(spec: TeacherSpec, *, workers: int) -> Engine:
    """An engine of `workers` actors, each with its own teacher and, for `cuda`, its own GPU."""

    def run(shards: Iterator[Shard]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
        blocks = [ray.put(_table(shard)) for shard in shards]
        scored = ray.data.from_arrow_refs(blocks).map_batches(
            _Scorer,
            fn_constructor_args=(spec,),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(blocks))),
            num_gpus=1 if spec.device.startswith("cuda") else 0,
        )
        try:
            for row in scored.iter_rows():
                yield int(row["shard"]), np.asarray(row["scores"], dtype=np.float32)
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"a Ray worker failed: {str(error).strip().splitlines()[-1]}") from error

    return run


class _Scorer:
    """The actor of one worker, which holds its teacher."""

    def __init__(self, spec: TeacherSpec) -> None:
        self._teacher = open_teacher(spec)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Score one shard: a table of one row in, a table with its scores out."""
        (row,) = table.to_pylist()
        texts = zip(row["questions"], row["texts"], row["previous"], row["next"], strict=True)
        pairs = [
            (question, Candidate(text=text, previous=before, next=after)) for question, text, before, after in texts
        ]
        return pa.table({"shard": [row["shard"]], "scores": [self._teacher.differences(pairs)]})


def _table(shard: Shard) -> pa.Table:
    """A shard as a table of one row: Ray splits and joins blocks between rows, and a shard must stay together."""
    columns: dict[str, Any] = {
        "shard": shard.index,
        "questions": [question for question, _ in shard.pairs],
        "texts": [candidate.text for _, candidate in shard.pairs],
        "previous": [candidate.previous for _, candidate in shard.pairs],
        "next": [candidate.next for _, candidate in shard.pairs],
    }
    return pa.table({name: [value] for name, value in columns.items()})
