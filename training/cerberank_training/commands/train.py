"""`cerberank train distil` and `cerberank train teach`.

The options are read, and wrong ones are refused, before a job imports torch.
"""

from __future__ import annotations

from dataclasses import replace

from cyclopts import App

from cerberank_models.output import UsageError
from cerberank_training.commands.presets import options_from_recipe, read_preset
from cerberank_training.learning.settings import DistilOptions, TeachOptions
from cerberank_training.runs.job import Trained, train

distil_app = App(config=options_from_recipe("distil"))
teach_app = App(config=options_from_recipe("teach"))


@distil_app.default
def distil(*, options: DistilOptions) -> Trained:
    """Train a student by a recipe, on labels or teachers' scores.

    Options replace the recipe's settings. A killed run continues when the command is repeated. Several GPUs or
    processes: `torchrun --nproc-per-node 4 --no-python cerberank train distil ...`.

    Args:
        options: Options.
    """
    if (options.train is None) == (options.groups is None):
        raise UsageError("Give --train or --groups.")
    recipe = read_preset(options.recipe).name

    from cerberank_training.learning.student_job import StudentJob  # noqa: PLC0415 - loads torch

    return train(StudentJob(replace(options, recipe=recipe)))


@teach_app.default
def teach(*, options: TeachOptions) -> Trained:
    """Fine-tune a Hugging Face sequence classifier into a teacher.

    TANDA is two calls: transfer on a large set, then adapt the result to the target set. A killed run continues when
    the command is repeated. Several GPUs: `torchrun --nproc-per-node 4 --no-python cerberank train teach ...`.

    Args:
        options: Options.
    """
    from cerberank_training.learning.teacher_job import TeacherJob  # noqa: PLC0415 - loads torch

    return train(TeacherJob(options))
