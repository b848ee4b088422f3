"""A run of context-aware pre-training by Hugging Face's Trainer, which can resume and run in several processes.

Batch k of a run does not depend on earlier batches. Therefore a killed run resumes from the Trainer's own checkpoint
(weights, optimiser, schedule, state of the random numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cyclopts import Parameter
from transformers import Trainer

from cerberank_models.commands.values import Count, NotNegative, Positive
from cerberank_models.convert.loading import quiet_transformers
from cerberank_papers.pretraining.batches import Batches, Item
from cerberank_papers.pretraining.examples import GROUP, Example, ExampleGroups
from cerberank_papers.pretraining.start import Start
from cerberank_training.learning.attention import training_attention
from cerberank_training.learning.losses import logit_difference
from cerberank_training.learning.trainer import (
    Items,
    TrainerConfig,
    check_loss,
    last_checkpoint,
    show_progress,
    trainer_arguments,
)
from cerberank_training.runs.launched import launched_processes
from cerberank_training.tracking.running import running

RUN = "run"
"""The Trainer's folder within the encoder's."""
METRICS = ("ssp_accuracy", "ssp_first", "ssp_hard")
"""The figures of the binary head, in percent. The last is only measured if there are hard negatives."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainingConfig(TrainerConfig):
    """The length and learning rates of a run; the defaults are the paper's (SSP appendix C)."""

    steps: Count = 400_000
    examples_per_step: Count = 4080
    """Examples of a step, of all processes together; a multiple of 5 (the paper: 4096)."""
    learning_rate: Positive = 1e-4
    warmup: NotNegative = 10_000
    weight_decay: NotNegative = 0.01
    max_length: Count = 128
    """Most tokens of an example."""
    evaluate_every: Count = 1000

    def __post_init__(self) -> None:
        """Raise ValueError for a step without whole groups, and for a warm-up that is longer than the run."""
        TrainerConfig.__post_init__(self)  # `super()` fails in a dataclass with slots
        if self.examples_per_step < GROUP or self.examples_per_step % GROUP:
            raise ValueError(f"--examples-per-step must be a multiple of {GROUP}, not {self.examples_per_step}")

    def batch(self, processes: int) -> int:
        """The number of examples in a batch. Raises ValueError for a step that cannot be divided equally."""
        step = GROUP * self.accumulate * processes
        if self.examples_per_step % step:
            raise ValueError(
                f"--examples-per-step is {self.examples_per_step}: it must be a multiple of {step}, which is {GROUP} "
                f"times {self.accumulate} accumulated batches times {processes} processes"
            )
        return self.examples_per_step // (self.accumulate * processes)


def pretrain(
    start: Start, out: Path, train: ExampleGroups, dev: list[Example], config: PretrainingConfig
) -> dict[str, float]:
    """Train the network of `start` in the folder `out`, and return the metrics on `dev` (whole groups).

    The metrics are percentages: `ssp_accuracy`, the accuracy on all examples (80 % are negatives); `ssp_first`, the
    share of groups whose positive has the highest score; `ssp_hard`, the share of hard negatives with a lower score
    than their positive, left out without hard negatives. Ties count as the expectation over random orders. Another
    call resumes a killed run from its last evaluation.
    """
    masks = any(weight > 0 for weight in _weights(start))
    batches = Batches(start.tokenizer, family=start.family, max_length=config.max_length, masks=masks, seed=config.seed)
    groups = config.steps * config.examples_per_step // GROUP
    trainer = _PretrainingTrainer(
        model=start.network,
        args=trainer_arguments(
            out / RUN, config, batch=config.batch(launched_processes()) // GROUP, label="ssp_labels"
        ),
        train_dataset=Items(groups, partial(_group, train)),
        eval_dataset=Items(len(dev), partial(_alone, dev)),
        data_collator=batches,
        compute_metrics=dev_metrics(dev),
    )
    show_progress(trainer, out.name, figure="eval_ssp_accuracy")
    with running(out), quiet_transformers():
        trainer.train(resume_from_checkpoint=last_checkpoint(out / RUN))
        metrics = trainer.evaluate()
    return {name.removeprefix("eval_"): value for name, value in metrics.items()}


def _weights(start: Start) -> tuple[float, ...]:
    weights = start.network.weights
    return (weights.mlm, weights.rtd) if start.family == "electra" else (weights.mlm,)


def _group(examples: ExampleGroups, index: int) -> Item:
    return index, examples.group(index)


def _alone(dev: list[Example], index: int) -> Item:
    return index, [dev[index]]


class _PretrainingTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types
    """Logs each loss besides the sum, and the accuracy of the binary head."""

    _parts: list[dict[str, float]]

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        with training_attention(self.args.device):
            outputs = model(**inputs)
        check_loss(self, outputs["loss"])
        if model.training:
            right = (outputs["ssp_logits"].argmax(-1) == inputs["ssp_labels"]).float().mean()
            seen = {name: float(outputs[name][0]) for name in ("ssp", "mlm", "rtd") if name in outputs}
            self._seen().append(seen | {"ssp_accuracy": 100 * float(right)})
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and (seen := self._seen()):
            logs |= {name: float(np.mean([each[name] for each in seen])) for name in seen[0]}
            seen.clear()
        super().log(logs, start_time)

    def _seen(self) -> list[dict[str, float]]:
        """The sums of each batch since the last log."""
        if not hasattr(self, "_parts"):
            self._parts = []
        return self._parts


def dev_metrics(dev: list[Example]) -> Callable[[Any], dict[str, float]]:
    """A function for the Trainer that computes METRICS and mean losses of predictions on `dev` (whole groups)."""
    hard = np.asarray([example.kind == "hard" for example in dev]).reshape(-1, GROUP)
    labels = np.asarray([example.label for example in dev])

    def measure(prediction: Any) -> dict[str, float]:
        logits, *parts = prediction.predictions
        scores = logit_difference(torch.from_numpy(logits)).numpy()
        grouped = scores.reshape(-1, GROUP)
        below, level = grouped < grouped[:, :1], grouped == grouped[:, :1]
        metrics = {
            "ssp_accuracy": ((scores > 0) == labels).mean(),
            "ssp_first": ((below | level).all(axis=1) / level.sum(axis=1)).mean(),
        }
        if hard.any():
            metrics["ssp_hard"] = (below + level / 2)[hard].mean()
        losses = {name: values.mean() for name, values in zip(("ssp", "mlm", "rtd"), parts, strict=False)}
        return {name: 100 * float(value) for name, value in metrics.items()} | {
            name: float(value) for name, value in losses.items()
        }

    return measure
