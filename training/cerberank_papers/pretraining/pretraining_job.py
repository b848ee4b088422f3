"""The pre-training of an encoder with context, which `train pretrain` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
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
from cerberank_training.runs.job import Job
from cerberank_training.runs.loop import FINAL, EqualSteps, Learner, Losses
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.record import RunRecord
from cerberank_training.runs.run_data import Content, check_held_out, data_content
from cerberank_training.teachers.scoring.hugging_face import logit_difference

REASON = "pre-training starts from a Hugging Face encoder"
LOSSES = ("ssp", "mlm", "rtd")
TOGETHER = 64
"""The number of dev examples in a batch."""


class PretrainingJob(Job[PretrainOptions]):
    """The pre-training of an encoder."""

    verb = "pretrain"
    result_name = "model.safetensors"

    @property
    def dev_name(self) -> str:
        """The log's name of the measure that chooses the weights; the others are `dev/NAME`."""
        return "dev"

    @cached_property
    def base(self) -> Base:
        """The encoder, whose size must fit the generator and the examples."""
        options = self.options
        base = open_hugging_face_base(options.base, reason=REASON)
        check_start(base, layers=options.layers, generator=bool(options.generator))
        base.check_room(options.training.max_length)
        return base

    @cached_property
    def generator(self) -> Base | None:
        """The generator of ELECTRA."""
        return open_hugging_face_base(self.options.generator, reason=REASON) if self.options.generator else None

    @cached_property
    def documents(self) -> DocumentTable:
        """The documents to train on."""
        return open_documents(self.options.documents)

    @cached_property
    def train(self) -> ExampleGroups:
        """The examples to train on."""
        return self._examples(self.documents, self.options.training.seed)

    @cached_property
    def dev(self) -> list[Example]:
        """The examples to measure on, in whole groups."""
        held_out = self._examples(open_documents(self.options.dev), 0)
        return [each for index in range(self.options.dev_groups) for each in held_out.group(index)]

    def _examples(self, documents: DocumentTable, seed: int) -> ExampleGroups:
        options = self.options
        return ExampleGroups(documents, options.objective, seed=seed, whole_negatives=options.whole_negatives)

    @cached_property
    def config(self) -> PretrainingConfig:
        """The settings of the loop."""
        return self.options.training.resolved(len(self.train))

    @property
    def bound(self) -> dict[str, Any]:
        """The content of the networks and of the documents, with the rule that splits them, and the settings."""
        options = self.options
        base = self.base.content()
        generator = self.generator.content() if self.generator else None
        documents, dev = _content(options.documents), _content(options.dev)
        check_held_out(options.dev, dev, train=options.documents, train_content=documents)
        names = ("objective", "whole_negatives", "layers", "token_types", "dev_groups", "select")
        settings = {name: getattr(options, name) for name in names} | {"weights": asdict(options.weights)}
        return {
            "base": base,
            "generator": generator,
            "documents": documents,
            "dev": dev,
            "settings": settings | self.config.bound,
        }

    @property
    def names(self) -> dict[str, str | None]:
        """The names of the generator and of the documents."""
        return {name: getattr(self.options, name) for name in ("generator", "documents", "dev")}

    @cached_property
    def start(self) -> Start:
        """The network with its heads."""
        options = self.options
        return build_start(
            self.base,
            options.weights,
            seed=options.training.seed,
            generator=self.generator,
            layers=options.layers,
            token_types=options.token_types,
        )

    @cached_property
    def learner(self) -> Learner[nn.Module, Item, ExampleBatch]:
        """The network, and the examples that it learns from."""
        return pretraining_learner(self.start, self.train, self.config, select=self.options.select)

    @property
    def measure(self) -> Callable[[nn.Module], dict[str, float]]:
        """The figures of the binary head on the held-out documents."""
        batches, device = batches_of(self.start, self.config), torch.device(self.options.run.place)
        return DevExamples(self.dev, batches, device, self.config, self.options.select).figures

    @property
    def start_lines(self) -> Sequence[str]:
        """A line on the documents and the new parts of the network."""
        new = "".join(f", {part} made anew" for part in self.start.fresh)
        return (f"{len(self.documents):,} documents{new}",)

    def results(self, best: float) -> dict[str, Any]:
        """The best figure, the number of examples that it is measured on, and the metrics of the chosen weights."""
        figures = self.measure(self.start.network)
        metrics = {name: figures[name] for name in METRICS if name in figures}
        return {"best": best, "examples": len(self.dev)} | metrics

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
