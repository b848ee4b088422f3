"""The training loop: steps, evaluations and the saved state, in one process or several.

The state is saved after a number of steps or seconds, by an atomic rename. A killed run resumes from the last saved
state, with the same batches in the same order. What is trained supplies the batches of a step and the loss of a batch.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.progress import progress
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_training.runs.computing import InPrecision, Recomputed, tensor_cores, training_threads
from cerberank_training.runs.folder import running
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.record import STATE
from cerberank_training.runs.settings import TrainConfig
from cerberank_training.runs.steps_ahead import BatchT, ItemT, Preparation, PreparedStep, StepsAhead
from cerberank_training.runs.tracking.tracker import Tracker, Tracking

NetworkT = TypeVar("NetworkT", bound=nn.Module)

Losses = Mapping[str, Tensor]
"""The losses that a loss is made of, by name."""
BatchLoss = Callable[[int, nn.Module, BatchT, float], tuple[Tensor, Losses]]
DevMetric = Callable[[NetworkT], float | Mapping[str, float]]
FINAL = "final"
"""The name of the measure by which weights are chosen, among those of an evaluation."""
SMALLEST_SCALE = 1.0
"""In fp16 the loss is scaled, and a step whose gradients overflow lowers the scale and changes no weight. If gradients
overflow at a scale below this one, the training has diverged."""
SAVE_SECONDS = 600.0
"""The longest time between two saved states, apart from the step that runs at its end."""


class DivergenceError(ValueError):
    """A loss, a gradient or a score is infinite or not a number. The message names step, rate and remedy."""

    def __init__(self, what: str, *, step: int, rate: float) -> None:
        """`what` is a clause such as `the loss is nan`; `rate` is the learning rate of the step."""
        super().__init__(
            f"{what} in step {step}, with learning rate {rate:g}: training has diverged, and nothing of this step is "
            "saved. The same settings lead here again: begin in another folder with a lower --learning-rate"
        )


def check_finite(figures: Mapping[str, float], *, step: int, rate: float) -> None:
    """Raise DivergenceError for the first of the figures that is not finite."""
    for name, value in figures.items():
        if not math.isfinite(value):
            raise DivergenceError(f"the {name} is {value}", step=step, rate=rate)


@dataclass(frozen=True, kw_only=True)
class Learner(Generic[NetworkT, ItemT, BatchT]):
    """A network with what it learns from: all that the loop needs of a job."""

    network: NetworkT
    config: TrainConfig
    items: Callable[[int, int], list[ItemT]]
    """The items of a step of all processes, from its number and the number of items before it."""
    batch: Callable[[list[ItemT]], BatchT]
    """Makes tensors of some items. Other processes may call it, so it must not hold the network."""
    loss: BatchLoss[BatchT]
    """The loss to minimise and the losses that it is made of by name, from the step, `forward`, a batch on the device,
    and the factor for means over the batch's pairs. With this factor all pairs of a step have the same weight, in
    whichever batch or process they are; means over items need none.
    """
    forward: nn.Module | None = None
    """A module that wraps the network, if its own `forward` is not what the loss calls."""
    layers: Sequence[nn.Module] = ()
    """The layers of gradient checkpointing."""
    is_fresh: Callable[[str], bool] = lambda name: False
    """True if the weight of this name has the second of the `config`'s rates."""
    in_order: bool = False
    """True if a step begins where the one before it ends, so that a single process makes the batches."""
    takes_last: bool = False
    """True if the last weights count as the best."""
    work: float | None = None
    """The number of products of a weight and an input in a step, if it is known; a small one gets few threads."""


