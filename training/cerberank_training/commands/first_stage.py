"""The command `cerberank checkpoint first-stage`, which adds a bi-encoder as first stage to a checkpoint."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.values import Count, DataSpec, Names
from cerberank_models.first_stage.attach import attach
from cerberank_models.first_stage.bi_encoders import read_bi_encoder
from cerberank_models.output import note, say
from cerberank_training.runs.unlabelled import int8_questions


def first_stage(
    checkpoint: Path,
    encoder: str,
    out: Path,
    /,
    *,
    drop_ratio: float = 0.8,
    forms: Names | None = None,
    int8_texts: DataSpec | None = None,
    candidate_length: Count = 128,
    version: str | None = None,
) -> Path:
    """Attach a bi-encoder that ranks all candidates before any is read as a pair.

    Args:
        checkpoint: Checkpoint folder without a first stage.
        encoder: Folder of `train pairwise`, a sentence-transformers model with mean pooling, or a ColBERT of
            sentence-transformers (MultiVectorEncoder) or PyLate; these models as a folder or a hub id.
        out: Checkpoint folder to make.
        drop_ratio: Share of the candidates that the first stage drops.
        forms: ONNX forms, separated by commas (default: the checkpoint's); none for weights alone.
        int8_texts: Questions to measure int8 ranges on: FORMAT:PATH, or a file as `cerberank rank` reads it.
        candidate_length: Most tokens of a candidate.
        version: Version of the new checkpoint (default: the old one's with -first-stage).
    """
    opened = read_bi_encoder(encoder, candidate_length=candidate_length)
    result = attach(
        read_checkpoint(checkpoint),
        opened,
        out,
        source=Path(encoder).name,
        alpha=drop_ratio,
        precisions=forms,
        calibration=int8_questions(int8_texts),
        version=version,
    )
    if opened.trained_length is not None and opened.trained_length < candidate_length:
        note(
            f"Candidates are read up to {candidate_length} tokens, though {encoder} was trained on "
            f"{opened.trained_length}; --candidate-length {opened.trained_length} reads as many."
        )
    schedule = ",".join(f"{ratio:g}" for ratio in result.config.schedule)
    say(
        f"{out}: {result.config.name}@{result.manifest.version} drops {schedule}. Its first ratio was not measured, "
        f"and tuned schedules are gone: run `cerberank train tune {out} --data ... --out ...`"
    )
    return out
