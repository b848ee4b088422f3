"""`cerberank train pretrain`: an encoder that is pre-trained further with context (SSP)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from cerberank_models.commands.values import Count, NotNegative, Positive, Whole
from cerberank_models.convert.token_types import NewTypes
from cerberank_models.output import say
from cerberank_training.commands.presets import options_from_recipe, recipe_help
from cerberank_training.commands.run_options import TrainerDevice
from cerberank_training.learning.processes import check_trainer_device, leave_group
from cerberank_training.learning.trainer import last_checkpoint
from cerberank_training.pretraining.base import build_start, check_start
from cerberank_training.pretraining.document_table import open_documents
from cerberank_training.pretraining.documents import READERS
from cerberank_training.pretraining.examples import ExampleGroups, Objective
from cerberank_training.pretraining.network import LossWeights
from cerberank_training.pretraining.run import METRICS, PretrainingConfig
from cerberank_training.pretraining.run import pretrain as train_encoder
from cerberank_training.runs.base import open_hugging_face_base
from cerberank_training.runs.content import Content, data_content
from cerberank_training.runs.dev_set import check_held_out
from cerberank_training.runs.launched import launched_processes, note_of
from cerberank_training.runs.options import named_options
from cerberank_training.runs.place import check_writable, writing
from cerberank_training.runs.record import open_run
from cerberank_training.runs.trained_on import write_training_data

USUAL = PretrainingConfig()
REASON = "pre-training starts from a Hugging Face encoder"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """The options of `train pretrain`; the defaults of training are the paper's."""

    recipe: Annotated[str | None, Parameter(help=recipe_help("pretrain"))] = None
    objective: Objective
    """SSP's objective, which is the context of an example: the document's first paragraph (sdc), the rest of the
    paragraph (dpc), the neighbouring sentences (dslc), or all in turn."""
    whole_negatives: bool = False
    """Keep every sentence in the paragraphs of negatives, as in the paper; lengths then reveal some of the answers."""
    base: str
    """Path or hub id of BERT, RoBERTa or ELECTRA's discriminator."""
    generator: str | None = None
    """Path or hub id of ELECTRA's generator (default: a new, narrow one)."""
    layers: Count | None = None
    """Number of the encoder's layers to keep, counted from the first (default: all)."""
    token_types: NewTypes = "fresh"
    """Start of token types that the base lacks: random rows (fresh), copies of the last row (copied), or a new random
    table (anew, as in SSP)."""
    documents: Annotated[str, Parameter(help=f"Documents as FORMAT:PATH; FORMAT is one of {', '.join(READERS)}.")]
    dev: str
    """Held-out documents to measure on, as FORMAT:PATH."""
    dev_groups: Count = 100
    """Number of groups of five examples to draw from --dev."""
    out: Path
    """Folder of the encoder."""
    device: TrainerDevice = "auto"
    workers: Whole = USUAL.workers
    """Processes that make batches ahead of the training; with 0 the training process makes them."""
    ssp_weight: NotNegative = LossWeights().ssp
    """Weight of SSP's loss; with 0, language modelling alone is trained."""
    mlm_weight: NotNegative = LossWeights().mlm
    """Weight of masked language modelling; 0 for none."""
    rtd_weight: NotNegative = LossWeights().rtd
    """Weight of ELECTRA's replaced-token detection; 0 for none."""
    steps: Count = USUAL.steps
    """Training steps."""
    examples_per_step: Count = USUAL.examples_per_step
    """Examples of a step, of all processes together; a multiple of 5 (the paper: 4096)."""
    accumulate: Count = USUAL.accumulate
    """Number of batches into which each process divides its part of a step."""
    learning_rate: Positive = USUAL.learning_rate
    """Highest learning rate."""
    warmup: NotNegative = USUAL.warmup
    """Steps during which the learning rate rises; a number below 1 is a share of all steps."""
    weight_decay: NotNegative = USUAL.weight_decay
    """Weight decay of AdamW."""
    max_length: Count = USUAL.max_length
    """Most tokens of an example."""
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    """Precision of the forward pass."""
    evaluate_every: Count = USUAL.evaluate_every
    """Steps between two evaluations; each also saves the state."""
    seed: Whole = USUAL.seed
    """Random seed."""


