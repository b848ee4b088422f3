"""`checkpoint random B11 3H1 OUT`: a checkpoint of that shape with random weights, to size a machine without a model.

It ranks nothing, and says so in its name, version, source and model card. The weights alone are written unless
`--precisions` names ONNX forms: torch serves any precision from them, and graphs of a large network take minutes.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.convert.checkpoint import ParityError
from cerberank_models.convert.random_weights import SHAPES, random_config, write_random_checkpoint


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        checkpoint = _run(arguments)
    except (ParityError, OSError, ValueError) as error:
        print(f"cerberank checkpoint random: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{arguments.out}: {checkpoint}, random weights")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank checkpoint random", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("body", type=_body, help="layers of the body: B11")
    parser.add_argument("heads", type=_heads, help="heads and their layers: 3H1; 0H0 with an exit after the last layer")
    parser.add_argument("out", type=Path, help="the checkpoint folder to make; must not exist")
    parser.add_argument(
        "--like", choices=tuple(SHAPES), default="electra-base", help="the encoder (default: %(default)s)"
    )
    parser.add_argument("--width", type=int, help="of the hidden states, instead of that encoder's")
    parser.add_argument("--attention-heads", type=int, help="instead of that encoder's")
    parser.add_argument("--vocabulary", type=int, help="rows of the token table, instead of that encoder's")
    parser.add_argument("--exits", type=_layers, default=(), help="after which body layers, such as 4,6,8")
    parser.add_argument("--max-length", type=int, default=128, help="tokens of a pair (default: %(default)s)")
    parser.add_argument("--precisions", default="", help="ONNX forms to write, comma-separated: fp32, fp16, int8")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json (default: the bundled checkpoint's)")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _body(text: str) -> int:
    if (found := re.fullmatch(r"[Bb](\d+)", text)) is None:
        raise argparse.ArgumentTypeError(f"takes B and a number of layers, such as B11, not {text!r}")
    return int(found[1])


def _heads(text: str) -> tuple[int, int]:
    if (found := re.fullmatch(r"(\d+)[Hh](\d+)", text)) is None:
        raise argparse.ArgumentTypeError(f"takes heads and their layers, such as 3H1, not {text!r}")
    return int(found[1]), int(found[2])


def _layers(text: str) -> tuple[int, ...]:
    return tuple(int(layer) for layer in text.split(",") if layer)


def _run(arguments: argparse.Namespace) -> str:
    """Write the checkpoint; returns its name and shape in words."""
    shape = SHAPES[arguments.like]
    if width := arguments.width:
        shape = replace(shape, width=width, embedding=width)
    shape = replace(
        shape,
        attention_heads=arguments.attention_heads or shape.attention_heads,
        vocabulary=arguments.vocabulary or shape.vocabulary,
    )
    heads, head_layers = arguments.heads
    config = random_config(
        f"b{arguments.body}-{heads}h{head_layers}-{arguments.like if not width else f'width-{width}'}",
        shape,
        body_layers=arguments.body,
        heads=heads,
        head_layers=head_layers,
        exits=arguments.exits,
        max_length=arguments.max_length,
    )
    checkpoint = write_random_checkpoint(
        arguments.out,
        config,
        _tokenizer(arguments.tokenizer or default_checkpoint() / "tokenizer.json"),
        seed=arguments.seed,
        precisions=tuple(filter(None, arguments.precisions.split(","))),
    )
    return f"{checkpoint.config.name} ({config.architecture}, {len(config.stages)} stages)"


def _tokenizer(path: Path) -> Tokenizer:
    """Raises ValueError for what is no tokenizer."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; name a tokenizer.json with --tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise ValueError(f"{path} is no tokenizer: {error}") from error
