"""The pre-training of an encoder with context, which `train pretrain` runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cerberank_models.output import say
from cerberank_papers.pretraining.batches import Batches
from cerberank_papers.pretraining.document_table import DocumentTable, open_documents
from cerberank_papers.pretraining.examples import GROUP, Example, ExampleGroups, Item
from cerberank_papers.pretraining.settings import METRICS, Choice, PretrainingConfig, PretrainOptions
from cerberank_papers.pretraining.start import Start, build_start, check_start, save_encoder
from cerberank_training.learning.batch import moved
from cerberank_training.runs.base import Base, open_hugging_face_base
from cerberank_training.runs.computing import autocast, hugging_face_layers
from cerberank_training.runs.job import Inputs, Job, Training
from cerberank_training.runs.loop import FINAL, Learner, Losses
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.record import RunRecord
from cerberank_training.runs.run_data import Content, check_held_out, data_content
from cerberank_training.runs.settings import bound_settings
from cerberank_training.runs.steps_ahead import EqualSteps
from cerberank_training.teachers.scoring.hugging_face import logit_difference

REASON = "pre-training starts from a Hugging Face encoder"
LOSSES = ("ssp", "mlm", "rtd")
TOGETHER = 64
"""The number of dev examples in a batch."""


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
        names = ("objective", "whole_negatives", "layers", "token_types", "dev_groups", "select")
        settings = {name: getattr(options, name) for name in names} | {"weights": asdict(options.weights)}
        train = ExampleGroups(documents, options.objective, seed=options.training.seed, whole_negatives=whole)
        config = options.training.resolved(len(train))
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
                "settings": settings | bound_settings(config),
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


@dataclass(frozen=True, slots=True)
class ExampleBatch:
    """The arguments of the network for some examples."""

    inputs: dict[str, Tensor]

    @property
    def pairs(self) -> int:
        """The number of examples."""
        return len(self.inputs["ssp_labels"])

    def on(self, device: torch.device) -> ExampleBatch:
        """The batch on `device`."""
        return ExampleBatch({name: moved(tensor, device) for name, tensor in self.inputs.items()})


def example_batch(items: list[Item], batches: Batches) -> ExampleBatch:
    """The examples of the items as tensors, with their masks."""
    return ExampleBatch(batches(items))


def batches_of(start: Start, config: PretrainingConfig) -> Batches:
    """The encoding of examples as the network of `start` reads them."""
    weights = start.network.weights
    masks = weights.mlm > 0 or (start.family == "electra" and weights.rtd > 0)
    return Batches(start.tokenizer, family=start.family, max_length=config.max_length, masks=masks, seed=config.seed)


def pretraining_learner(
    start: Start, train: ExampleGroups, config: PretrainingConfig, *, select: Choice = "last"
) -> Learner[nn.Module, Item, ExampleBatch]:
    """An encoder with its heads that learns from groups of examples."""
    return Learner(
        network=start.network,
        config=config,
        items=EqualSteps(train, config.examples_per_step // GROUP),
        batch=partial(example_batch, batches=batches_of(start, config)),
        loss=pretraining_loss,
        layers=hugging_face_layers(start.network),
        takes_last=select == "last",
    )


def pretraining_loss(step: int, forward: nn.Module, batch: ExampleBatch, pair_factor: float) -> tuple[Tensor, Losses]:
    """The loss of a batch, and each of its losses. All batches have equal numbers of examples."""
    outputs = forward(**batch.inputs)
    return outputs["loss"], {name: outputs[name] for name in LOSSES if name in outputs}


@dataclass(frozen=True)
class DevExamples:
    """Examples in whole groups that a network in training is measured on."""

    examples: list[Example]
    batches: Batches
    device: torch.device
    config: PretrainingConfig
    select: Choice = "last"

    def figures(self, network: nn.Module) -> dict[str, float]:
        """The METRICS in percent, the mean LOSSES, and by the name `final` the one that chooses the weights.

        `ssp_accuracy` is the accuracy on all examples (80 % are negatives); `ssp_first`, the share of groups whose
        positive has the highest score; `ssp_hard`, the share of hard negatives with a lower score than their positive,
        left out without hard negatives.
        """
        network.eval()
        processes, numbered = Processes.current(), iter([(i, [each]) for i, each in enumerate(self.examples)])
        chunks = list(iter(lambda: list(islice(numbered, TOGETHER)), []))
        own = [self._outputs(network, example_batch(chunk, self.batches)) for chunk in processes.part(chunks)]
        outputs = [each for part in processes.gather(own) for each in part]
        sizes = [len(each["scores"]) for each in outputs]
        figures = dev_metrics(self.examples, np.concatenate([each["scores"] for each in outputs]))
        losses = {
            name: float(np.average([each[name] for each in outputs], weights=sizes))
            for name in LOSSES
            if name in outputs[0]
        }
        return figures | losses | {FINAL: figures["ssp_accuracy" if self.select == "last" else self.select]}

    @torch.inference_mode()
    def _outputs(self, network: nn.Module, batch: ExampleBatch) -> dict[str, NDArray[np.float32]]:
        """The scores of the examples, and the losses of the batch."""
        with autocast(self.device, self.config.precision):
            outputs = network(**batch.on(self.device).inputs)
        losses = {name: outputs[name].float().cpu().numpy() for name in LOSSES if name in outputs}
        return {"scores": logit_difference(outputs["ssp_logits"]).cpu().numpy()} | losses


def dev_metrics(dev: list[Example], scores: NDArray[np.float32]) -> dict[str, float]:
    """METRICS of the scores of `dev` (whole groups). Ties count as the expectation over random orders."""
    hard = np.asarray([example.kind == "hard" for example in dev]).reshape(-1, GROUP)
    labels = np.asarray([example.label for example in dev])
    grouped = scores.reshape(-1, GROUP)
    below, level = grouped < grouped[:, :1], grouped == grouped[:, :1]
    metrics = {
        "ssp_accuracy": ((scores > 0) == labels).mean(),
        "ssp_first": ((below | level).all(axis=1) / level.sum(axis=1)).mean(),
    }
    if hard.any():
        metrics["ssp_hard"] = (below + level / 2)[hard].mean()
    return {name: 100 * float(value) for name, value in metrics.items()}


def _content(spec: str) -> Content:
    """The identity of documents: their format and files, and the rule that splits them into sentences."""
    place, _, split = spec.partition("?")
    return data_content(place) | {"options": split}
