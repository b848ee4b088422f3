"""The training loop: steps, evaluations and the saved state, in one process or several.

The state is saved after a number of steps or seconds, by an atomic rename. A killed run resumes from the last saved
state, with the same batches in the same order. What is trained supplies the batches of a step and the loss of a batch.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.progress import progress
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_training.runs.computing import InPrecision, Recomputed, tensor_cores, training_threads
from cerberank_training.runs.folder import running
from cerberank_training.runs.processes import Processes
from cerberank_training.runs.record import STATE
from cerberank_training.runs.settings import TrainConfig
from cerberank_training.runs.tracking.tracker import Tracker, Tracking

NetworkT = TypeVar("NetworkT", bound=nn.Module)
ItemT = TypeVar("ItemT")
BatchT = TypeVar("BatchT", bound="TrainingBatch")

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


class TrainingBatch(Protocol):
    """The tensors of some examples of a step."""

    @property
    def pairs(self) -> int:
        """The number of examples."""

    def on(self, device: torch.device) -> Self:
        """The batch on `device`."""


class Source(Protocol[ItemT]):
    """The items that steps are made of: a sampler's, or groups that were sampled beforehand."""

    def step(self, step: int, size: int) -> list[ItemT]:
        """The `size` items of step `step`; the same in every call."""


@dataclass(frozen=True, slots=True)
class EqualSteps(Generic[ItemT]):
    """The items of all processes, if every step has the same number."""

    source: Source[ItemT]
    size: int

    def __call__(self, step: int, position: int) -> list[ItemT]:
        """The items of step `step`."""
        return self.source.step(step, self.size)


@dataclass(frozen=True, kw_only=True)
class Learner(Generic[NetworkT, ItemT, BatchT]):
    """A network with what it learns from: all that the loop needs of a job."""

    network: NetworkT
    config: TrainConfig
    items: Callable[[int, int], list[ItemT]]
    """The items of a step of all processes, from its number and the number of items before it. An item is a question
    with some of its candidates, or another unit that a batch cannot divide.
    """
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


