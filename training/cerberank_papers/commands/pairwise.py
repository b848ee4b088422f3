"""`cerberank train pairwise`: a text ranker from triples, one of TRMD's teachers or students.

The options are read, and wrong ones are refused, before the job (`pairwise/pairwise_job.py`) imports torch.
"""

from __future__ import annotations

from cyclopts import App
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict

from cerberank_papers.pairwise.settings import SYSTEMS, PairwiseOptions, System, released_settings
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.runs.job import Trained, train


def settings_from_recipe(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A configuration of cyclopts: options that a call leaves out have the values of its recipe, else of --released."""
    options_from_recipe("pairwise")(app, commands, arguments)
    if arguments["--released"].convert() is True:
        system = SYSTEMS.get(arguments["--system"].convert(), System())
        Dict(released_settings(system), source="--released", use_commands_as_keys=False)(app, commands, arguments)


app = App(config=settings_from_recipe)


@app.default
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
