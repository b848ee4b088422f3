"""A run of context-aware pre-training by Hugging Face's Trainer, which can resume and run in several processes.

Batch k of a run does not depend on earlier batches. Therefore a killed run resumes from the Trainer's own checkpoint
(weights, optimiser, schedule, state of the random numbers).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from cerberank_training.learning.attention import training_attention
from cerberank_training.learning.losses import logit_difference
from cerberank_training.learning.processes import TIMEOUT, TrainerDevice, launched_processes, on_processor
from cerberank_training.learning.train_config import ramp_steps
from cerberank_training.learning.trainer_checkpoint import last_checkpoint
from cerberank_training.pretraining.base import Start, save_encoder
from cerberank_training.pretraining.batches import Batches, Item
from cerberank_training.pretraining.examples import GROUP, Example, ExampleGroups
from cerberank_training.tracking.running import running

METRICS = ("ssp_accuracy", "ssp_first", "ssp_hard")
"""The figures of the binary head, in percent. The last is only measured if there are hard negatives."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainingConfig:
    """The length and learning rates of a run; the defaults are the paper's (SSP appendix C)."""

    steps: int = 400_000
    examples_per_step: int = 4080
    """The examples of one optimiser step of all processes, in whole groups of five (the paper has 4,096)."""
    accumulate: int = 1
    """The number of batches that each process divides its part of a step into."""
    learning_rate: float = 1e-4
    warmup: float = 10_000
    """The part of the run in which the learning rate rises, before it falls linearly to 0. A value below 1 is a share
    of the steps, and from 1 on a number of steps.
    """
    weight_decay: float = 0.01
    max_length: int = 128
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    evaluate_every: int = 1000
    seed: int = 1
    device: TrainerDevice = "auto"
    workers: int = 0
    """The number of processes that prepare batches ahead; with 0 the training process makes them."""
    planned: int | None = None
    """The number of steps with which an extended run was begun; the warm-up is a share of this number."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the setting, for invalid values."""
        for name in ("steps", "accumulate", "evaluate_every", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be above 0, not {self.learning_rate}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0, not {self.weight_decay}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be at least 0 and below 2**32, not {self.seed}")
        ramp_steps(self.warmup, self.planned or self.steps)
        if self.examples_per_step < GROUP or self.examples_per_step % GROUP:
            raise ValueError(f"examples_per_step must be a multiple of {GROUP}, not {self.examples_per_step}")

    def batch(self, processes: int) -> int:
        """The number of examples in a batch. Raises ValueError for a step that cannot be divided equally."""
        step = GROUP * self.accumulate * processes
        if self.examples_per_step % step:
            raise ValueError(
                f"examples_per_step is {self.examples_per_step}: it must be a multiple of {step}, which is {GROUP} "
                f"times {self.accumulate} accumulated batches times {processes} processes"
            )
        return self.examples_per_step // (self.accumulate * processes)


def pretrain(
    start: Start, out: Path, train: ExampleGroups, dev: list[Example], config: PretrainingConfig
) -> dict[str, float]:
    """Train the network of `start`, write its encoder to `out`, and return the metrics on `dev` (whole groups).

    The metrics are percentages: `ssp_accuracy`, the accuracy on all examples (80 % are negatives); `ssp_first`, the
    share of groups whose positive has the highest score; `ssp_hard`, the share of hard negatives with a lower score
    than their positive, left out without hard negatives. Ties count as the expectation over random orders. Another
    call resumes a killed run from its last evaluation.
    """
    masks = any(weight > 0 for weight in _weights(start))
    batches = Batches(start.tokenizer, family=start.family, max_length=config.max_length, masks=masks, seed=config.seed)
    arguments = _arguments(out / "run", config)
    groups = config.steps * config.examples_per_step // GROUP
    trainer = _PretrainingTrainer(
        model=start.network,
        args=arguments,
        train_dataset=_Items(groups, train.group),
        eval_dataset=_Items(len(dev), partial(_alone, dev)),
        data_collator=batches,
        compute_metrics=dev_metrics(dev),
    )
    with running(out):
        trainer.train(resume_from_checkpoint=last_checkpoint(out / "run"))
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        save_encoder(start, out)
    return {name.removeprefix("eval_"): value for name, value in metrics.items()}


def _weights(start: Start) -> tuple[float, ...]:
    weights = start.network.weights
    return (weights.mlm, weights.rtd) if start.family == "electra" else (weights.mlm,)


def _arguments(run: Path, config: PretrainingConfig) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(run),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch(launched_processes()) // GROUP,
        per_device_eval_batch_size=64,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.learning_rate,
        warmup_steps=math.ceil(ramp_steps(config.warmup, config.planned or config.steps)),
        weight_decay=config.weight_decay,
        lr_scheduler_type="linear",
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        eval_strategy="steps",
        eval_steps=config.evaluate_every,
        save_steps=config.evaluate_every,
        save_total_limit=2,
        logging_steps=min(50, config.evaluate_every),
        disable_tqdm=True,
        report_to=["tensorboard"],
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        label_names=["ssp_labels"],
        seed=config.seed,
        use_cpu=on_processor(config.device),
        ddp_timeout=int(TIMEOUT.total_seconds()),
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=config.device != "cpu" and torch.cuda.is_available(),
    )


def _alone(dev: list[Example], index: int) -> list[Example]:
    return [dev[index]]


class _Items(Dataset[Item]):
    def __init__(self, size: int, examples: Callable[[int], list[Example]]) -> None:
        self._size, self._examples = size, examples

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Item:
        return index, self._examples(index)


class _PretrainingTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types
    """Logs each loss besides the sum, and the accuracy of the binary head."""

    _parts: list[dict[str, float]]

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        with training_attention(self.args.device):
            outputs = model(**inputs)
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
