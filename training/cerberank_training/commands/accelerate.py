"""`cerberank train accelerate`: exits and a drop schedule for a checkpoint, from its own scores.

The options are read, and wrong ones are refused, before the training (`acceleration/`) imports torch.
"""

from __future__ import annotations

from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.output import UsageError
from cerberank_training.acceleration.settings import Accelerated, AccelerateOptions
from cerberank_training.runs.record import launched_processes


def accelerate(checkpoint: Path, /, *, options: AccelerateOptions) -> Accelerated:
    """Give a checkpoint exits and a drop schedule from its own scores; labels are not needed.

    The body and the final scores do not change. Exits are trained on hidden states that are computed once and
    kept in OUT.work; the schedule, with the share of the lexical layer, is tuned on questions that they were not
    trained on, against the model's own ranking. A killed run continues when the command is repeated.
    `latency_target_ms` and deadlines work for the new checkpoint. An opaque graph gets the share of the lexical layer
    alone.

    Args:
        checkpoint: Checkpoint folder.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    if launched_processes() > 1:
        raise UsageError("train accelerate runs in one process, without torchrun.")
    options.run.check(options.training)
    source = read_checkpoint(checkpoint)

    from cerberank_training.acceleration.accelerated import accelerated  # noqa: PLC0415 - loads torch

    return accelerated(source, options)