app = App(config=options_from_recipe("pretrain"))


@app.default
def pretrain(*, options: PretrainOptions) -> None:
    """Continue an encoder's pre-training with context (SSP), on documents of paragraphs.

    Writes an ordinary Hugging Face folder with three token types, which `train teach`, `train pairwise` and
    `train distil` take as --base. A killed run continues when the command is repeated. Several GPUs:
    `torchrun --nproc-per-node 4 --no-python cerberank train pretrain ...`.

    Args:
        options: Options.
    """
    with writing(options.out), named_options(vars(options)):
        metrics, count = _pretrain(options)
    hard = f"above a hard negative {metrics['ssp_hard']:.1f} % (50)" if "ssp_hard" in metrics else "no hard negatives"
    say(
        f"{options.out}: on {count} examples of --dev, accuracy {metrics['ssp_accuracy']:.1f} % (80 unread), "
        f"positive first {metrics['ssp_first']:.1f} % (20), {hard}"
    )


def _content(spec: str) -> Content:
    """The identity of documents: their format and files, and the rule that splits them into sentences."""
    place, _, split = spec.partition("?")
    return data_content(place) | {"options": split}


def _pretrain(options: PretrainOptions) -> tuple[dict[str, float], int]:
    """Train, and return the metrics with the number of examples that they were measured on."""
    out: Path = options.out
    config = PretrainingConfig(
        **{each.name: getattr(options, each.name) for each in fields(PretrainingConfig) if each.name != "planned"}
    )
    config.batch(launched_processes())
    weights = LossWeights(ssp=options.ssp_weight, mlm=options.mlm_weight, rtd=options.rtd_weight)
    check_writable(out)
    check_trainer_device(options.device, options.precision)
    base = open_hugging_face_base(options.base, reason=REASON)
    check_start(base, layers=options.layers, generator=bool(options.generator))
    base.check_room(config.max_length)
    generator = open_hugging_face_base(options.generator, reason=REASON) if options.generator else None
    base_content, generator_content = base.content(), generator.content() if generator else None
    documents, held_out = open_documents(options.documents), open_documents(options.dev)
    whole = options.whole_negatives
    train = ExampleGroups(documents, options.objective, seed=config.seed, whole_negatives=whole)
    dev = ExampleGroups(held_out, options.objective, seed=0, whole_negatives=whole)
    content, dev_content = _content(options.documents), _content(options.dev)
    check_held_out(options.dev, dev_content, train=options.documents, train_content=content)
    names = ("objective", "whole_negatives", "layers", "token_types", "dev_groups")
    settings = {name: getattr(options, name) for name in names} | {"weights": asdict(weights)}
    bound, free = config.settings()
    run = open_run(
        out,
        "pretrain",
        result=out / "model.safetensors",
        is_saved=last_checkpoint(out / "run") is not None,
        bound={
            "base": base_content,
            "generator": generator_content,
            "documents": content,
            "dev": dev_content,
            "settings": settings | bound,
        },
        free=free
        | {"recipe": options.recipe}
        | {"names": {name: getattr(options, name) for name in ("base", "generator", "documents", "dev", "out")}},
    )
    record = run.record
    if run.is_finished:
        note_of("pretrain", f"{out} is finished; more --steps extend it")
        return {name: record.results[name] for name in METRICS if name in record.results}, record.results["examples"]
    config = replace(config, planned=record.planned["steps"])
    start = build_start(
        base,
        weights,
        seed=config.seed,
        generator=generator,
        layers=options.layers,
        token_types=options.token_types,
    )
    run.begin(f"{len(documents):,} documents" + "".join(f", {part} made anew" for part in start.fresh))
    write_training_data(out, record, base=base.folder)
    examples = [each for index in range(options.dev_groups) for each in dev.group(index)]
    metrics = train_encoder(start, out, train, examples, config)
    leave_group()
    figures = {name: metrics[name] for name in METRICS if name in metrics}
    run.finish(reached=config.steps, examples=len(examples), **figures)
    return metrics, len(examples)
