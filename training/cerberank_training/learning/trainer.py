"""Hugging Face's Trainer, as teachers and pre-training use it: settings, data, progress, and saved checkpoints.

Annotations are evaluated here, because cyclopts reads those of `TrainerConfig` in the modules of its subclasses.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from cyclopts import Parameter
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerState

from cerberank_models.commands.values import Count, NotNegative, Positive, Whole
from cerberank_models.progress import progress
from cerberank_training.learning.divergence import check_finite
from cerberank_training.learning.train_config import ramp_steps
from cerberank_training.runs.processes import TIMEOUT, TrainerDevice, on_processor

STATE = "trainer_state.json"
FREE = ("steps", "patience", "device", "workers", "gradient_checkpointing")
"""The settings that may change when a run is continued."""
ItemT = TypeVar("ItemT")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """The options that teachers and pre-training have in common."""

    steps: Count
    """Training steps."""
    accumulate: Count = 1
    """Number of batches into which each process divides its part of a step."""
    learning_rate: Positive
    """Highest learning rate."""
    warmup: NotNegative
    """Steps during which the learning rate rises; a number below 1 is a share of all steps."""
    weight_decay: NotNegative
    """Weight decay of AdamW."""
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    """Precision of the forward pass in training."""
    evaluate_every: Count
    """Steps between two evaluations; each also saves the state."""
    seed: Whole = 1
    """Random seed, of new weights, dropout and the order of examples."""
    device: TrainerDevice = "auto"
    workers: Whole = 0
    """Processes that make batches ahead of the training; with 0 the training process makes them."""
    planned: Annotated[int | None, Parameter(parse=False)] = None
    """The number of steps with which the run was begun; None stands for `steps`. The warm-up is a share of it."""

    def __post_init__(self) -> None:
        """Raise ValueError for a warm-up that is longer than the run."""
        ramp_steps(self.warmup, self.planned or self.steps)

    def settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings with which a run that was begun must go on, and those that may change then."""
        bound = {name: value for name, value in asdict(self).items() if name != "planned"}
        free = {name: bound.pop(name) for name in FREE if name in bound}
        return bound, free


def trainer_arguments(run: Path, config: TrainerConfig, *, batch: int, label: str, **others: Any) -> TrainingArguments:
    """The Trainer's settings for a run in the folder `run`; `others` are those of one kind of run.

    `batch` is the number of items in a batch of one process, and `label` names the labels in a batch. The optimiser is
    AdamW, which equals Adam if `weight_decay` is 0.
    """
    return TrainingArguments(
        output_dir=str(run),
        max_steps=config.steps,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=64,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.learning_rate,
        warmup_steps=math.ceil(ramp_steps(config.warmup, config.planned or config.steps)),
        lr_scheduler_type="linear",
        weight_decay=config.weight_decay,
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        eval_strategy="steps",
        eval_steps=config.evaluate_every,
        save_steps=config.evaluate_every,
        save_total_limit=2,
        logging_steps=min(50, config.evaluate_every),
        disable_tqdm=True,  # `show_progress` has a bar
        report_to=["tensorboard"],
        train_sampling_strategy="sequential",  # items have their own order
        remove_unused_columns=False,
        label_names=[label],
        seed=config.seed,
        use_cpu=on_processor(config.device),
        ddp_timeout=int(TIMEOUT.total_seconds()),
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=config.device != "cpu" and torch.cuda.is_available(),
        **others,
    )


class Items(Dataset[ItemT]):
    """Data of which every item follows from its number. `item` must be picklable, for workers that are not forked."""

    def __init__(self, size: int, item: Callable[[int], ItemT]) -> None:
        self._size = size
        self._item = item

    def __len__(self) -> int:
        """The number of items."""
        return self._size

    def __getitem__(self, index: int) -> ItemT:
        """The item with this number."""
        return self._item(index)


def check_loss(trainer: Trainer, loss: Tensor) -> None:
    """Raise DivergenceError for a batch's loss that is not finite, which the Trainer would leave out of its figures.

    The Trainer saves after an evaluation, whose losses are checked too. So the saved weights are finite. In fp16 a
    training step without finite gradients changes nothing, because the Trainer scales the loss down and goes on.
    """
    if trainer.args.fp16 and trainer.model.training:
        return
    step = trainer.state.global_step + trainer.model.training
    scheduler = trainer.lr_scheduler
    rate = scheduler.get_last_lr()[0] if scheduler else trainer.args.learning_rate
    check_finite({"loss": float(loss.detach())}, step=step, rate=rate)


def show_progress(trainer: Trainer, name: str, *, figure: str) -> None:
    """Show the run `name` as other commands show theirs, in place of the Trainer's own output.

    That is a bar, or a line every 30 seconds in a log, with the loss, the metric `figure` on dev, and the best value of
    the metric that chooses the weights.
    """
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_Progress(name, figure))


class _Progress(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    def __init__(self, name: str, figure: str) -> None:
        self._name = name
        self._figure = figure
        self._shown = {"loss": "-"}
        self._steps: Any = None
        self._dev: Any = None

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self._steps = progress(
            total=state.max_steps,
            initial=state.global_step,
            unit="step",
            desc=self._name,
            shown=state.is_world_process_zero,
        )

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self._show_figures(state)
        self._steps.update(state.global_step - self._steps.n)

    def on_log(self, args: Any, state: TrainerState, control: Any, *, logs: dict[str, Any], **_: Any) -> None:
        if "loss" in logs:
            self._shown["loss"] = f"{logs['loss']:.4f}"

    def on_prediction_step(
        self, args: Any, state: TrainerState, control: Any, *, eval_dataloader: Any, **_: Any
    ) -> None:
        if self._dev is None:
            self._dev = progress(
                total=len(eval_dataloader),
                unit="batch",
                desc=f"{self._name}, on dev",
                leave=False,
                shown=state.is_world_process_zero,
            )
        self._dev.update()

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, *, metrics: dict[str, float], **_: Any) -> None:
        if self._dev is not None:
            self._dev.close()
            self._dev = None
        self._shown["dev"] = f"{metrics[self._figure]:.2f}"

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self._show_figures(state)
        self._steps.close()

    def _show_figures(self, state: TrainerState) -> None:
        best = {} if state.best_metric is None else {"best": f"{state.best_metric:.2f}"}
        self._steps.set_postfix(self._shown | best, refresh=False)


def last_checkpoint(run: Path) -> str | None:
    """The newest complete checkpoint of the Trainer; a killed process may have left an incomplete one."""
    complete = [path for path in run.glob("checkpoint-*") if (path / STATE).is_file()]
    for path in sorted(complete, key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            TrainerState.load_from_json(str(path / STATE))
        except ValueError:
            continue
        return str(path)
    return None


def results_of_trainer(run: Path) -> dict[str, Any]:
    """The last step of the newest checkpoint, the best step on dev, and the dev MAP before the first step.

    A run that an earlier version began lacks the last.
    """
    state = TrainerState.load_from_json(str(Path(str(last_checkpoint(run))) / STATE))
    start = (line["eval_map"] for line in state.log_history if line["step"] == 0 and "eval_map" in line)
    return {"reached": state.global_step, "best_step": state.best_global_step, "start": next(start, None)}
