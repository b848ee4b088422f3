"""A ranker becomes a checkpoint folder: weights, one ONNX graph per stage and precision, golden questions.

Every form is run on the golden texts before it is written: fp32 graphs must reproduce PyTorch's
scores, fp16 and int8 graphs must stay near them. If one fails, no folder is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.torch import save_file
from tokenizers import Tokenizer

from cerberank_models.backends.contract import Backend, Scores
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import GoldenCandidate, GoldenQuestion, write_checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.network.ranker import Ranker
from cerberank_models.rank import log_odds, pairs_policy, rank_pairs
from cerberank_models.windows import Windowing

PARITY = {"fp32": 1e-4, "fp16": 0.02, "int8": 0.15}
"""Largest difference from PyTorch's fp32 scores (probabilities) that a written form may show. The same bound holds for
log-odds, in units of their spread, because scores near 0 or 1 are alike whatever the network computes."""
LEAST_SPREAD = 1 / (0.1 * 0.9)
"""Log-odds that spread less are compared as if they spread this far. A small difference d of log-odds moves a
probability p by d p (1 - p), so that between 0.1 and 0.9 the bound on probabilities is the stricter one, and this one
counts where that one says little."""
SAME_SCORE = 1e-6
"""Log-odds that are nearer to each other than this are all the same one."""
GOLDEN_TOLERANCE = {"fp32": 1e-3, "fp16": 0.02, "int8": 0.1}
"""Largest difference between a service's scores and the recorded ones: processors round products differently."""

MARGIN, GOLDEN_MARGIN = 1.1, 1.5
"""Factors that widen int8 ranges: those measured on given texts, and those measured on the few golden texts."""
CALIBRATION_ROWS = 64
"""Pairs of one question, windows of long texts among them, on which ranges are measured in one pass: 64 of 512 tokens
take about 400 MB at a width of 768."""


class ParityError(RuntimeError):
    """An exported form does not compute what the network computes; nothing was written."""


def export_checkpoint(
    ranker: Ranker,
    tokenizer: Tokenizer,
    path: Path,
    *,
    card: str,
    version: str,
    source: str,
    metrics: Mapping[str, float] | None = None,
    precisions: Sequence[str] = ("fp32", "int8"),
    weights: bool = True,
    parity: Mapping[str, float] = PARITY,
    calibration: Sequence[tuple[str, Sequence[Candidate]]] = (),
    accept: Callable[[str, Backend[Any]], None] = lambda precision, form: None,
    first_stage: Mapping[str, Path | bytes] = MappingProxyType({}),
    further: Mapping[str, Path | bytes] = MappingProxyType({}),
) -> None:
    """Write the checkpoint folder `path` atomically.

    `weights` False leaves `model.safetensors` out: such a folder is only for serving ONNX, and cannot be exported
    again. Without `precisions` the weights are all that is written, which needs neither onnx nor onnxruntime.
    int8 measures its ranges on the questions and candidates of `calibration`, a few hundred of the kind that will be
    ranked; without any, on the golden texts, which are too few for the best agreement with fp32.
    `accept` is called with each form's precision and backend before anything is written, and raises to reject it.
    `first_stage` are the files of the first stage that the ranker's config states (`first_stage_files.kept_files`),
    `further` are files that nothing here reads, by their names in the folder.
    Raises ParityError when a form differs by more than `parity`, ValueError for an unknown precision, and for a first
    stage without its files.
    """
    if ranker.config.first_stage is not None and not first_stage:
        raise ValueError(f"{ranker.config.name} has a first stage, which cannot be kept here: use it without one")
    if unknown := set(precisions) - set(PARITY):
        raise ValueError(f"unknown precision {', '.join(sorted(unknown))}; known are {', '.join(PARITY)}")
    ranker, config = ranker.float().cpu().eval(), ranker.config
    encoder = PairEncoder(
        Tokenizer.from_str(tokenizer.to_str()),
        family=config.body.family,
        config=config.encoding,
        type_vocab_size=config.transformer.type_vocab_size,
    )
    pairs = _golden_pairs(encoder)
    expected = golden_scores(ranker, encoder)
    recorded = {"fp32": expected}
    ranges_on, margin = _calibration(calibration, encoder)
    files: dict[str, Path | bytes] = {**first_stage, **further}
    with tempfile.TemporaryDirectory() as scratch:
        if weights:
            files["model.safetensors"] = Path(scratch) / "model.safetensors"
            state = {name: value.contiguous() for name, value in ranker.state_dict().items()}
            save_file(state, files["model.safetensors"])  # `save` would hold two more copies of a large model
        for precision in precisions:
            from cerberank_models.convert.graphs import export_form  # noqa: PLC0415 - weights alone need no onnx

            backend, graphs = export_form(
                precision, ranker, Path(scratch) / precision, calibration=ranges_on, margin=margin
            )
            got = _scores(backend, pairs)
            check_parity(precision, expected, got, parity[precision])
            accept(precision, backend)
            recorded[precision] = got
            files |= {f"onnx/{precision}/{file.name}": file for file in graphs[0].parent.iterdir()}
        write_checkpoint(
            path,
            config=config,
            tokenizer=tokenizer.to_str().encode(),
            card=card,
            version=version,
            source=source,
            metrics=dict(metrics or {}),
            files=files,
            golden=golden_questions(recorded),
        )


