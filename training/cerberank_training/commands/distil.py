"""`cerberank train distil`: a student of a recipe, on labels or teachers' scores.

The options are read, and wrong ones are refused, before the training (`student_job.py`) imports torch.
"""

from __future__ import annotations

from cyclopts import App

from cerberank_training.commands.distil_options import DistilOptions
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.runs.job import Trained

app = App(config=options_from_recipe("distil"))


@app.default
def distil(*, options: DistilOptions) -> Trained:
    """Train a student by a recipe, on labels or teachers' scores.

    Options replace the recipe's settings. A killed run continues when the command is repeated. Several GPUs or
    processes: `torchrun --nproc-per-node 4 --no-python cerberank train distil ...`.

    Args:
        options: Options.
    """
    from cerberank_training.commands.student_job import train_student  # noqa: PLC0415 - loads torch

    return train_student(options)
