"""`cerberank train pretrain`: an encoder that is pre-trained further with context (SSP).

The options are read, and wrong ones are refused, before the job (`pretraining/pretraining_job.py`) imports torch.
"""

from __future__ import annotations

from cyclopts import App

from cerberank_papers.pretraining.settings import PretrainOptions
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.runs.job import Trained, train

app = App(config=options_from_recipe("pretrain"))


@app.default
def pretrain(*, options: PretrainOptions) -> Trained:
    """Continue an encoder's pre-training with context (SSP), on documents of paragraphs.

    Writes an ordinary Hugging Face folder with three token types, which `train teach`, `train pairwise` and
    `train distil` take as --base. A killed run continues when the command is repeated. Several GPUs:
    `torchrun --nproc-per-node 4 --no-python cerberank train pretrain ...`.

    Args:
        options: Options.
    """
    from cerberank_papers.pretraining.pretraining_job import PretrainingJob  # noqa: PLC0415 - loads torch

    return train(PretrainingJob(options))
