"""`cerberank train teach`: a teacher from a Hugging Face sequence classifier (TANDA).

The options are read, and wrong ones are refused, before the training (`learning/teacher_job.py`) imports torch.
"""

from __future__ import annotations

from cyclopts import App

from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.learning.teacher_settings import TeachOptions
from cerberank_training.runs.job import Trained, train

app = App(config=options_from_recipe("teach"))


@app.default
def teach(*, options: TeachOptions) -> Trained:
    """Fine-tune a Hugging Face sequence classifier into a teacher.

    TANDA is two calls: transfer on a large set, then adapt the result to the target set. A killed run continues when
    the command is repeated. Several GPUs: `torchrun --nproc-per-node 4 --no-python cerberank train teach ...`.

    Args:
        options: Options.
    """
    from cerberank_training.learning.teacher_job import TeacherJob  # noqa: PLC0415 - loads torch

    return train(TeacherJob(options))
