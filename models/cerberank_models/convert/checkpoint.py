"""Writes a ranker as a checkpoint folder: weights, one ONNX graph per stage and precision, golden questions.

Every form (the graphs of one precision) is run on the golden texts before the folder is written. fp32 graphs must
reproduce PyTorch's scores, and fp16 and int8 graphs must be close to them. If a form fails, no folder is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from safetensors.torch import save_file
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import Backend, Scores
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.calibration import log_odds_of
from cerberank_models.checkpoint.first_stage_files import TOKENIZER as FIRST_STAGE
from cerberank_models.checkpoint.folder import GoldenCandidate, GoldenQuestion, write_checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS, encoded
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import pairs_policy, rank_pairs
from cerberank_models.windows import Windowing

PARITY = {"fp32": 1e-4, "fp16": 0.02, "int8": 0.15}
"""The largest allowed difference of a form's scores (probabilities) from PyTorch's fp32 scores. The same bound applies
to log-odds, in units of their spread, because scores near 0 or 1 hardly differ even if the log-odds are wrong."""
LEAST_SPREAD = 1 / (0.1 * 0.9)
"""The spread of log-odds in this comparison is at least this. A small difference d of log-odds changes a probability p
by d p (1 - p). With this value, the bound on probabilities is the stricter one for p between 0.1 and 0.9, and the bound
on log-odds is the stricter one elsewhere."""
SAME_SCORE = 1e-6
"""Scores whose log-odds all lie within this distance count as the same score."""
GOLDEN_TOLERANCE = {"fp32": 1e-3, "fp16": 0.02, "int8": 0.1}
"""The largest allowed difference between a service's scores and the recorded ones. Processors round differently."""

CALIBRATION_ROWS = 64
"""The most pairs of one question, including windows of long texts, on which ranges are measured in one pass. 64 pairs
of 512 tokens take about 400 MB at a width of 768."""


