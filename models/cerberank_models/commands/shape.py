"""The command `cerberank checkpoint random`, which makes a checkpoint of a given shape with random weights."""

from __future__ import annotations

import re
from pathlib import Path

from tokenizers import Tokenizer

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.commands.values import Count, Integers, Names
from cerberank_models.convert.random_weights import SHAPES, random_config, write_random_checkpoint
from cerberank_models.output import UsageError, say


def random(
    body: str,
    heads: str,
    out: Path,
    /,
    *,
    like: str = "electra-base",
    exits: Integers = (),
    max_length: Count = 128,
    forms: Names = (),
    tokenizer: Path | None = None,
) -> None:
    """Make a checkpoint of a shape with random weights, to size a machine before a model exists.

    Its scores are meaningless, as its name, version, source and model card state. The torch backend runs the weights in
    any precision; writing ONNX graphs of a large network takes minutes.

    Args:
        body: B and the number of layers of the body, such as B11.
        heads: Number of heads, H, and layers of each head, such as 3H1; 0H0 needs an exit after the last layer.
        out: Checkpoint folder to make.
        like: Encoder whose layer sizes to take.
        exits: Body layers with an exit after them, separated by commas, such as 4,6,8.
        max_length: Most tokens of a pair.
        forms: ONNX forms to write, separated by commas: fp32, fp16, int8.
        tokenizer: Path of a tokenizer.json (default: the bundled checkpoint's).
    """
    if like not in SHAPES:
        raise UsageError(f"--like is one of {', '.join(SHAPES)}, not {like!r}")
    body_layers, (head_count, head_layers) = _body(body), _heads(heads)
    config = random_config(
        f"b{body_layers}-{head_count}h{head_layers}-{like}",
        SHAPES[like],
        body_layers=body_layers,
        heads=head_count,
        head_layers=head_layers,
        exits=exits,
        max_length=max_length,
    )
    file = tokenizer or default_checkpoint() / "tokenizer.json"
    checkpoint = write_random_checkpoint(out, config, _tokenizer(file), precisions=forms)
    say(f"{out}: {checkpoint.config.name} ({config.architecture}, {len(config.stages)} stages), random weights")


def _body(text: str) -> int:
    notation = re.fullmatch(r"[Bb](\d+)", text)
    if notation is None:
        raise UsageError(f"the body is B and a number of layers, such as B11, not {text!r}")
    return int(notation[1])


def _heads(text: str) -> tuple[int, int]:
    notation = re.fullmatch(r"(\d+)[Hh](\d+)", text)
    if notation is None:
        raise UsageError(f"the heads are their number and their layers, such as 3H1, not {text!r}")
    return int(notation[1]), int(notation[2])


def _tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer. Raises ValueError if the file is not one."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; name a tokenizer.json with --tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain `Exception`
        raise ValueError(f"{path} is not a tokenizer: {error}") from error
