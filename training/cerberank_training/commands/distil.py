"""`cerberank train distil`: a student of a recipe, on labels or teachers' scores.

The options are read, and wrong ones are refused, before the job (`learning/student_job.py`) imports torch.
"""

from __future__ import annotations

from dataclasses import replace

from cyclopts import App

from cerberank_models.output import UsageError
from cerberank_training.commands.presets import options_from_recipe, read_preset
from cerberank_training.learning.student_settings import DistilOptions
from cerberank_training.runs.job import Trained, train

app = App(config=options_from_recipe("distil"))


@app.default
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
