"""`cerberank train pretrain`: an encoder that is pre-trained further with context (SSP)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from cyclopts import App, Parameter

from cerberank_models.commands.values import RECIPE_KEY, Count, DataSpec
from cerberank_models.config import NewTypes
from cerberank_models.output import say
from cerberank_papers.pretraining.document_table import DocumentTable, open_documents
from cerberank_papers.pretraining.documents import READERS
from cerberank_papers.pretraining.examples import ExampleGroups, Objective
from cerberank_papers.pretraining.learner import (
    METRICS,
    Choice,
    DevExamples,
    PretrainingConfig,
    batches_of,
    pretraining_learner,
)
from cerberank_papers.pretraining.network import LossWeights
from cerberank_papers.pretraining.start import Start, build_start, check_start, save_encoder
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.evaluation.dev_options import RECIPE_HELP
from cerberank_training.learning.student_settings import Layers
from cerberank_training.runs.base import Base, open_hugging_face_base
from cerberank_training.runs.job import Inputs, Job, Training, run_job
from cerberank_training.runs.record import RunRecord
from cerberank_training.runs.run_data import Content, check_held_out, data_content
from cerberank_training.runs.settings import RunOptions, bound_settings

REASON = "pre-training starts from a Hugging Face encoder"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """The options of `train pretrain`; the defaults of training are the paper's."""

    recipe: Annotated[str | None, Parameter(help=RECIPE_HELP)] = None
    objective: Objective
    """SSP's objective, which is the context of an example: the document's first paragraph (sdc), the rest of the
    paragraph (dpc), the neighbouring sentences (dslc), or all in turn."""
    whole_negatives: Annotated[bool, RECIPE_KEY] = False
    """Keep every sentence in the paragraphs of negatives, as in the paper; lengths then reveal some of the answers."""
    base: str
    """Path or hub id of BERT, RoBERTa or ELECTRA's discriminator."""
    generator: str | None = None
    """Path or hub id of ELECTRA's generator (default: a new, narrow one)."""
    layers: Layers | None = None
    token_types: NewTypes = "fresh"
    """Start of token types that the base lacks: random rows (fresh), copies of the last row (copied), or a new random
    table (anew, as in SSP)."""
    documents: Annotated[DataSpec, Parameter(help=f"Documents as FORMAT:PATH; FORMAT is one of {', '.join(READERS)}.")]
    dev: DataSpec
    """Held-out documents to measure on, as FORMAT:PATH."""
    dev_groups: Count = 100
    """Number of groups of five examples to draw from --dev."""
    select: Choice = "last"
    """Weights to write: those of the last step, or the best by a figure on dev."""
    out: Path
    """Folder of the encoder."""
    run: RunOptions = field(default_factory=RunOptions)
    weights: LossWeights = field(default_factory=LossWeights)
    training: PretrainingConfig = field(default_factory=PretrainingConfig)