Questions: TypeAlias = Sequence[tuple[str, Sequence[Candidate]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Forms:
    """The forms in which a checkpoint holds its network, and the checks that each form has to pass."""

    precisions: Sequence[str] = ("fp32", "int8")
    """The precisions of ONNX graphs. Without any only weights are written, which needs neither onnx nor onnxruntime."""
    weights: bool = True
    """False omits `model.safetensors`. Such a folder can only be run by ONNX Runtime, and exported again only after its
    weights were read back (`read_back.py`)."""
    calibration: Questions = ()
    """The questions on which int8 ranges are measured, a few hundred of the kind that will be ranked. Without any they
    are measured on the golden texts, which are too few for the best agreement with fp32."""
    parity: Mapping[str, float] = field(default_factory=lambda: PARITY)
    """The largest allowed difference of scores by precision."""
    accept: Callable[[str, Backend[Any]], None] = lambda precision, form: None
    """Called with each form's precision and backend before anything is written; raises an error to reject the form."""


class ParityError(RuntimeError):
    """The scores of an exported form differ too much from those of the network; nothing was written."""


def export_checkpoint(
    ranker: RankingNetwork,
    tokenizer: Tokenizer,
    path: Path,
    *,
    card: str,
    version: str,
    source: str,
    metrics: Mapping[str, float] | None = None,
    forms: Forms = Forms(),
    files: Mapping[str, Path | bytes] = MappingProxyType({}),
) -> None:
    """Write the checkpoint folder `path` atomically, with the network in `forms`.

    `files` are other files to include, by their names in the folder. Those of the first stage in the ranker's config
    must be among them (`first_stage_files.files_to_copy`).

    Raises ParityError if a form differs by more than its parity, and ValueError for an unknown precision or a first
    stage without its files.
    """
    if ranker.config.first_stage is not None and FIRST_STAGE not in files:
        raise ValueError(f"{ranker.config.name} has a first stage, which cannot be kept here: use it without one")
    if unknown := set(forms.precisions) - set(PARITY):
        raise ValueError(f"unknown precision {', '.join(sorted(unknown))}; known are {', '.join(PARITY)}")
    ranker = ranker.float().cpu().eval()
    config = ranker.config
    encoder = PairEncoder(
        Tokenizer.from_str(tokenizer.to_str()),
        family=config.body.family,
        config=config.encoding,
        type_vocab_size=config.transformer.type_vocab_size,
    )
    golden = encoded(encoder)
    windowing = Windowing(most_rows=CALIBRATION_ROWS)
    texts = [encoder.encode(question, candidates, windowing=windowing) for question, candidates in forms.calibration]
    expected = golden_scores(ranker, encoder)
    recorded = {"fp32": expected}
    written: dict[str, Path | bytes] = dict(files)
    with tempfile.TemporaryDirectory() as scratch:
        if forms.weights:
            written["model.safetensors"] = Path(scratch) / "model.safetensors"
            state = {name: value.contiguous() for name, value in ranker.state_dict().items()}
            save_file(state, written["model.safetensors"])  # `save` would need memory for two more copies
        # Each form is compared with PyTorch before the folder is written.
        for precision in forms.precisions:
            from cerberank_models.convert.graphs import export_form  # noqa: PLC0415 - weights need no onnx
            from cerberank_models.convert.int8 import RangeBatches  # noqa: PLC0415

            folder = Path(scratch) / precision
            backend = export_form(precision, ranker, folder, ranges_on=RangeBatches.of(texts, golden))
            recorded[precision] = all_scores(backend, golden)
            check_parity(precision, expected, recorded[precision], forms.parity[precision])
            forms.accept(precision, backend)
            written |= {f"onnx/{precision}/{file.name}": file for file in folder.iterdir()}
        write_checkpoint(
            path,
            config=config,
            tokenizer=tokenizer.to_str().encode(),
            card=card,
            version=version,
            source=source,
            metrics=metrics,
            files=written,
            golden=golden_questions(recorded),
        )


def golden_scores(ranker: RankingNetwork, encoder: PairEncoder) -> list[Scores]:
    """The scores that PyTorch gives all golden questions' texts, in the precision of `ranker`, without dropping."""
    return all_scores(TorchBackend(ranker), encoded(encoder))


def all_scores(backend: Backend[Any], pairs: Sequence[EncodedPairs]) -> list[Scores]:
    """The scores of every question, without dropping."""
    keep_all = pairs_policy(backend.config, 0.0)
    return [rank_pairs(backend, question, keep_all).scores for question in pairs]


def check_parity(precision: str, expected: Sequence[Scores], got: Sequence[Scores], bound: float) -> None:
    """Raise ParityError if a form's score differs by more than `bound` from PyTorch's; scores are `[n]` per question.

    The error is also raised if log-odds differ by more than `bound` times the spread of PyTorch's (`LEAST_SPREAD`).
    """
    wanted = np.concatenate(expected)
    scores = np.concatenate(got)
    difference = float(np.abs(wanted - scores).max())
    if not difference <= bound:
        raise ParityError(f"{precision} scores differ from PyTorch's by {difference:.2g}, more than {bound:g}")
    log_odds = log_odds_of(wanted)
    difference, most = (
        float(np.abs(log_odds - log_odds_of(scores)).max()),
        bound * max(LEAST_SPREAD, float(np.ptp(log_odds))),
    )
    if not difference <= most:
        raise ParityError(
            f"{precision} scores differ from PyTorch's by {difference:.2g} in log-odds, more than {most:.2g}"
        )


def check_differing(source: str, scores: Sequence[Scores]) -> None:
    """Raise UnsupportedModelError if the model `source` gives all pairs the same score (`[n]` per question)."""
    if np.ptp(log_odds_of(every := np.concatenate(scores))) <= SAME_SCORE:
        raise UnsupportedModelError(f"{source} gives every pair the same score, {every[0]:.4g}: it is not trained")


def golden_questions(recorded: Mapping[str, Sequence[Scores]]) -> list[GoldenQuestion]:
    """The golden questions from the golden texts and their recorded scores by precision."""
    return [
        GoldenQuestion(
            question=question,
            candidates=tuple(GoldenCandidate(text=text) for text in texts),
            scores={name: tuple(scores[index].tolist()) for name, scores in recorded.items()},
            tolerance={name: GOLDEN_TOLERANCE[name] for name in recorded},
        )
        for index, (question, texts) in enumerate(GOLDEN_TEXTS)
    ]
