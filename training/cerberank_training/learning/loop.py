"""The training loop: steps, evaluations and the saved state, in one process or several.

The state is saved after a number of steps or seconds, by an atomic rename. A killed run resumes from the last saved
state, with the same batches in the same order. The caller supplies the loss of a step.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.checkpoint.bound import Bound, plain
from cerberank_models.progress import progress
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_training.learning.attention import training_attention
from cerberank_training.learning.divergence import DivergenceError, check_finite
from cerberank_training.learning.train_config import TrainConfig
from cerberank_training.runs.processes import Processes
from cerberank_training.tracking.running import running
from cerberank_training.tracking.tracker import Tracker, Tracking

NetworkT = TypeVar("NetworkT", bound=nn.Module)

Figures = Mapping[str, Tensor | float]
STATE = "state.pt"
"""The file of the saved state."""
FINAL = "final"
"""The figure of an evaluation by which weights are chosen."""
RATES = ("learning_rate", "fresh_learning_rate")
"""The log's names for the rates of the layers, and of the small parts on top of them, which are often new."""
SAVE_SECONDS = 600.0
"""The longest time between two saved states, apart from the step that runs at its end."""


class Stream(Protocol):
    """The items that steps read one after the other. A resumed run continues at the position in its state."""

    position: int


class StepLoss(Protocol):
    """Computes the loss of one step. The result depends only on the step and on the position in the run's stream."""

    def __call__(self, step: int, forward: nn.Module) -> tuple[Tensor, Figures]:
        """The loss to minimise, and figures by name; the rate of questions is computed from the figure `questions`.

        Call `forward` instead of the network, because it takes part in the exchange of gradients. If a step has several
        batches, this method runs the backward pass of all but the last and returns the loss of the last; the figure
        `loss` is then the loss of the whole step.
        """


