"""Fine-tunes any Hugging Face sequence classifier on answer sentence selection, by Hugging Face's Trainer.

TANDA takes two calls: the first transfers a base on a large set, and the second adapts the result to the target set.
The Trainer provides mixed precision, gradient accumulation, several processes, resuming, early stopping and
TensorBoard.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from cyclopts import Parameter
from cyclopts.validators import Number
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from cerberank_models.commands.values import Count, NotNegative, Positive, at_least
from cerberank_models.config import NewTypes
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.loading import quiet_transformers
from cerberank_models.convert.teacher_input import SPECIAL_TOKENS, TeacherInput
from cerberank_models.convert.token_types import grow_token_types
from cerberank_training.data import Question
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.question_metrics import ranks_of
from cerberank_training.learning.attention import training_attention
from cerberank_training.learning.loop import tensor_cores
from cerberank_training.learning.losses import listwise_loss, logit_difference, pointwise_loss
from cerberank_training.learning.recomputation import recomputed
from cerberank_training.learning.student_run import Groups
from cerberank_training.learning.trainer import (
    Items,
    TrainerConfig,
    check_loss,
    last_checkpoint,
    show_progress,
    trainer_arguments,
)
from cerberank_training.runs.base import Base
from cerberank_training.runs.processes import batch_of_step
from cerberank_training.teachers.teacher_reader import Pair, TeacherReader
from cerberank_training.tracking.running import running

Item = list[tuple[Pair, float]]
"""The pairs of one question with their labels."""
ANY_STEPS = 10**9
"""Steps with which settings are checked while the number is not known: more than any run has."""
DROPOUT = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob"),
    *("dropout", "attention_dropout", "seq_classif_dropout", "embedding_dropout", "mlp_dropout"),
)
"""The names of dropout probabilities in transformers' configurations."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherConfig(TrainerConfig):
    """The settings of a teacher's fine-tuning, which are options of `train teach`.

    The steps, and those between two evaluations, are given to the loop as numbers (`commands/teach.py`).
    """

    context: bool = False
    """Read the previous and the next sentence too (SSP)."""
    token_types: Literal["shared"] | NewTypes = "shared"
    """Token type of the context where the base has fewer than three: the last type (shared), a random row (fresh), a
    copy of the last row (copied), or a new random table (anew, as in SSP)."""
    max_length: Annotated[int, at_least(SPECIAL_TOKENS + 1)] = 128
    """Most tokens of a pair; the longest segments are cut."""
    layers: Count | None = None
    """Number of the base's layers to use, counted from the first (default: all)."""
    # The paper has the cross entropy of each pair.
    loss: Literal["pointwise", "listwise", "both"] = "pointwise"
    """Loss: of each pair, between a question's candidates, or both."""
    steps: Annotated[int, Parameter(parse=False)] = ANY_STEPS
    examples_per_step: Count = 8
    """Examples of a step, of all processes together: groups, or pairs with --sampling pairs."""
    learning_rate: Positive = 1e-5
    warmup: NotNegative = 0.05
    weight_decay: NotNegative = 0.0
    clip: NotNegative = 1.0
    """Largest norm of a step's gradients; 0 for none."""
    dropout: Annotated[float | None, Parameter(validator=Number(gte=0, lt=1))] = None
    """Dropout of hidden states and attention (default: the base's)."""
    gradient_checkpointing: bool = False
    """Compute layers again in the backward pass, which takes less memory and a third more work."""
    evaluate_every: Annotated[int, Parameter(parse=False)] = 250
    patience: Count = 50
    """Number of evaluations without a gain in dev MAP after which the run stops."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the option, for settings that do not fit each other."""
        TrainerConfig.__post_init__(self)  # `super()` fails in a dataclass with slots
        if self.evaluate_every > self.steps:
            raise ValueError(f"--evaluate-every must be at most the {self.steps} steps, not {self.evaluate_every}")
        if self.token_types != "shared" and not self.context:
            raise ValueError(f"--token-types {self.token_types} are for a teacher that reads context")

    @property
    def input(self) -> TeacherInput:
        """The rules by which a pair becomes the teacher's input."""
        return TeacherInput(max_length=self.max_length, context=self.context)

    def settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings with which a run that was begun must go on, and those that may change then."""
        bound, free = TrainerConfig.settings(self)
        texts = {"context", "max_length"}
        return {name: value for name, value in bound.items() if name not in texts} | {
            "input": self.input.model_dump()
        }, free


def fine_tune(base: Base, out: Path, sampler: Groups, dev: Sequence[Question], config: TeacherConfig) -> float:
    """Fine-tune `base` and write the best weights to `out`.

    Returns the best dev MAP, in percent. Another call resumes a killed run from its last evaluation. Raises ValueError
    when the settings do not fit the base.
    """
    newest = last_checkpoint(out / "run")
    tokenizer = base.tokenizer()
    model = classifier(base, config)
    run = out / "run"
    arguments = training_arguments(run, config, measure_start=newest is None)
    groups = config.steps * config.examples_per_step
    trainer = _TeacherTrainer(
        model=model,
        args=arguments,
        train_dataset=Items(groups, partial(_sampled, sampler)),
        eval_dataset=_dev_items(dev),
        data_collator=_Collator(tokenizer, TeacherReader(tokenizer, model.config, config.input)),
        compute_metrics=_dev_metrics(dev),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    trainer.add_callback(_Patience(trainer, config.patience))
    show_progress(trainer, out.name, figure="eval_map")
    trainer.loss = config.loss
    if config.gradient_checkpointing:
        trainer.recomputed = _layers(model)
    with running(out), tensor_cores(arguments.device), quiet_transformers():
        trainer.train(resume_from_checkpoint=newest)
        trainer.save_model(str(out))
    return float(trainer.state.best_metric or 0.0)


def classifier(base: Base, config: TeacherConfig) -> Any:
    """The base as a classifier. A cross-encoder keeps its one or two logits; any other base gets two new ones.

    Raises UnsupportedModelError for a setting that the base does not have, and for a cross-encoder that lacks weights.
    """
    folder, labels = str(base.folder), base.described.num_labels if base.is_cross_encoder else 2
    described = copy.deepcopy(base.described)
    described.num_labels = labels
    if config.layers is not None:
        if not 0 < config.layers <= described.num_hidden_layers:
            raise UnsupportedModelError(f"--layers {config.layers}: {base.place} has {described.num_hidden_layers}")
        described.num_hidden_layers = config.layers
    if config.dropout is not None:
        names = [name for name in vars(described) if name in DROPOUT]
        if len(names) < 2:
            raise UnsupportedModelError(f"dropout cannot be set: {described.model_type} names it in another way")
        for name in names:
            setattr(described, name, config.dropout)
    set_seed(config.seed)
    # If the base classifies into more labels, its last layer has another shape; all other layers are loaded.
    with quiet_transformers():
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            folder, config=described, ignore_mismatched_sizes=not base.is_cross_encoder, output_loading_info=True
        )
    if base.is_cross_encoder and (missing := sorted(loading["missing_keys"])):
        raise UnsupportedModelError(f"{base.place} is said to be a sequence classifier, but lacks {', '.join(missing)}")
    # `_TeacherTrainer` computes the loss and does not scale it, so the Trainer must divide it by `accumulate`.
    model.accepts_loss_kwargs = False
    if config.token_types != "shared":
        grow_token_types(model, 3, new=config.token_types, seed=config.seed)
    return model


def _layers(model: Any) -> list[nn.Module]:
    """The model's layers for gradient checkpointing; that of transformers leaves out ALBERT's layers."""
    listed = (layer for part in model.modules() if isinstance(part, nn.ModuleList) for layer in part)
    return [layer for layer in listed if not any(isinstance(part, nn.ModuleList) for part in layer.modules())]


def training_arguments(run: Path, config: TeacherConfig, *, measure_start: bool = True) -> TrainingArguments:
    """The Trainer's settings. The evaluation before the first step is left out without `measure_start`."""
    return trainer_arguments(
        run,
        config,
        batch=batch_of_step(config.examples_per_step, config.accumulate),
        label="labels",
        max_grad_norm=config.clip,
        eval_on_start=measure_start,
        load_best_model_at_end=True,
        restore_callback_states_from_checkpoint=True,  # the number of evaluations without gain
        metric_for_best_model="map",
    )


