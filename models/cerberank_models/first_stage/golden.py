"""The golden questions of a first stage: what every form of it must still compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import ValidationError

from cerberank_models.backends.contract import Scores
from cerberank_models.checkpoint.first_stage_files import GOLDEN
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.checkpoint.manifest import GoldenQuestion
from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.contract import VectorBackend
from cerberank_models.first_stage.open import open_encoder, open_scorer
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.rank import GoldenMismatchError, compare_golden, recorded_scores
from cerberank_models.text_encoding import TextEncoder


def score_texts(
    backend: VectorBackend, encoder: TextEncoder, scorer: FirstStageScorer, question: str, texts: Sequence[str]
) -> Scores:
    """Scores `[n]` of a question's candidates, with every vector computed now."""
    vectors = backend.encode(concat_pairs([encoder.questions([question]), encoder.candidates(texts)]))
    return scorer(vectors[0], vectors[1:])


def check_first_stage(
    backend: VectorBackend,
    checkpoint: Checkpoint,
    precision: str,
    *,
    encoder: TextEncoder | None = None,
    scorer: FirstStageScorer | None = None,
    pause: Callable[[], None] = lambda: None,
) -> None:
    """Score every golden question of the first stage and compare with the scores recorded for `precision`.

    A half precision without scores of its own is compared with fp32. `encoder` and `scorer` are the checkpoint's; None
    makes them. `pause` is called before each question.
    Raises GoldenMismatchError when the scores do not agree or there are none to compare with, CheckpointError for a
    malformed golden file.
    """
    encoder, scorer = encoder or open_encoder(checkpoint), scorer or open_scorer(checkpoint)
    for golden in read_golden(checkpoint):
        if recorded_scores(golden, precision) is None:
            raise GoldenMismatchError(f"{checkpoint.path / GOLDEN} has no {precision} scores to compare with")
        pause()
        texts = [candidate.text for candidate in golden.candidates]
        compare_golden(golden, precision, score_texts(backend, encoder, scorer, golden.question, texts))


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
