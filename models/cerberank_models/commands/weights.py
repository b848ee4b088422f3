"""`checkpoint weights CHECKPOINT OUT`: weights from the ONNX graphs of a checkpoint that has no `model.safetensors`.

OUT can be trained further (`distil --base OUT`), exported, and served by torch. From fp32 graphs the weights are exact.
From int8 graphs they are what the int8 numbers stand for; how far the scores then lie from those of the graphs, on the
checkpoint's golden questions, is printed and written to the model card and the manifest.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from cerberank_models.backends.contract import Scores
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.convert.checkpoint import PARITY, ParityError, check_parity, export_checkpoint
from cerberank_models.convert.read_back import PRECISIONS, read_back
from cerberank_models.encoding import Candidate
from cerberank_models.network.ranker import Ranker
from cerberank_models.rank import pairs_policy, rank_pairs

CARD = """{card}
## Weights

Read back from the {precision} ONNX graphs of {name} {version} by `checkpoint weights`{loss}. Against the scores that
{name} {version} records for its golden questions: {agreement}. Figures above are those of {name} {version}.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How near the scores of weights that were read back are to those of the graphs."""

    difference: float
    """The largest difference of two scores (probabilities)."""
    ordered: int
    """How many pairs of candidates of the same question both order alike, ties being an order of their own."""
    pairs: int

    def __str__(self) -> str:
        """In words."""
        return f"largest difference {self.difference:.2g}, {self.ordered} of {self.pairs} pairs of candidates in order"


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank checkpoint weights", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder without model.safetensors")
    parser.add_argument("out", type=Path, help="the folder to make, with weights alone; must not exist")
    parser.add_argument("--precision", choices=PRECISIONS, help="whose graphs to read (default: the best there is)")
    arguments = parser.parse_args(argv)
    try:
        agreement = _run(arguments)
    except (CheckpointError, ParityError, OSError, ValueError) as error:
        print(f"cerberank checkpoint weights: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{arguments.out}: {agreement}")  # noqa: T201
    return 0


def _run(arguments: argparse.Namespace) -> Agreement:
    if arguments.out.exists():
        raise FileExistsError(f"{arguments.out} exists; a checkpoint is never overwritten")
    checkpoint = read_checkpoint(arguments.checkpoint)
    if checkpoint.weights is not None:
        raise ValueError(f"{checkpoint.path} has model.safetensors: there is nothing to read back")
    if checkpoint.config.first_stage is not None:
        raise ValueError(f"{checkpoint.path} has a first stage, whose weights cannot be read back")
    precision = arguments.precision or next(each for each in PRECISIONS if each in checkpoint.precisions)
    ranker = read_back(checkpoint, precision)
    agreement = measure_agreement(checkpoint, precision, ranker)
    name, version = checkpoint.config.name, checkpoint.manifest.version
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(checkpoint.path / "tokenizer.json")),
        arguments.out,
        card=CARD.format(
            card=(checkpoint.path / "README.md").read_text(encoding="utf-8"),
            precision=precision,
            name=name,
            version=version,
            loss=", dequantised: fp32 numbers of int8's resolution" if precision == "int8" else "",
            agreement=agreement,
        ),
        version=f"{version}-from-{precision}",
        source=f"weights read back from the {precision} graphs of {name} {version}: {checkpoint.manifest.source}",
        metrics={
            "read_back_difference": agreement.difference,
            "read_back_order": 100 * agreement.ordered / max(1, agreement.pairs),
        },
        precisions=(),
    )
    return agreement


def measure_agreement(checkpoint: Checkpoint, precision: str, ranker: Ranker) -> Agreement:
    """Score the checkpoint's golden questions by `ranker` and compare with what it records for `precision`.

    Raises ParityError when a score is further away than any form of the same network may be.
    """
    backend, encoder = TorchBackend(ranker), checkpoint.encoder()
    keep_all = pairs_policy(backend.config, 0.0)
    got, expected = [], []
    for line in checkpoint.golden:
        candidates = [Candidate(text=each.text, previous=each.previous, next=each.next) for each in line.candidates]
        got.append(rank_pairs(backend, encoder.encode(line.question, candidates), keep_all).scores)
        expected.append(np.asarray(line.scores[precision], dtype=np.float64))
    check_parity(precision, expected, got, PARITY[precision])
    orders = [(_order(one), _order(two)) for one, two in zip(expected, got, strict=True)]
    return Agreement(
        difference=max(float(np.abs(one - two).max()) for one, two in zip(expected, got, strict=True)),
        ordered=sum(int((one == two).sum()) for one, two in orders),
        pairs=sum(len(one) for one, _ in orders),
    )


def _order(scores: Scores) -> Scores:
    """The order of every pair of candidates: -1, 0 or 1."""
    return np.asarray([np.sign(one - two) for one, two in combinations(scores.tolist(), 2)])
