"""Encoders that learn context-aware pre-training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar, Literal

import numpy as np
import torch
from cyclopts import Parameter
from numpy.typing import NDArray
from torch import Tensor, nn

from cerberank_models.commands.values import Count, Interval, NotNegative, Positive
from cerberank_papers.pretraining.batches import Batches
from cerberank_papers.pretraining.examples import GROUP, Example, ExampleGroups, Item
from cerberank_papers.pretraining.start import Start
from cerberank_training.learning.batch import moved
from cerberank_training.runs.computing import autocast, hugging_face_layers
from cerberank_training.runs.loop import FINAL, Learner, Losses
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.settings import TrainConfig
from cerberank_training.runs.steps_ahead import EqualSteps
from cerberank_training.teachers.scoring.hugging_face import logit_difference

LOSSES = ("ssp", "mlm", "rtd")
METRICS = ("ssp_accuracy", "ssp_first", "ssp_hard")
"""The figures of the binary head, in percent. The last is only measured if there are hard negatives."""
Choice = Literal["last", "ssp_accuracy", "ssp_first", "ssp_hard"]
TOGETHER = 64
"""The number of dev examples in a batch."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainingConfig(TrainConfig):
    """The length and learning rates of a run; the defaults are the paper's (SSP appendix C)."""

    unit: ClassVar[int] = GROUP
    steps: Count = 400_000
    examples_per_step: Count = 4080
    """Examples of a step, of all processes together; a multiple of 5 (the paper: 4096)."""
    learning_rate: Positive = 1e-4
    warmup: NotNegative = 10_000
    max_length: Count = 128
    """Most tokens of an example."""
    evaluate_every: Interval = 1000

    def __post_init__(self) -> None:
        """Raise ValueError for a step without whole groups, and for a warm-up that is longer than the run."""
        TrainConfig.__post_init__(self)  # `super()` fails in a dataclass with slots
        if self.examples_per_step < GROUP or self.examples_per_step % GROUP:
            raise ValueError(f"--examples-per-step must be a multiple of {GROUP}, not {self.examples_per_step}")


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
