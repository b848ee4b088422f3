"""Writes a new checkpoint: an existing one with a first stage added, or one that has only a first stage."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save
from safetensors.torch import save_file
from torch import Tensor, nn

from cerberank_models.backends.stage_contract import Scores, Vector
from cerberank_models.calibration import FILE as CALIBRATION
from cerberank_models.checkpoint.first_stage_files import GOLDEN, SCORER, TOKENIZER, WEIGHTS, encoder_graph
from cerberank_models.checkpoint.folder import (
    REQUIRED,
    Checkpoint,
    CheckpointError,
    GoldenQuestion,
    write_checkpoint,
)
from cerberank_models.config import ArchitectureConfig, EncodingConfig, RankerConfig
from cerberank_models.convert.checkpoint import (
    PARITY,
    ParityError,
    Questions,
    check_parity,
    golden_questions,
)
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.graphs import FusedAttentionLayout, export_module, token_inputs
from cerberank_models.convert.int8 import RangeBatches, in_form
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_models.first_stage.bi_encoders import BiEncoder
from cerberank_models.first_stage.onnx_encoder import OnnxEncoder
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.first_stage.vector_backend import VectorBackend
from cerberank_models.golden import half_mismatch
from cerberank_models.network.text_ranker import TextVectors
from cerberank_models.text_config import QuestionPart, TextRankerConfig
from cerberank_models.text_encoding import TextEncoder

VECTOR_PARITY = 2.0**-9
"""The largest allowed difference of fp32 vectors from PyTorch's, relative to the largest number: two units in the last
place of float16."""


class _Encoder(nn.Module):
    def __init__(self, network: TextVectors) -> None:
        super().__init__()
        self.network = network

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        fixed, tokens = self.network.read(token_ids, type_ids, FusedAttentionLayout(mask, _longest(self.network)))
        parts = [fixed.float()] if self.network.config.fixed_width else []
        return tuple(parts if tokens is None else [*parts, tokens])


def export_encoder(precision: str, network: TextVectors, path: Path, *, ranges_on: RangeBatches) -> OnnxEncoder:
    """Write the graph `path` and open it.

    The inputs of the graph are padded token ids, type ids and mask `[N, S]`. Its outputs are `vectors [N, W]`,
    `tokens [N, S, P]`, or both, depending on the rankers of the first stage.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    form = in_form(network, precision, ranges_on)
    config = network.config
    inputs, shapes = token_inputs(_longest(network))
    outputs = ["vectors"] * bool(config.fixed_width) + ["tokens"] * (config.token_ranker == "colbert")
    export_module(_Encoder(form), path, inputs=inputs, shapes=shapes, outputs=outputs)
    return OnnxEncoder(path, config, precision=precision)


def _longest(network: TextVectors) -> int:
    """The number of tokens of the longest text, including special tokens."""
    lengths = network.config.encoding
    return lengths.special + max(lengths.question_length, lengths.document_length)


def check_vectors(expected: Sequence[Vector], got: Sequence[Vector]) -> None:
    """Raise ParityError unless the vectors of the fp32 graph are within `VECTOR_PARITY` of PyTorch's."""
    torch_vectors, graph_vectors = (np.concatenate(vectors).astype(np.float32) for vectors in (expected, got))
    difference = float(np.abs(torch_vectors - graph_vectors).max())
    largest = max(1.0, float(np.abs(torch_vectors).max()))
    if not difference <= VECTOR_PARITY * largest:
        raise ParityError(
            f"fp32 vectors differ from PyTorch's by {difference:.2g}, with numbers of up to {largest:.3g}"
        )


STALE = (CALIBRATION, "tune.json", "tune.png")
"""The files with results that were measured without a first stage, which are not copied."""
CARD = """
## First stage

{kind} of `{source}` ranks the candidates' texts before any is read as a pair: encoder `{encoder}`, questions of at most
{question} tokens, candidates of at most {candidate}. It drops {alpha:g} of the candidates by default. Schedules that
were measured before do not hold with it: `cerberank train tune` measures new ones.
"""