app = App(config=options_from_recipe("pretrain"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pretrained:
    """An encoder that was pre-trained further."""

    folder: Path
    figures: Mapping[str, Any]
    """The accuracies on the held-out documents, in percent."""


@app.default
def pretrain(*, options: PretrainOptions) -> Pretrained:
    """Continue an encoder's pre-training with context (SSP), on documents of paragraphs.

    Writes an ordinary Hugging Face folder with three token types, which `train teach`, `train pairwise` and
    `train distil` take as --base. A killed run continues when the command is repeated. Several GPUs:
    `torchrun --nproc-per-node 4 --no-python cerberank train pretrain ...`.

    Args:
        options: Options.
    """
    return Pretrained(folder=options.out, figures=run_job(PretrainingJob(options)))


@dataclass(frozen=True, kw_only=True)
class PretrainingInputs(Inputs):
    """The base and the data of an encoder."""

    generator: Base | None
    config: PretrainingConfig
    documents: DocumentTable
    train: ExampleGroups
    dev: ExampleGroups


class PretrainingJob(Job[PretrainOptions, PretrainingInputs]):
    """The pre-training of an encoder."""

    verb = "pretrain"
    result_name = "model.safetensors"

    @property
    def dev_name(self) -> str:
        """The log's name of the measure that chooses the weights; the others are `dev/NAME`."""
        return "dev"

    def open(self) -> PretrainingInputs:
        """Open the encoder and the documents to train on and to measure on."""
        options = self.options
        # The networks, whose sizes must fit each other and the examples.
        base = open_hugging_face_base(options.base, reason=REASON)
        check_start(base, layers=options.layers, generator=bool(options.generator))
        base.check_room(options.training.max_length)
        generator = open_hugging_face_base(options.generator, reason=REASON) if options.generator else None
        base_content, generator_content = base.content(), generator.content() if generator else None
        # Documents are identified by their files and by the rule that splits them.
        documents, held_out = open_documents(options.documents), open_documents(options.dev)
        whole = options.whole_negatives
        content, dev_content = _content(options.documents), _content(options.dev)
        check_held_out(options.dev, dev_content, train=options.documents, train_content=content)
        names = ("objective", "whole_negatives", "layers", "token_types", "dev_groups")
        settings = {name: getattr(options, name) for name in names} | {"weights": asdict(options.weights)}
        train = ExampleGroups(documents, options.objective, seed=options.training.seed, whole_negatives=whole)
        config = options.training.resolved(len(train))
        takes_last = options.select == "last"  # records of earlier versions mean this
        return PretrainingInputs(
            base=base,
            generator=generator,
            documents=documents,
            train=train,
            config=config,
            dev=ExampleGroups(held_out, options.objective, seed=0, whole_negatives=whole),
            bound={
                "base": base_content,
                "generator": generator_content,
                "documents": content,
                "dev": dev_content,
                "settings": settings | bound_settings(config) | ({} if takes_last else {"select": options.select}),
            },
            names={name: getattr(options, name) for name in ("generator", "documents", "dev")},
            recipe=options.recipe,
        )

    def prepare(self, inputs: PretrainingInputs, record: RunRecord) -> EncoderTraining:
        """Build the network with its heads."""
        options = self.options
        start = build_start(
            inputs.base,
            options.weights,
            seed=options.training.seed,
            generator=inputs.generator,
            layers=options.layers,
            token_types=options.token_types,
        )
        examples = [each for index in range(options.dev_groups) for each in inputs.dev.group(index)]
        config, device = inputs.config, torch.device(options.run.place)
        dev = DevExamples(examples, batches_of(start, config), device, config, options.select)
        new = "".join(f", {part} made anew" for part in start.fresh)
        return EncoderTraining(
            learner=pretraining_learner(start, inputs.train, config, select=options.select),
            measure=dev.figures,
            start_lines=(f"{len(inputs.documents):,} documents{new}",),
            out=self.out,
            start=start,
            dev=dev,
        )


@dataclass(frozen=True, kw_only=True)
class EncoderTraining(Training):
    """An encoder with its heads, and what it learns from."""

    out: Path
    start: Start
    dev: DevExamples

    def results(self, best: float) -> dict[str, Any]:
        """The best figure, the number of examples that it is measured on, and the metrics of the chosen weights."""
        figures = self.dev.figures(self.start.network)
        metrics = {name: figures[name] for name in METRICS if name in figures}
        return {"best": best, "examples": len(self.dev.examples)} | metrics

    def write(self, record: RunRecord) -> None:
        """Write the encoder, its tokenizer and the head of its own pre-training, and say what the weights reach."""
        save_encoder(self.start, self.out)
        found = record.results
        hard = f"above a hard negative {found['ssp_hard']:.1f} % (50)" if "ssp_hard" in found else "no hard negatives"
        line = f"accuracy {found['ssp_accuracy']:.1f} % (80 unread), positive first {found['ssp_first']:.1f} % (20)"
        say(f"{self.out}: on {found['examples']} examples of --dev, {line}, {hard}")


def _content(spec: str) -> Content:
    """The identity of documents: their format and files, and the rule that splits them into sentences."""
    place, _, split = spec.partition("?")
    return data_content(place) | {"options": split}
