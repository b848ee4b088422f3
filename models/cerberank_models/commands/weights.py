"""The command `cerberank checkpoint weights`, which reads weights back from ONNX graphs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import RUN
from cerberank_models.convert.checkpoint import PARITY, Forms, all_scores, check_parity, export_checkpoint
from cerberank_models.convert.read_back import PRECISIONS, read_back
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import say

CARD = """{card}
## Weights

Read back from the {precision} ONNX graphs of {name} {version} by `checkpoint weights`{loss}. Against the scores that
{name} {version} records for its golden questions: {agreement}. Figures above are those of {name} {version}.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """The agreement of the scores of weights that were read back with those of the graphs."""

    difference: float
    """The largest difference of two scores (probabilities)."""
    ordered: int
    """The number of pairs of candidates of a question that both order alike; a tie counts as an order."""
    pairs: int

    def __str__(self) -> str:
        """The agreement in words."""
        return f"largest difference {self.difference:.2g}, {self.ordered} of {self.pairs} pairs of candidates in order"


def weights(checkpoint: Path, out: Path, /, *, precision: Literal["fp32", "int8"] | None = None) -> Agreement:
    """Read weights back from the ONNX graphs of a checkpoint that has no model.safetensors.

    The new folder can be trained further (`train distil --base OUT`), exported, and served by torch. Weights from fp32
    graphs are exact. Weights from int8 graphs are the values of the int8 numbers. The difference of the scores from
    those of the graphs, on the checkpoint's golden questions, is shown and written to the model card and the manifest.

    Args:
        checkpoint: Checkpoint folder without model.safetensors.
        out: Folder to make, with weights only.
        precision: Precision of the graphs to read (default: the best that the checkpoint has).
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; a checkpoint is never overwritten")
    source = read_checkpoint(checkpoint)
    if source.weights is not None:
        raise ValueError(f"{source.path} has model.safetensors: there is nothing to read back")
    if source.config.first_stage is not None:
        raise ValueError(f"{source.path} has a first stage, whose weights cannot be read back")
    chosen: str = precision or next(str(each) for each in PRECISIONS if each in source.precisions)
    # The card, the manifest and the output state how far the weights are from the graphs.
    ranker = read_back(source, chosen)
    agreement = measure_agreement(source, chosen, ranker)
    name, version = source.config.name, source.manifest.version
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(source.path / "tokenizer.json")),
        out,
        card=CARD.format(
            card=(source.path / "README.md").read_text(encoding="utf-8"),
            precision=chosen,
            name=name,
            version=version,
            loss=", dequantised: fp32 numbers of int8's resolution" if chosen == "int8" else "",
            agreement=agreement,
        ),
        version=f"{version}-from-{chosen}",
        source=f"weights read back from the {chosen} graphs of {name} {version}: {source.manifest.source}",
        metrics={
            "read_back_difference": agreement.difference,
            "read_back_order": 100 * agreement.ordered / max(1, agreement.pairs),
        },
        forms=Forms(precisions=()),
        files={RUN: source.path / RUN} if RUN in source.manifest.files else {},
    )
    say(f"{out}: {agreement}")
    return agreement


def measure_agreement(checkpoint: Checkpoint, precision: str, ranker: RankingNetwork) -> Agreement:
    """Score the checkpoint's golden questions with `ranker`, and compare with the scores recorded for `precision`.

    Raises ParityError if a score differs by more than is allowed between forms of the same network.
    """
    encoder = checkpoint.encoder()
    got = all_scores(TorchBackend(ranker), [encoder.encode(line.question, line.texts) for line in checkpoint.golden])
    expected = [np.asarray(line.scores[precision], dtype=np.float64) for line in checkpoint.golden]
    check_parity(precision, expected, got, PARITY[precision])
    orders = [(_order(one), _order(two)) for one, two in zip(expected, got, strict=True)]
    return Agreement(
        difference=max(float(np.abs(one - two).max()) for one, two in zip(expected, got, strict=True)),
        ordered=sum(int((one == two).sum()) for one, two in orders),
        pairs=sum(len(one) for one, _ in orders),
    )


def _order(scores: Scores) -> Scores:
    """The order of each pair of candidates: -1, 0 for a tie, or 1."""
    return np.asarray([np.sign(one - two) for one, two in combinations(scores.tolist(), 2)])