class Loop(Generic[NetworkT, ItemT, BatchT]):
    """One training run in one folder: `state.pt`, `best.pt` and `log.jsonl`.

    The first process writes them, calls the trackers and shows the bar.
    """

    def __init__(
        self,
        folder: Path,
        learner: Learner[NetworkT, ItemT, BatchT],
        *,
        device: str = "cpu",
        workers: int = 0,
        dev_name: str = "dev_map",
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds a state, resume it. The processes that torchrun started are joined.

        `workers` processes make the batches ahead of the training, or a thread if it is 0. `dev_name` is the log's
        name for what is measured on dev.
        """
        config = learner.config
        self._folder = folder
        self._learner = learner
        self._config = config
        self._device = torch.device(device)
        self._processes = Processes.join(self._device)
        # The network; what the loss calls is the network inside the wrappers that recompute, convert and synchronise.
        self._network = learner.network.to(self._device)
        forward = learner.forward or learner.network
        if config.gradient_checkpointing:
            forward = Recomputed(forward, learner.layers, self._device)
        self._forward: nn.Module = InPrecision(forward, self._device, config.precision)
        if self._processes.count > 1:
            self._forward = DistributedDataParallel(self._forward, find_unused_parameters=True)
        self._dev_name = dev_name
        fused = True if self._device.type == "cuda" else None  # one kernel for all weights
        groups = _parameter_groups(self._network, config, learner.is_fresh)
        self._optimizer = torch.optim.AdamW(groups, weight_decay=config.weight_decay, fused=fused)
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=config.precision == "fp16")
        # The saved state has these, the weights, the optimiser and the position in the data.
        self._step = 0
        self._best = float("-inf")
        self._evaluations_without_gain = 0
        self._saved_at = time.monotonic()
        self._tracking = Tracking(folder, trackers)
        folder.mkdir(parents=True, exist_ok=True)
        # Batches are made ahead from the step and the item at which an earlier call has stopped.
        position = self._resume() if (folder / STATE).exists() else 0
        prepare = Preparation(
            items=learner.items, batch=learner.batch, accumulate=config.accumulate, processes=self._processes
        )
        workers = min(workers, 1) if learner.in_order else workers
        self._ahead = StepsAhead(prepare, config.steps, workers=workers, position=position)

    def train(self, dev_metric: DevMetric[NetworkT]) -> float:
        """Train to the last step, load the best weights into the network, and return their measure on dev.

        `dev_metric` returns one measure, or several by name; `final` then chooses the weights. Every process calls it
        and may read a part of the data; the measures of the first process are used. Raises ValueError when another
        process trains in the folder, and DivergenceError at the first loss or gradient that is not finite; the last
        saved state is then from before.
        """
        # The first process alone writes, tracks, and keeps other commands out of the folder.
        try:
            if self._processes.rank > 0:
                with tensor_cores(self._device), training_threads(self._learner.work):
                    self._steps(dev_metric)
            elif self._has_steps_left:
                with running(self._folder), tensor_cores(self._device), training_threads(self._learner.work):
                    self._tracking.begin(self._step)
                    finished = False
                    try:
                        self._steps(dev_metric)
                        finished = True
                    finally:
                        self._tracking.close(finished=finished)
        finally:
            self._ahead.close()
        # Every process takes the best weights, which the first one has written before it comes here.
        self._processes.wait()
        best = torch.load(self._folder / "best.pt", map_location=self._device, weights_only=True)
        self._network.load_state_dict(best, strict=True)
        return self._best

    def _steps(self, dev_metric: DevMetric[NetworkT]) -> None:
        # The bar shows the loss, and the measures on dev of the start, of the last evaluation and of the best weights.
        config, bar_figures = self._config, {"loss": "-"}
        if self._best > float("-inf"):
            bar_figures["best"] = f"{self._best:.2f}"
        name, is_shown = self._folder.name, self._processes.rank == 0
        # The start is measured but never the best, because some weights still have their random start values.
        if not self._step:
            with progress(total=1, unit="evaluation", desc=f"{name}, on dev", leave=False, shown=is_shown):
                bar_figures["start"] = f"{self._measure(dev_metric):.2f}"
        with progress(total=config.steps, initial=self._step, unit="step", desc=name, shown=is_shown) as bar:
            self._saved_at = time.monotonic()
            while self._has_steps_left:
                # One step, whose figures go to the log and the trackers.
                started = time.perf_counter()
                figures = self._train_step()
                self._step += 1
                figures["seconds"] = time.perf_counter() - started
                if "questions" in figures:
                    figures["questions_per_second"] = figures["questions"] / figures["seconds"]
                self._track(figures)
                # An evaluation now and then, and after the last step.
                evaluated = self._step % config.evaluate_every == 0 or self._step == config.steps
                if evaluated:
                    bar.set_description(f"{name}, on dev", refresh=sys.stderr.isatty())
                    bar_figures["dev"] = f"{self._evaluate(dev_metric):.2f}"
                    bar_figures["best"] = f"{self._best:.2f}"
                    bar.set_description(name, refresh=False)
                bar.set_postfix(bar_figures | {"loss": f"{figures['loss']:.4f}"}, refresh=False)
                bar.update()
                save_is_due = time.monotonic() - self._saved_at >= SAVE_SECONDS
                # An evaluation writes best.pt, which may never be later than state.pt.
                if evaluated or save_is_due or self._step % config.save_every == 0:
                    self._save()

    @property
    def _has_steps_left(self) -> bool:
        """True if there is a step to train."""
        return self._step < self._config.steps and not self._out_of_patience

    @property
    def _out_of_patience(self) -> bool:
        return self._config.patience is not None and self._evaluations_without_gain >= self._config.patience

    def _train_step(self) -> dict[str, float]:
        # The step's rates and its seed of dropout, which follow from the number of the step alone.
        config = self._config
        for group in self._optimizer.param_groups:
            group["lr"] = group["base_lr"] * config.rate(self._step)
        # The same seed after a resume, another one in each process.
        torch.manual_seed((config.seed * 1_000_003 + self._step) * self._processes.count + self._processes.rank)
        # Gradients of all batches, then one change of the weights.
        self._network.train()
        self._optimizer.zero_grad(set_to_none=True)
        figures = self._backward(self._ahead.take(self._step))
        self._scaler.unscale_(self._optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self._network.parameters(), config.clip or math.inf)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        numbers = _numbers({**figures, "gradient_norm": norm})
        # The weights are lost by now, but not those of the saved state. Checking here waits for the device only once.
        checked = {"loss": numbers["loss"]}
        if not self._scaler.is_enabled() or self._scaler.get_scale() < SMALLEST_SCALE:
            checked["norm of the gradients"] = numbers["gradient_norm"]
        rates = {name: rate * config.rate(self._step) for name, rate in config.rates.items()}
        check_finite(checked, step=self._step + 1, rate=next(iter(rates.values())))
        return numbers | rates

    def _backward(self, step: PreparedStep[BatchT]) -> dict[str, Tensor | float]:
        """Add the gradients of the step's batches up, and return the figures of the step."""
        pairs = sum(batch.pairs for batch in step.batches)
        share_of_mean = self._processes.share_of_mean(pairs)
        losses: dict[str, Tensor] = {}
        for number, batch in enumerate(step.batches, start=1):
            pair_factor = share_of_mean / pairs * batch.pairs * len(step.batches)
            # The processes exchange the summed gradients once, in the backward pass of the last batch.
            forward, is_last = self._forward, number == len(step.batches)
            with forward.no_sync() if isinstance(forward, DistributedDataParallel) and not is_last else nullcontext():
                loss, parts = self._learner.loss(self._step, forward, batch.on(self._device), pair_factor)
                torch.autograd.backward(self._scaler.scale(loss / len(step.batches)))
            for name, part in ({"loss": loss} | {f"loss/{name}": part for name, part in parts.items()}).items():
                mean = part.detach() / len(step.batches)
                losses[name] = losses[name] + mean if name in losses else mean
        return {"loss": losses.pop("loss"), "questions": step.questions, "pairs": pairs, **losses}

    def _measure(self, dev_metric: DevMetric[NetworkT]) -> float:
        self._network.eval()
        try:
            measured = dev_metric(self._network)
        except NonFiniteScoreError as error:
            if not self._step:
                reason = "the base has weights that are not finite, or so large that scores overflow"
                raise NonFiniteScoreError(f"before the first step, on dev {error}: {reason}") from error
            rate = self._config.learning_rate * self._config.rate(self._step - 1)
            raise DivergenceError(f"on dev {error}", step=self._step, rate=rate) from error
        by_name = {FINAL: measured} if isinstance(measured, int | float) else measured
        value = self._processes.of_first(by_name[FINAL])
        parts = {f"{self._dev_name}/{name.replace(' ', '_')}": part for name, part in by_name.items() if name != FINAL}
        self._track({self._dev_name: value, **parts})
        return value

    def _evaluate(self, dev_metric: DevMetric[NetworkT]) -> float:
        value = self._measure(dev_metric)
        if not self._config.all_trained(self._step):
            return value
        if value <= self._best and not self._learner.takes_last:
            self._evaluations_without_gain += 1
            return value
        self._best = value
        self._evaluations_without_gain = 0
        if self._processes.rank == 0:
            _atomic_save(self._network.state_dict(), self._folder / "best.pt")
        return value

    def _save(self) -> None:
        if self._processes.rank > 0:
            return
        state = {
            "step": self._step,
            "best": self._best,
            "without_gain": self._evaluations_without_gain,
            "ranker": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "position": self._ahead.position,
        }
        _atomic_save(state, self._folder / STATE)
        self._saved_at = time.monotonic()

    def _resume(self) -> int:
        """Load the saved state, and return the number of items before its next step."""
        state = torch.load(self._folder / STATE, map_location=self._device, weights_only=True)
        self._network.load_state_dict(state["ranker"], strict=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step = state["step"]
        self._best = state["best"]
        self._evaluations_without_gain = state["without_gain"]
        self._scaler.load_state_dict(state["scaler"])  # empty without fp16
        position: int = state["position"]
        return position

    def _track(self, figures: Mapping[str, float]) -> None:
        if self._processes.rank == 0:
            self._tracking.figures(self._step, figures)


def decayed(parameter: Tensor) -> bool:
    """True for matrices. Biases and the weights of norms do not decay, as in Hugging Face's Trainer."""
    return parameter.ndim > 1


def _parameter_groups(network: nn.Module, config: TrainConfig, is_fresh: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Trained parameters in a group for each of the `config`'s rates, and again for those without decay."""
    named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    return [
        {
            "params": [each for name, each in named if is_fresh(name) is fresh and decayed(each) is decays],
            "lr": 0.0,
            "base_lr": rate,
            **({} if decays else {"weight_decay": 0.0}),
        }
        for decays in (True, False)
        for fresh, rate in zip((False, True), config.rates.values(), strict=False)
    ]


def _numbers(figures: Mapping[str, Tensor | float]) -> dict[str, float]:
    """The figures as numbers. Tensors are read together, because each read waits for the device."""
    tensors = {name: value for name, value in figures.items() if isinstance(value, Tensor)}
    values = torch.stack([value.detach().float() for value in tensors.values()]).tolist()
    numbers = dict(zip(tensors, values, strict=True))
    return {name: numbers[name] if isinstance(value, Tensor) else value for name, value in figures.items()}


def _atomic_save(value: Any, path: Path) -> None:
    """Save by a rename, so that a killed run leaves the old or the new file."""
    with replacing(path) as file:
        torch.save(value, file)
