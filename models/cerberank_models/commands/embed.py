"""`cerberank embed`: the vectors of candidates, computed before a question arrives, in a store for the service.

A line of TEXTS is a JSON string, an object with `text`, or a question with its candidates as `cerberank rank` reads
them. A text that occurs twice is stored once. The same call again goes on where a killed one was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tqdm import tqdm

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.backend_options import add_backend_options, backend_options
from cerberank_models.commands.question_lines import read_line
from cerberank_models.first_stage.embed import embed
from cerberank_models.first_stage.open import open_encoder, open_first_stage


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank embed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder with a first stage")
    parser.add_argument("texts", type=Path, help="the candidates, one line of JSON each")
    parser.add_argument("out", type=Path, help="the store's folder")
    add_backend_options(parser)
    parser.add_argument("--threads", type=int, help="threads of the model (default: all usable processors)")
    arguments = parser.parse_args(argv)
    try:
        checkpoint = read_checkpoint(arguments.checkpoint)
        backend = open_first_stage(checkpoint, **asdict(backend_options(arguments)), threads=arguments.threads)
        with tqdm(unit="text", disable=None) as bar:
            manifest = embed(
                partial(read_texts, arguments.texts),
                arguments.out,
                inputs=arguments.texts,
                backend=backend,
                encoder=open_encoder(checkpoint),
                progress=bar.update,
            )
    except (ValueError, ArithmeticError, RuntimeError, OSError) as error:
        sys.stderr.write(f"cerberank embed: {error}\n")
        return 1
    sys.stdout.write(
        f"{arguments.out}: {manifest.texts} texts, encoder {manifest.encoder}, {manifest.precision}; "
        f"CERBERANK_VECTORS={arguments.out} serves them\n"
    )
    return 0


def read_texts(path: Path) -> Iterator[str]:
    """The candidates of a file, line by line. Raises ValueError naming the line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield from _texts(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error


def _texts(line: bytes) -> list[str]:
    content = json.loads(line)
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict) and "candidates" not in content:
        if isinstance(text := content.get("text"), str):
            return [text]
        raise ValueError("is neither a string, nor an object with text, nor a question with candidates")
    return [candidate.text for candidate in read_line(line).parsed()]