def _calibration(
    given: Sequence[tuple[str, Sequence[Candidate]]], encoder: PairEncoder
) -> tuple[list[EncodedPairs], float]:
    """The pairs that int8 measures its ranges on, and the factor that widens these."""
    if given:
        windowing = Windowing(most_rows=CALIBRATION_ROWS)
        return [encoder.encode(question, candidates, windowing=windowing) for question, candidates in given], MARGIN
    return _golden_pairs(encoder), GOLDEN_MARGIN


def golden_scores(ranker: Ranker, encoder: PairEncoder) -> list[Scores]:
    """PyTorch's scores of every golden question's texts, in the precision of `ranker`, without dropping."""
    return _scores(TorchBackend(ranker), _golden_pairs(encoder))


def _golden_pairs(encoder: PairEncoder) -> list[EncodedPairs]:
    return [encoder.encode(question, [Candidate(text=text) for text in texts]) for question, texts in GOLDEN_TEXTS]


def _scores(backend: Backend[Any], pairs: Sequence[EncodedPairs]) -> list[Scores]:
    """The scores of every question, without dropping."""
    keep_all = pairs_policy(backend.config, 0.0)
    return [rank_pairs(backend, question, keep_all).scores for question in pairs]


def check_parity(precision: str, expected: Sequence[Scores], got: Sequence[Scores], bound: float) -> None:
    """Raise ParityError when a score of a form, `[n]` a question, is further than `bound` from PyTorch's.

    So it is when the log-odds are further apart than `bound` times the spread of PyTorch's (`LEAST_SPREAD`).
    """
    wanted, given = np.concatenate(expected), np.concatenate(got)
    difference = float(np.abs(wanted - given).max())
    if not difference <= bound:
        raise ParityError(f"{precision} scores differ from PyTorch's by {difference:.2g}, more than {bound:g}")
    odds = log_odds(wanted)
    difference, most = float(np.abs(odds - log_odds(given)).max()), bound * max(LEAST_SPREAD, float(np.ptp(odds)))
    if not difference <= most:
        raise ParityError(
            f"{precision} scores differ from PyTorch's by {difference:.2g} in log-odds, more than {most:.2g}"
        )


def check_differing(source: str, scores: Sequence[Scores]) -> None:
    """Raise UnsupportedModelError when the model `source` gives all pairs the same score; `scores` are `[n]` each."""
    if np.ptp(log_odds(every := np.concatenate(scores))) <= SAME_SCORE:
        raise UnsupportedModelError(f"{source} gives every pair the same score, {every[0]:.4g}: it is not trained")


def golden_questions(recorded: Mapping[str, Sequence[Scores]]) -> list[GoldenQuestion]:
    """The golden texts with the scores of each, by precision."""
    return [
        GoldenQuestion(
            question=question,
            candidates=tuple(GoldenCandidate(text=text) for text in texts),
            scores={name: tuple(scores[index].tolist()) for name, scores in recorded.items()},
            tolerance={name: GOLDEN_TOLERANCE[name] for name in recorded},
        )
        for index, (question, texts) in enumerate(GOLDEN_TEXTS)
    ]
