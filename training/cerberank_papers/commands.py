"""`cerberank train pretrain` and `cerberank train pairwise`.

The options are read, and wrong ones are refused, before a job imports torch.
"""

from __future__ import annotations

from cyclopts import App
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict

from cerberank_papers.pairwise.settings import SYSTEMS, PairwiseOptions, System, released_settings
from cerberank_papers.pretraining.settings import PretrainOptions
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.runs.job import Trained, train


def settings_from_recipe(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A configuration of cyclopts: options that a call leaves out have the values of its recipe, else of --released."""
    options_from_recipe("pairwise")(app, commands, arguments)
    if arguments["--released"].convert() is True:
        system = SYSTEMS.get(arguments["--system"].convert(), System())
        Dict(released_settings(system), source="--released", use_commands_as_keys=False)(app, commands, arguments)


pretrain_app = App(config=options_from_recipe("pretrain"))
pairwise_app = App(config=settings_from_recipe)


@pretrain_app.default
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


@pairwise_app.default
def pairwise(*, options: PairwiseOptions) -> Trained:
    """Train a text ranker on triples: one of TRMD's teachers or students.

    monoBERT (mono), TwinBERT (twin) and ColBERT (colbert) are trained on labels, as are the students without
    distillation (tr-*). trmd-* also learn from --mono and --bi, folders that this command wrote as OUT/ranker, of the
    same encoder. A killed run continues when the command is repeated. Several GPUs or processes:
    `torchrun --nproc-per-node 4 --no-python cerberank train pairwise ...`.

    Args:
        options: Options.
    """
    from cerberank_papers.pairwise.pairwise_job import TextRankerJob  # noqa: PLC0415 - loads torch

    return train(TextRankerJob(options))
