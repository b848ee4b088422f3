"""Opens the parts of a checkpoint's first stage: its text encoder, its network on a device, and its scorer.

The network's libraries are imported when it is opened, as those of a backend.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.registry import check_precision, usual_backend, usual_precision
from cerberank_models.checkpoint.first_stage_files import GOLDEN, SCORER, TOKENIZER, WEIGHTS, encoder_graph
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.checkpoint.manifest import GoldenQuestion
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.question_texts import FirstStage
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.vector_backend import VectorBackend
from cerberank_models.golden import GoldenMismatchError, compare_golden, recorded_scores
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_models.tokens import check_embeddings


def open_first_stage(
    checkpoint: Checkpoint,
    *,
    kind: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> FirstStage:
    """Open the checkpoint's first stage, with the arguments and errors of `open_vector_backend`."""
    return FirstStage(
        backend=open_vector_backend(checkpoint, kind=kind, precision=precision, threads=threads, device=device),
        encoder=open_encoder(checkpoint),
        scorer=open_scorer(checkpoint),
    )


def check_first_stage(first: FirstStage, checkpoint: Checkpoint, pause: Callable[[], None] = lambda: None) -> None:
    """Score every golden question of the first stage, and compare with the scores recorded for its precision.

    If no scores are recorded for a half precision, its scores are compared with those of fp32. `pause` is called before
    each question.

    Raises GoldenMismatchError if the scores do not agree or no scores are recorded, and CheckpointError for a malformed
    golden file.
    """
    precision = first.backend.precision
    for golden in read_golden(checkpoint):
        if recorded_scores(golden, precision) is None:
            raise GoldenMismatchError(f"{checkpoint.path / GOLDEN} has no {precision} scores to compare with")
        pause()
        texts = first.read(golden.question, [candidate.text for candidate in golden.candidates])
        compare_golden(golden, precision, first.compute(texts))


def read_golden(checkpoint: Checkpoint) -> list[GoldenQuestion]:
    """The golden questions of the checkpoint's first stage. Raises CheckpointError for a malformed or empty file."""
    path = checkpoint.path / GOLDEN
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    try:
        golden = [GoldenQuestion.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not golden:
        raise CheckpointError(f"{path} holds no question, so nothing can be checked")
    return golden


def first_stage_of(checkpoint: Checkpoint) -> TextRankerConfig:
    """The shape of the checkpoint's first stage. Raises CheckpointError if it has none."""
    if checkpoint.config.first_stage is None:
        raise CheckpointError(f"{checkpoint.path} has no first stage; `cerberank checkpoint first-stage` adds one")
    return checkpoint.config.first_stage


def open_encoder(checkpoint: Checkpoint) -> TextEncoder:
    """A new text encoder.

    Raises CheckpointError if the first stage's `tokenizer.json` is not a tokenizer, or does not fit its network.
    """
    config, path = first_stage_of(checkpoint), checkpoint.path / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
        encoder = TextEncoder(tokenizer, config, tokenizer_digest=checkpoint.manifest.files[TOKENIZER])
        check_embeddings(encoder.tokenizer, config.transformer.vocab_size)
    except Exception as error:  # tokenizers raises plain `Exception`
        raise CheckpointError(f"{path} cannot be used: {error}") from error
    return encoder


def open_scorer(checkpoint: Checkpoint) -> FirstStageScorer:
    """The scorer of the first stage. Raises CheckpointError if its weights do not fit config.json."""
    config, path = first_stage_of(checkpoint), checkpoint.path / SCORER
    try:
        return FirstStageScorer(config, load_file(path) if config.weighted_rankers else {})
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error


def file_to_run(checkpoint: Checkpoint, *, kind: str, precision: str) -> str:
    """The file of the checkpoint that `open_vector_backend` runs. Raises CheckpointError if it is missing."""
    first_stage_of(checkpoint)
    name = encoder_graph(precision) if kind == "onnx" else WEIGHTS
    if name not in checkpoint.manifest.files:
        problem = (
            "`cerberank checkpoint first-stage` writes it"
            if kind == "onnx"
            else "so that only its ONNX graph can be run"
        )
        raise CheckpointError(f"{checkpoint.path} has no {name}: {problem}")
    return name


def open_vector_backend(
    checkpoint: Checkpoint,
    *,
    kind: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> VectorBackend:
    """Open the first stage's network on `device`, with the arguments and errors of `registry.open_backend`.

    fp16 becomes bf16 if activations on the golden texts are too large for float16; `precision` of the result says so.
    """
    config = first_stage_of(checkpoint)
    kind = kind or usual_backend(device)
    precision = check_precision(kind, precision or usual_precision(kind, device))
    path = checkpoint.path / file_to_run(checkpoint, kind=kind, precision=precision)
    if kind == "onnx":
        from cerberank_models.first_stage.onnx_encoder import OnnxEncoder  # noqa: PLC0415 - see registry.py

        return OnnxEncoder(path, config, precision=precision, threads=threads, device=device)
    return _open_torch(checkpoint, config, precision=precision, threads=threads, device=device)


def _open_torch(
    checkpoint: Checkpoint, config: TextRankerConfig, *, precision: str, threads: int | None, device: str
) -> VectorBackend:
    import torch  # noqa: PLC0415 - a service that runs ONNX installs without torch

    from cerberank_models.backends.half_precision import half_precision  # noqa: PLC0415
    from cerberank_models.backends.torch_backend import fill  # noqa: PLC0415
    from cerberank_models.first_stage.torch_encoder import TorchEncoder  # noqa: PLC0415
    from cerberank_models.network.text_ranker import TextVectors  # noqa: PLC0415

    torch.set_num_threads(compute_threads(threads))
    with torch.device("meta"):
        network = TextVectors(config)
    fill(network, checkpoint.path / WEIGHTS)
    if precision == "fp16":
        encoder = open_encoder(checkpoint)
        golden = [
            concat_pairs([encoder.questions([question]), encoder.candidates(texts)]) for question, texts in GOLDEN_TEXTS
        ]
        precision = half_precision(network.eval(), golden, f"the first stage of {checkpoint.config.name}")
    return TorchEncoder(network, device=device, precision=precision)
