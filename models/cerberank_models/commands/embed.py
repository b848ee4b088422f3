"""`cerberank data embed`: the vectors of candidates, computed before a question arrives, in a store for the service.

A line of TEXTS is a JSON string, an object with `text`, or a question with its candidates as `cerberank rank` reads
them. A text that occurs twice is stored once. All lines are checked before anything is written. The same call again
goes on where a killed one was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tqdm import tqdm

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.regular import open_regular
from cerberank_models.commands.backend_options import BackendOptions, add_backend_options, backend_options
from cerberank_models.commands.question_lines import read_line
from cerberank_models.first_stage.embed import Vectors, embed, encoder_of, open_shard_encoder
from cerberank_models.first_stage.open import file_to_run, first_stage_of, open_encoder, open_first_stage
from cerberank_models.shards import ShardMap, map_here, map_on_ray


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank data embed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder with a first stage")
    parser.add_argument("texts", type=Path, help="the candidates, one line of JSON each")
    parser.add_argument("out", type=Path, help="the store's folder")
    add_backend_options(parser)
    parser.add_argument("--threads", type=int, help="threads of the model (default: all usable processors; 1 with ray)")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="this process, or a Ray cluster (RAY_ADDRESS)"
    )
    parser.add_argument("--workers", type=int, default=1, help="encoders that run in parallel, with --engine ray")
    arguments = parser.parse_args(argv)
    try:
        checkpoint = read_checkpoint(arguments.checkpoint)
        options = backend_options(arguments)
        run = file_to_run(checkpoint, kind=options.kind, precision=options.precision)
        inputs, count = check_texts(arguments.texts)
        shard_map, precision = _shard_map(checkpoint, options, arguments)
        with tqdm(total=count, unit="text", disable=None) as bar:
            manifest = embed(
                partial(read_texts, arguments.texts),
                arguments.out,
                inputs=inputs,
                computed_by=checkpoint.manifest.files[run],
                config=first_stage_of(checkpoint),
                precision=precision,
                shard_map=shard_map,
                progress=bar.update,
            )
    except (ValueError, ArithmeticError, RuntimeError, OSError) as error:
        sys.stderr.write(f"cerberank data embed: {error}\n")
        return 1
    sys.stdout.write(
        f"{arguments.out}: {manifest.texts} texts, encoder {manifest.encoder}, {manifest.precision}; "
        f"CERBERANK_VECTORS={arguments.out} serves them\n"
    )
    return 0


def _shard_map(
    checkpoint: Checkpoint, options: BackendOptions, arguments: argparse.Namespace
) -> tuple[ShardMap[list[str], Vectors], str]:
    """The encoding of shards, and its precision, which for fp16 in this process may be bf16."""
    if arguments.engine == "local":
        backend = open_first_stage(checkpoint, **asdict(options), threads=arguments.threads)
        return map_here(encoder_of(backend, open_encoder(checkpoint))), backend.precision
    threads = arguments.threads or 1
    opened = partial(open_shard_encoder, checkpoint.path.resolve(), **asdict(options), threads=threads)
    return map_on_ray(opened, workers=arguments.workers, device=options.device, threads=threads), options.precision


def check_texts(path: Path) -> tuple[str, int]:
    """Read every line once: the SHA-256 of the file, and the number of its texts.

    Raises ValueError naming the line, NotRegularError for what is no regular file.
    """
    digest, count = hashlib.sha256(), 0
    with open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            digest.update(line)
            count += len(_texts(line, path, number))
    return digest.hexdigest(), count


def read_texts(path: Path) -> Iterator[str]:
    """The candidates of a file, line by line. Raises as `check_texts` does."""
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
        return [candidate.text for candidate in read_line(line).parsed()]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}:{number}: {error}") from error
