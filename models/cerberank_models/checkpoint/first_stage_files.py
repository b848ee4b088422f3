"""The files of a first stage within a checkpoint. The manifest names them together with the files of the other stages.

    first-stage/tokenizer.json  golden.jsonl  [scorer.safetensors]  [model.safetensors]  onnx/<precision>/encoder.onnx

The tokenizer and the two files of weights are the same as in a text ranker's own folder
(`first_stage/text_ranker_folder.py`). `scorer.safetensors` holds the weights of the rankers that score vectors, and is
missing if they have no weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cerberank_models.checkpoint.errors import CheckpointError, listing
from cerberank_models.text_config import TextRankerConfig

FOLDER = "first-stage/"
TOKENIZER, GOLDEN = f"{FOLDER}tokenizer.json", f"{FOLDER}golden.jsonl"
SCORER, WEIGHTS = f"{FOLDER}scorer.safetensors", f"{FOLDER}model.safetensors"


def encoder_graph(precision: str) -> str:
    """The path of the encoder's graph in a precision.

    >>> encoder_graph("int8")
    'first-stage/onnx/int8/encoder.onnx'
    """
    return f"{FOLDER}onnx/{precision}/encoder.onnx"


def encoder_precisions(names: Iterable[str]) -> tuple[str, ...]:
    """The precisions of the graphs among a checkpoint's file names, in alphabetical order.

    >>> encoder_precisions(["onnx/fp32/stage-0.onnx", "first-stage/onnx/int8/encoder.onnx"])
    ('int8',)
    """
    parts = [name.split("/") for name in names if name.startswith(f"{FOLDER}onnx/")]
    return tuple(sorted({each[2] for each in parts}))


def verify_first_stage(path: Path, names: Iterable[str], config: TextRankerConfig | None) -> None:
    """Raise CheckpointError unless the checkpoint `path` has exactly the files that its `first_stage` needs.

    `names` are the files in the checkpoint's manifest.
    """
    have = {name for name in names if name.startswith(FOLDER)}
    if config is None:
        if have:
            raise CheckpointError(f"{path} has {listing(have)}, but its config.json has no first_stage")
        return
    needed = {TOKENIZER, GOLDEN} | ({SCORER} if config.weighted_rankers else set())
    if missing := sorted(needed - have):
        raise CheckpointError(f"{path} has a first_stage in config.json, but lacks {listing(missing)}")
    runs = {WEIGHTS, *map(encoder_graph, encoder_precisions(have))}
    if not runs & have:
        raise CheckpointError(f"{path} has neither {WEIGHTS} nor {encoder_graph('<precision>')}: nothing can be run")
    if surplus := sorted(have - needed - runs):
        raise CheckpointError(f"{path} has {listing(surplus)}, which no first_stage of this shape reads")


def files_to_copy(path: Path, names: Iterable[str], *, precisions: Sequence[str], weights: bool) -> dict[str, Path]:
    """The files of the first stage of the checkpoint `path` to copy to a new checkpoint, by their names.

    The new checkpoint has the graphs in `precisions`, and the weights if `weights` is True. `names` are the files in
    the manifest of `path`; without files of a first stage the result is empty. Raises CheckpointError for a precision
    that the first stage lacks, and if the new first stage would have neither a graph nor weights.
    """
    have = [name for name in names if name.startswith(FOLDER)]
    if not have:
        return {}
    if missing := [precision for precision in precisions if encoder_graph(precision) not in have]:
        raise CheckpointError(
            f"the first stage of {path} has no graph in {', '.join(missing)}: export the checkpoint without it, then "
            "add it with `cerberank checkpoint first-stage`"
        )
    graphs = [encoder_graph(precision) for precision in precisions]
    if not graphs and not (weights and WEIGHTS in have):
        raise CheckpointError(f"the first stage of {path} would have neither weights nor a graph")
    copied = [*graphs, *(name for name in have if not name.endswith(".onnx") and (weights or name != WEIGHTS))]
    return {name: path / name for name in copied}