class _Patience(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Sets the patience of this call in a resumed run, because the Trainer restores that of the killed call."""

    def __init__(self, trainer: Trainer, patience: int) -> None:
        self._trainer = trainer
        self._patience = patience

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        for callback in self._trainer.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback):
                callback.early_stopping_patience = self._patience


class _Collator:
    """Joins the rows of all items into one padded batch; `sizes` has the number of rows of each item."""

    def __init__(self, tokenizer: Any, read: TeacherReader) -> None:
        self._tokenizer = tokenizer
        self._read = read

    def __call__(self, items: list[Item]) -> dict[str, Tensor]:
        pairs, labels = zip(*(row for item in items for row in item), strict=True)
        batch = dict(self._tokenizer.pad(self._read(pairs), return_tensors="pt"))
        batch["labels"] = torch.tensor(labels)
        batch["sizes"] = torch.tensor([len(item) for item in items])
        return batch


class _TeacherTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types
    loss: Literal["pointwise", "listwise", "both"] = "pointwise"
    recomputed: Sequence[nn.Module] = ()
    """The layers of gradient checkpointing."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        labels, sizes = inputs["labels"], inputs["sizes"]
        with training_attention(self.args.device), recomputed(self.recomputed, self.args.device):
            outputs = model(**{name: value for name, value in inputs.items() if name not in ("labels", "sizes")})
        difference = logit_difference(outputs.logits)[:, None]
        loss = torch.zeros((), device=labels.device)
        if self.loss != "listwise":
            loss = loss + pointwise_loss(difference, labels).sum()
        if self.loss != "pointwise":
            offsets = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
            loss = loss + listwise_loss(difference, labels, offsets).sum()
        check_loss(self, loss)
        return (loss, {"logits": outputs.logits}) if return_outputs else loss


def _sampled(sampler: Groups, index: int) -> Item:
    (group,) = sampler.step(index, 1)
    pairs = zip(group.candidates, group.labels, strict=True)
    return [((group.question, candidate), label) for candidate, label in pairs]


def _dev_items(dev: Sequence[Question]) -> Items[Item]:
    """Dev data with one pair in each item, so that the Trainer can join predictions of questions of any size."""
    rows: list[Item] = [
        [((question.text, row.candidate), float(row.relevant))] for question in dev for row in question.candidates
    ]
    return Items(len(rows), rows.__getitem__)


def _dev_metrics(dev: Sequence[Question]) -> Callable[[Any], dict[str, float]]:
    def measure(prediction: Any) -> dict[str, float]:
        scores = logit_difference(torch.from_numpy(prediction.predictions)).numpy()
        evaluation, start = Evaluation(), 0
        for question in dev:
            stop = start + len(question.candidates)
            evaluation.add(question, {"final": ranks_of(scores[start:stop])})
            start = stop
        return {"map": evaluation.figures()["final"].mean["map"]}

    return measure
