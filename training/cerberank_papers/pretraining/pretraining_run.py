"""A run of context-aware pre-training, by `loop.Loop`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
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
from cerberank_training.learning.loop import FINAL, Figures, Loop, autocast, training_precision
from cerberank_training.learning.losses import logit_difference
from cerberank_training.learning.recomputation import hugging_face_layers
from cerberank_training.learning.steps_ahead import EqualSteps
from cerberank_training.learning.train_config import TrainConfig
from cerberank_training.runs.processes import Processes
from cerberank_training.tracking.tracker import Tracker

FIGURE = "dev"
"""The log's name for the figure that chooses the weights; the others are `dev/NAME`."""
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


class PretrainingRun:
    """The pre-training of one network in one folder."""

    def __init__(
        self,
        folder: Path,
        start: Start,
        train: ExampleGroups,
        dev: list[Example],
        config: PretrainingConfig,
        *,
        select: Choice = "last",
        device: str = "cpu",
        workers: int = 0,
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds a state, resume it. `dev` has whole groups."""
        self._network = start.network
        self._dev = dev
        self._config = config
        self._select = select
        self._device = torch.device(device)
        self._processes = Processes.join(self._device)
        weights = start.network.weights
        masks = weights.mlm > 0 or (start.family == "electra" and weights.rtd > 0)
        self._batches = Batches(
            start.tokenizer, family=start.family, max_length=config.max_length, masks=masks, seed=config.seed
        )
        self._loop = Loop(
            folder,
            start.network,
            config,
            forward=start.network,
            items=EqualSteps(train, config.examples_per_step // GROUP),
            batch=partial(example_batch, batches=self._batches),
            loss=self._batch_loss,
            layers=hugging_face_layers(start.network),
            processes=self._processes,
            device=self._device,
            workers=workers,
            figure=FIGURE,
            takes_last=select == "last",
            trackers=trackers,
        )

    def train(self) -> dict[str, float]:
        """Train to the last step, load the chosen weights into the network, and return their `figures`."""
        self._loop.train(self._measured)
        return self.figures()

    def figures(self) -> dict[str, float]:
        """The METRICS on dev in percent, and the mean LOSSES.

        `ssp_accuracy` is the accuracy on all examples (80 % are negatives); `ssp_first`, the share of groups whose
        positive has the highest score; `ssp_hard`, the share of hard negatives with a lower score than their positive,
        left out without hard negatives.
        """
        self._network.eval()
        numbered = iter([(index, [example]) for index, example in enumerate(self._dev)])
        chunks = list(iter(lambda: list(islice(numbered, TOGETHER)), []))
        own = [self._outputs(example_batch(chunk, self._batches)) for chunk in self._processes.part(chunks)]
        outputs = [each for part in self._processes.gather(own) for each in part]
        sizes = [len(each["scores"]) for each in outputs]
        losses = {
            name: float(np.average([each[name] for each in outputs], weights=sizes))
            for name in LOSSES
            if name in outputs[0]
        }
        return dev_metrics(self._dev, np.concatenate([each["scores"] for each in outputs])) | losses

    @torch.inference_mode()
    def _outputs(self, batch: ExampleBatch) -> dict[str, NDArray[np.float32]]:
        """The scores of the examples, and the losses of the batch."""
        with autocast(self._device, self._config.precision):
            outputs = self._network(**batch.on(self._device).inputs)
        losses = {name: outputs[name].float().cpu().numpy() for name in LOSSES if name in outputs}
        return {"scores": logit_difference(outputs["ssp_logits"]).cpu().numpy()} | losses

    def _measured(self, network: nn.Module) -> dict[str, float]:
        figures = self.figures()
        return figures | {FINAL: figures["ssp_accuracy" if self._select == "last" else self._select]}

    def _batch_loss(
        self, step: int, forward: nn.Module, batch: ExampleBatch, pair_share: float
    ) -> tuple[Tensor, Figures]:
        """The loss of a batch, and each of its losses. All batches have equal numbers of examples."""
        with training_precision(self._device, self._config.precision):
            outputs = forward(**batch.inputs)
        return outputs["loss"], {name: outputs[name] for name in LOSSES if name in outputs}


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
