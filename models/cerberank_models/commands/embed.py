"""The command `cerberank data embed`, which computes candidates' vectors and writes them to a store for the service."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.regular import open_regular
from cerberank_models.commands.options import OWN, BackendChoice, BackendOptions, check_device
from cerberank_models.commands.question_lines import read_line
from cerberank_models.commands.values import Count
from cerberank_models.first_stage.embedding import Vectors, encoder_of, open_shard_encoder
from cerberank_models.first_stage.embedding import embed as store_vectors
from cerberank_models.first_stage.opening import file_to_run, first_stage_of, open_encoder, open_vector_backend
from cerberank_models.output import say
from cerberank_models.progress import progress
from cerberank_models.shards import ShardMap, map_here, map_on_ray


def embed(
    checkpoint: Path,
    texts: Path,
    out: Path,
    /,
    *,
    backend: BackendOptions = OWN,
    threads: Count | None = None,
    engine: Literal["local", "ray"] = "local",
    copies: Count = 1,
) -> None:
    """Compute the vectors of candidates before questions arrive, and store them for a service with a first stage.

    A line of TEXTS is a JSON string, an object with `text`, or a question with its candidates in the format of
    `cerberank rank`. A text that occurs twice is stored once. All lines are checked before anything is written.
    If a call was killed, repeating it continues the work.

    Args:
        checkpoint: Checkpoint folder with a first stage.
        texts: File of candidates, one JSON string or object a line.
        out: Folder to write the vectors to.
        backend: Backend.
        threads: Threads of the model (default: all usable processors; 1 with ray).
        engine: Computation in this process, or on a Ray cluster (RAY_ADDRESS).
        copies: Number of encoders that run in parallel with ray.
    """
    opened = read_checkpoint(checkpoint)
    chosen = backend.chosen(opened)
    if engine == "local":  # with Ray, the workers' devices are used
        check_device(chosen.device, chosen.kind)
    run = file_to_run(opened, kind=chosen.kind, precision=chosen.precision)
    inputs, count = check_texts(texts)
    shard_map, precision = _shard_map(opened, chosen, engine, threads=threads, workers=copies)
    with progress(total=count, unit="text") as bar:
        manifest = store_vectors(
            partial(read_texts, texts),
            out,
            inputs=inputs,
            computed_by=opened.manifest.files[run],
            config=first_stage_of(opened),
            precision=precision,
            shard_map=shard_map,
            progress=bar.update,
        )
    say(
        f"{out}: {manifest.texts} texts, encoder {manifest.encoder}, {manifest.precision}; "
        f"CERBERANK_VECTORS={out} serves them"
    )


def _shard_map(
    checkpoint: Checkpoint, backend: BackendChoice, engine: str, *, threads: int | None, workers: int
) -> tuple[ShardMap[list[str], Vectors], str]:
    """The map that encodes shards, and the precision in which it computes: fp16 may become bf16 in this process."""
    if engine == "local":
        opened = open_vector_backend(checkpoint, **asdict(backend), threads=threads)
        return map_here(encoder_of(opened, open_encoder(checkpoint))), opened.precision
    each = threads or 1
    encoder = partial(open_shard_encoder, checkpoint.path.resolve(), **asdict(backend), threads=each)
    return map_on_ray(encoder, workers=workers, device=backend.device, threads=each), backend.precision


def check_texts(path: Path) -> tuple[str, int]:
    """Read every line once; returns the SHA-256 of the file, and the number of its texts.

    Raises ValueError with the number of an invalid line, and NotRegularError if `path` is not a regular file.
    """
    digest, count = hashlib.sha256(), 0
    with open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            digest.update(line)
            count += len(_texts(line, path, number))
    return digest.hexdigest(), count


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a file, line by line. Raises as `check_texts` does."""
    with open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            yield from _texts(line, path, number)


def _texts(line: bytes, path: Path, number: int) -> list[str]:
    if not line.strip():
        return []
    try:
        content = json.loads(line)
        if isinstance(content, str):
            return [content]
        if isinstance(content, dict) and "candidates" not in content:
            if isinstance(text := content.get("text"), str):
                return [text]
            raise ValueError("is neither a string, nor an object with text, nor a question with candidates")
        return [candidate.text for candidate in read_line(line).request.texts()]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}:{number}: {error}") from error