ALONE = """# {name}

`{source}`, imported by `cerberank import`; the weights are unchanged. It reads texts one by one, questions of at most
{question} tokens and candidates of at most {candidate}, so that the vectors of candidates can be computed before
(`cerberank data embed`). A score is {score}. Data, licence, intended use and figures are those of the source: see its
model card.
"""


def attach(
    checkpoint: Checkpoint,
    encoder: BiEncoder,
    out: Path,
    *,
    source: str,
    alpha: float = 0.8,
    precisions: Sequence[str] | None = None,
    calibration: Questions = (),
    version: str | None = None,
) -> Checkpoint:
    """Write the checkpoint `out`: `checkpoint` with a first stage that drops the share `alpha` of the candidates.

    ONNX graphs are written in `precisions`, or in those of the checkpoint if None. Weights are written if the
    checkpoint has weights. int8 ranges are measured on the questions and candidates of `calibration`, or else on the
    golden texts. `source` is the name of the encoder for the card.

    Raises ParityError if a form's results differ too much from PyTorch's, ValueError for an unknown precision,
    CheckpointError for a checkpoint that has a first stage already, and FileExistsError.
    """
    if checkpoint.config.first_stage is not None:
        raise CheckpointError(f"{checkpoint.path} has a first stage already")
    precisions = checkpoint.precisions if precisions is None else precisions
    old = checkpoint.config
    encoder = _reading(encoder, old.encoding.question_part)
    first = encoder.network.config
    files: dict[str, Path | bytes] = {
        name: checkpoint.path / name for name in checkpoint.manifest.files if name not in (*REQUIRED, *STALE)
    }
    with exported(encoder, out, precisions, calibration, weights=checkpoint.weights is not None) as parts:
        return write_checkpoint(
            out,
            config=_with_first_stage(old, first, alpha),
            tokenizer=(checkpoint.path / "tokenizer.json").read_bytes(),
            card=(checkpoint.path / "README.md").read_text(encoding="utf-8") + _card(first, source, alpha),
            version=version or f"{checkpoint.manifest.version}-first-stage",
            source=checkpoint.manifest.source,
            files={**files, **parts.files},
            golden=checkpoint.golden,
            metrics=checkpoint.manifest.metrics,
        )