class Steps(IterableDataset[tuple[int, list[BatchT]]]):
    """The steps from a number on: the number of items of all processes, and this process's batches of equal numbers.

    Each of n workers gets a copy, and makes every n-th step.
    """

    def __init__(
        self, learner: Learner[NetworkT, ItemT, BatchT], processes: Processes, numbers: range, position: int
    ) -> None:
        """`position` is the number of items before the first of the steps with these `numbers`."""
        self._items = learner.items  # not the learner, whose network would be copied
        self._batch = learner.batch
        self._accumulate = learner.config.accumulate
        self._processes = processes
        self._numbers = numbers
        self._position = position

    def __iter__(self) -> Iterator[tuple[int, list[BatchT]]]:
        worker, position = get_worker_info(), self._position
        for step in self._numbers[worker.id :: worker.num_workers] if worker else self._numbers:
            items = self._items(step, position)
            position += len(items)
            share = self._processes.share(items)
            yield len(items), [self._batch(share[part :: self._accumulate]) for part in range(self._accumulate)]


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

        `workers` processes make the batches ahead of the training; with 0 a step makes its own. `dev_name` is the
        log's name for what is measured on dev.
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
        self._workers = min(workers, 1) if learner.in_order else workers
        fused = True if self._device.type == "cuda" else None  # one kernel for all weights
        groups = _parameter_groups(self._network, config, learner.is_fresh)
        self._optimizer = torch.optim.AdamW(groups, weight_decay=config.weight_decay, fused=fused)
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=config.precision == "fp16")
        # The saved state has these, the weights, the optimiser and the position in the data.
        self._step = 0
        self._position = 0
        self._best = float("-inf")
        self._evaluations_without_gain = 0
        self._saved_at = time.monotonic()
        self._tracking = Tracking(folder, trackers)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STATE).exists():
            self._resume()

    def train(self, dev_metric: DevMetric[NetworkT]) -> float:
        """Train to the last step, load the best weights into the network, and return their measure on dev.

        `dev_metric` returns one measure, or several by name; `final` then chooses the weights. Every process calls it
        and may read a part of the data; the measures of the first process are used. Raises ValueError when another
        process trains in the folder, and DivergenceError at the first loss or gradient that is not finite; the last
        saved state is then from before.
        """
        # The first process alone writes, tracks, and keeps other commands out of the folder.
        if self._has_steps_left:
            threads = training_threads(self._learner.work)
            with tensor_cores(self._device), threads, ExitStack() as first:
                if self._processes.rank == 0:
                    first.enter_context(running(self._folder))
                    self._tracking.begin(self._step)
                    first.push(lambda kind, *_: self._tracking.close(finished=kind is None))
                self._steps(dev_metric)
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
            batches = self._batches()
            while self._has_steps_left:
                # One step, whose figures go to the log and the trackers.
                started = time.perf_counter()
                figures = self._train_step(*next(batches))
                self._step += 1
                figures["seconds"] = time.perf_counter() - started
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

    def _batches(self) -> Iterator[tuple[int, list[BatchT]]]:
        """The batches of the steps that are left, from the step and the item at which an earlier call has stopped."""
        steps = Steps(self._learner, self._processes, range(self._step, self._config.steps), self._position)
        # A loader draws a seed for its workers; from the default generator it would change the step's dropout.
        return iter(DataLoader(steps, batch_size=None, num_workers=self._workers, generator=torch.Generator()))

    def _train_step(self, items: int, batches: list[BatchT]) -> dict[str, float]:
        """Change the weights by the batches of a step, which has a number of `items` in all processes."""
        self._position += items
        # The step's rates and its seed of dropout, which follow from the number of the step alone.
        config = self._config
        for group in self._optimizer.param_groups:
            group["lr"] = group["base_lr"] * config.rate(self._step)
        # The same seed after a resume, another one in each process.
        torch.manual_seed((config.seed * 1_000_003 + self._step) * self._processes.count + self._processes.rank)
        # Gradients of all batches, then one change of the weights.
        self._network.train()
        self._optimizer.zero_grad(set_to_none=True)
        figures: dict[str, Tensor | float] = {"questions": items, **self._backward(batches)}
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

    def _backward(self, batches: list[BatchT]) -> dict[str, Tensor | float]:
        """Add the gradients of the step's batches up, and return the figures of the step."""
        pairs = sum(batch.pairs for batch in batches)
        share_of_mean = self._processes.share_of_mean(pairs)
        losses: dict[str, Tensor] = {}
        for number, batch in enumerate(batches, start=1):
            pair_factor = share_of_mean / pairs * batch.pairs * len(batches)
            # The processes exchange the summed gradients once, in the backward pass of the last batch.
            forward, is_last = self._forward, number == len(batches)
            with forward.no_sync() if isinstance(forward, DistributedDataParallel) and not is_last else nullcontext():
                loss, parts = self._learner.loss(self._step, forward, batch.on(self._device), pair_factor)
                torch.autograd.backward(self._scaler.scale(loss / len(batches)))
            for name, part in ({"loss": loss} | {f"loss/{name}": part for name, part in parts.items()}).items():
                mean = part.detach() / len(batches)
                losses[name] = losses[name] + mean if name in losses else mean
        return {"loss": losses.pop("loss"), "pairs": pairs, **losses}

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
            "position": self._position,
        }
        _atomic_save(state, self._folder / STATE)
        self._saved_at = time.monotonic()

    def _resume(self) -> None:
        """Load the saved state."""
        state = torch.load(self._folder / STATE, map_location=self._device, weights_only=True)
        self._network.load_state_dict(state["ranker"], strict=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step = state["step"]
        self._best = state["best"]
        self._evaluations_without_gain = state["without_gain"]
        self._scaler.load_state_dict(state["scaler"])  # empty without fp16
        self._position = state["position"]

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