class Loop(Generic[NetworkT]):
    """One training run in one folder: `state.pt`, `best.pt` and `log.jsonl`.

    The first process writes them, calls the trackers and shows the bar.
    """

    def __init__(
        self,
        folder: Path,
        network: NetworkT,
        config: TrainConfig,
        *,
        forward: nn.Module,
        loss: StepLoss,
        is_fresh: Callable[[str], bool],
        settings: Mapping[str, Any],
        processes: Processes,
        device: torch.device,
        stream: Stream | None = None,
        trackers: Mapping[str, Tracker] = MappingProxyType({}),
    ) -> None:
        """Prepare the run and, when `folder` holds the state of the same `settings`, resume it.

        `stream` is the source of the items of `loss`, if they do not follow from the step's number. `forward` is a
        module that wraps the `network`. `is_fresh` says by its name whether a weight has the second of RATES.
        Raises BoundError when the folder holds a run with other settings.
        """
        self._folder = folder
        self._config = config
        self._loss = loss
        self._bound = Bound(folder, settings)
        self._processes = processes
        self._device = device
        self._stream = stream
        self._network = network.to(device)
        network.get_parameter("embeddings.tokens.weight").requires_grad_(config.train_token_embeddings)
        self._forward = forward
        if processes.count > 1:
            self._forward = DistributedDataParallel(forward, find_unused_parameters=True)
        self._is_fresh = is_fresh
        self._optimizer = self._new_optimizer()
        self._step = 0
        self._best = float("-inf")
        self._without_gain = 0
        self._saved_at = time.monotonic()
        self._tracking = Tracking(folder, trackers)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STATE).exists():
            self._resume()

    def train(self, dev_metric: Callable[[NetworkT], float | Mapping[str, float]]) -> float:
        """Train to the last step, load the best weights into the network, and return their dev figure.

        `dev_metric` returns one figure, or several by name; `final` then chooses the weights. Every process calls it
        and may measure a part of the data; the figures of the first process are used. Raises ValueError when another
        process trains in the folder, and DivergenceError at the first loss or gradient that is not finite; the last
        saved state is then from before.
        """
        if self._processes.rank > 0:
            with tensor_cores(self._device):
                self._steps(dev_metric)
        elif self._has_steps_left:
            with running(self._folder), tensor_cores(self._device):
                self._tracking.begin(self._step)
                finished = False
                try:
                    self._steps(dev_metric)
                    finished = True
                finally:
                    self._tracking.close(finished=finished)
        self._processes.sum(0)  # the first process has written best.pt
        best = torch.load(self._folder / "best.pt", map_location=self._device, weights_only=True)
        self._network.load_state_dict(best, strict=True)
        return self._best

    def _steps(self, dev_metric: Callable[[NetworkT], float | Mapping[str, float]]) -> None:
        config, shown_figures = self._config, {"loss": "-"}
        if self._best > float("-inf"):
            shown_figures["best"] = f"{self._best:.2f}"
        name, is_shown = self._folder.name, not self._processes.rank
        if not self._step:  # never the best, because some weights still have their random start values
            with progress(total=1, unit="evaluation", desc=f"{name}, on dev", leave=False, shown=is_shown):
                shown_figures["start"] = f"{self._measure(dev_metric):.2f}"
        with progress(total=config.steps, initial=self._step, unit="step", desc=name, shown=is_shown) as bar:
            self._saved_at = time.monotonic()
            while self._has_steps_left:
                started = time.perf_counter()
                figures = self._train_step()
                self._step += 1
                figures["seconds"] = time.perf_counter() - started
                if "questions" in figures:
                    figures["questions_per_second"] = figures["questions"] / figures["seconds"]
                self._track(figures)
                evaluated = self._step % config.evaluate_every == 0 or self._step == config.steps
                if evaluated:
                    bar.set_description(f"{name}, on dev", refresh=sys.stderr.isatty())
                    shown_figures["dev"] = f"{self._evaluate(dev_metric):.2f}"
                    shown_figures["best"] = f"{self._best:.2f}"
                    bar.set_description(name, refresh=False)
                bar.set_postfix(shown_figures | {"loss": f"{figures['loss']:.4f}"}, refresh=False)
                bar.update()
                save_is_due = time.monotonic() - self._saved_at >= SAVE_SECONDS
                # An evaluation writes best.pt, which may never be later than state.pt.
                if evaluated or save_is_due or self._step % config.save_every == 0:
                    self._save()

    def _new_optimizer(self, *, decay_all: bool = False) -> torch.optim.AdamW:
        """AdamW, which decays matrices, or with `decay_all` biases and norms too."""
        fused = True if self._device.type == "cuda" else None  # one kernel for all weights
        groups = _parameter_groups(self._network, self._config, self._is_fresh, decay_all=decay_all)
        return torch.optim.AdamW(groups, weight_decay=self._config.weight_decay, fused=fused)

    @property
    def _has_steps_left(self) -> bool:
        """True if there is a step to train."""
        return self._step < self._config.steps and not self._out_of_patience

    @property
    def _out_of_patience(self) -> bool:
        return self._config.patience is not None and self._without_gain >= self._config.patience

    def _train_step(self) -> dict[str, float]:
        config = self._config
        for group in self._optimizer.param_groups:
            group["lr"] = group["base_lr"] * config.rate(self._step)
        # Seeds dropout: the same after a resume, different in each process.
        torch.manual_seed((config.seed * 1_000_003 + self._step) * self._processes.count + self._processes.rank)
        self._network.train()
        self._optimizer.zero_grad(set_to_none=True)
        loss, figures = self._loss(self._step, self._forward)
        torch.autograd.backward(loss)
        norm = torch.nn.utils.clip_grad_norm_(self._network.parameters(), config.clip or math.inf)
        self._optimizer.step()
        rates = dict(zip(RATES, (group["lr"] for group in self._optimizer.param_groups), strict=False))
        numbers = _numbers({"loss": loss, **figures, "gradient_norm": norm})
        # The weights are lost by now, but not those of the saved state. Checking here waits for the device only once.
        checked = {"loss": numbers["loss"], "norm of the gradients": numbers["gradient_norm"]}
        check_finite(checked, step=self._step + 1, rate=rates[RATES[0]])
        return numbers | rates

    def _measure(self, dev_metric: Callable[[NetworkT], float | Mapping[str, float]]) -> float:
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
        value = self._processes.sum(0.0 if self._processes.rank else by_name[FINAL])
        parts = {f"dev_map/{name.replace(' ', '_')}": part for name, part in by_name.items() if name != FINAL}
        self._track({"dev_map": value, **parts})
        return value

    def _evaluate(self, dev_metric: Callable[[NetworkT], float | Mapping[str, float]]) -> float:
        value = self._measure(dev_metric)
        if not self._config.all_trained(self._step):
            return value
        if value <= self._best:
            self._without_gain += 1
            return value
        self._best = value
        self._without_gain = 0
        if self._processes.rank == 0:
            _atomic_save(self._network.state_dict(), self._folder / "best.pt")
        return value

    def _save(self) -> None:
        if self._processes.rank > 0:
            return
        state = {
            "step": self._step,
            "best": self._best,
            "without_gain": self._without_gain,
            "config": json.dumps(plain(self._bound.settings), sort_keys=True),
            "ranker": self._network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "position": self._stream.position if self._stream else 0,
        }
        _atomic_save(state, self._folder / STATE)
        self._saved_at = time.monotonic()

    def _resume(self) -> None:
        state = torch.load(self._folder / STATE, map_location=self._device, weights_only=True)
        self._bound.refuse_other_than(json.loads(state["config"]))
        self._network.load_state_dict(state["ranker"], strict=True)
        if len(state["optimizer"]["param_groups"]) == len(RATES):  # begun by a version that decayed all weights
            self._optimizer = self._new_optimizer(decay_all=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step = state["step"]
        self._best = state["best"]
        self._without_gain = state["without_gain"]
        if self._stream:
            self._stream.position = state["position"]

    def _track(self, figures: Mapping[str, float]) -> None:
        if self._processes.rank == 0:
            self._tracking.figures(self._step, figures)


def decayed(parameter: Tensor) -> bool:
    """True for matrices. Biases and the weights of norms do not decay, as in Hugging Face's Trainer."""
    return parameter.ndim > 1


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Compute matrix products of fp32 in TF32 within the block on a GPU, as the dev evaluation does.

    On other devices nothing changes. PyTorch has one such switch for the whole process.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def training_precision(device: torch.device, precision: str) -> Iterator[None]:
    """Compute the block's forward pass in `precision` (fp32 or bf16), with the fastest attention for `device`."""
    with training_attention(device), torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        yield


def _parameter_groups(
    network: nn.Module, config: TrainConfig, is_fresh: Callable[[str], bool], *, decay_all: bool
) -> list[dict[str, Any]]:
    """Trained parameters in groups: those with the first and the second of RATES, and both again without decay."""
    named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    rates = {False: config.learning_rate, True: config.fresh_learning_rate}
    return [
        {
            "params": [each for _, each in members],
            "lr": 0.0,
            "base_lr": rate,
            **({} if decays else {"weight_decay": 0.0}),
        }
        for decays in ((True,) if decay_all else (True, False))
        for fresh, rate in rates.items()
        for members in [
            [(name, each) for name, each in named if is_fresh(name) is fresh and (decay_all or decayed(each) is decays)]
        ]
    ]


def _numbers(figures: Figures) -> dict[str, float]:
    """The figures as numbers. Tensors are read together, because each read waits for the device."""
    tensors = {name: value for name, value in figures.items() if isinstance(value, Tensor)}
    values = torch.stack([value.detach().float() for value in tensors.values()]).tolist()
    numbers = dict(zip(tensors, values, strict=True))
    return {name: numbers[name] if isinstance(value, Tensor) else value for name, value in figures.items()}


def _atomic_save(value: Any, path: Path) -> None:
    """Save by a rename, so that a killed run leaves the old or the new file."""
    with replacing(path) as file:
        torch.save(value, file)