def write_alone(
    encoder: BiEncoder,
    out: Path,
    *,
    name: str,
    source: str,
    version: str,
    precisions: Sequence[str] = (),
    languages: Sequence[str] = (),
    calibration: Questions = (),
) -> Checkpoint:
    """Write the checkpoint `out`, whose first stage is its only stage. Weights are always written.

    `source` is the name of the encoder for the card and the manifest. Raises as `attach` does.
    """
    first = encoder.network.config
    lengths = first.encoding
    longest = lengths.document_length + lengths.special
    # A ranker without layers, whose pairs would be as long as the longest text.
    config = RankerConfig(
        name=name,
        transformer=first.transformer.model_copy(update={"layers": 0}),
        architecture=ArchitectureConfig(body_layers=0, heads=0, head_layers=0),
        encoding=EncodingConfig(max_length=longest, question_length=min(lengths.question_length, longest - 7)),
        first_stage=first,
        languages=tuple(languages),
    )
    with exported(encoder, out, precisions, calibration, weights=True) as parts:
        return write_checkpoint(
            out,
            config=config,
            tokenizer=encoder.tokenizer.to_str().encode(),
            card=ALONE.format(
                name=name,
                source=source,
                score=config.score_form,
                question=lengths.question_length,
                candidate=lengths.document_length,
            ),
            version=version,
            source=source,
            files=parts.files,
            golden=parts.golden,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The files of a first stage, and its scores of the golden texts."""

    files: Mapping[str, Path | bytes]
    golden: Sequence[GoldenQuestion]


@contextmanager
def exported(
    encoder: BiEncoder, out: Path, precisions: Sequence[str], calibration: Questions, *, weights: bool
) -> Iterator[Exported]:
    """The files of a bi-encoder for the new checkpoint `out`, in a temporary folder that exists during the block.

    Raises as `attach` does.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; a checkpoint is never overwritten")
    if unknown := set(precisions) - set(PARITY):
        raise ValueError(f"unknown precision {', '.join(sorted(unknown))}; known are {', '.join(PARITY)}")
    # PyTorch's scores of the golden texts are those that every form must reproduce.
    network = encoder.network
    first = network.config
    texts = TextEncoder(encoder.tokenizer, first)
    golden = [concat_pairs([texts.questions([question]), texts.candidates(each)]) for question, each in GOLDEN_TEXTS]
    measured_on = [
        concat_pairs([texts.questions([question]), texts.candidates([candidate.text for candidate in candidates])])
        for question, candidates in calibration
    ]
    scorer = FirstStageScorer(first, encoder.weights)
    expected = _vectors(TorchEncoder(network), golden)
    recorded = {"fp32": _scores(scorer, expected)}
    files: dict[str, Path | bytes] = {TOKENIZER: encoder.tokenizer.to_str().encode()}
    if encoder.weights:
        files[SCORER] = save(dict(encoder.weights))
    with tempfile.TemporaryDirectory() as scratch:
        # Weights, and then a graph for each precision, which is compared before it counts.
        if weights or not precisions:
            files[WEIGHTS] = Path(scratch) / "model.safetensors"
            save_file({name: value.contiguous() for name, value in network.state_dict().items()}, files[WEIGHTS])
        for precision in precisions:
            graph = Path(scratch) / precision / "encoder.onnx"
            form = export_encoder(precision, network, graph, ranges_on=RangeBatches.of(measured_on, golden))
            got = _vectors(form, golden)
            if precision == "fp32":
                check_vectors([each for row in expected for each in row], [each for row in got for each in row])
            recorded[precision] = _scores(scorer, got)
            _check(precision, recorded["fp32"], recorded[precision])
            files[encoder_graph(precision)] = graph
        lines = golden_questions(recorded)
        files[GOLDEN] = b"".join(line.model_dump_json().encode() + b"\n" for line in lines)
        yield Exported(files=files, golden=lines)


def _reading(encoder: BiEncoder, part: QuestionPart) -> BiEncoder:
    """The encoder with the part of a long question that the pairs have, too."""
    network = copy(encoder.network)
    encoding = network.config.encoding.model_copy(update={"question_part": part})
    network.config = network.config.model_copy(update={"encoding": encoding})
    return replace(encoder, network=network)


def _with_first_stage(old: RankerConfig, first: TextRankerConfig, alpha: float) -> RankerConfig:
    changes = {"first_stage": first, "drop_schedule": (alpha, *old.schedule), "longer_lists": (), "tuned_schedules": ()}
    return RankerConfig.model_validate({**dict(old), **changes})


def _vectors(backend: VectorBackend, texts: Sequence[EncodedPairs]) -> list[list[Vector]]:
    """The vectors of each question and its candidates."""
    return [list(backend.encode(each)) for each in texts]


def _scores(scorer: FirstStageScorer, vectors: Sequence[Sequence[Vector]]) -> list[Scores]:
    return [scorer(each[0], each[1:]) for each in vectors]


def _check(precision: str, expected: Sequence[Scores], got: Sequence[Scores]) -> None:
    """Raise ParityError unless scores are close to PyTorch's and clearly separated candidates keep their order."""
    check_parity(precision, expected, got, PARITY[precision])
    if mismatch := next(filter(None, map(half_mismatch, expected, got)), ""):
        raise ParityError(f"{precision}: {mismatch}")


def _card(first: TextRankerConfig, source: str, alpha: float) -> str:
    kinds = ["ranker 1"] * (first.first_ranker is not None) + [str(first.token_ranker)] * (
        first.token_ranker is not None
    )
    return CARD.format(
        kind=f"A bi-encoder ({' and '.join(kinds)})",
        source=source,
        encoder=first.encoder,
        question=first.encoding.question_length,
        candidate=first.encoding.document_length,
        alpha=alpha,
    )
