"""Fine-tunes any Hugging Face sequence classifier on answer sentence selection, by Hugging Face's Trainer.

TANDA is two calls: transfer on a large set, then adapt the result to the target set. The Trainer provides mixed
precision, gradient accumulation, several processes, resuming, early stopping and TensorBoard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from cerberank_training.data import Question
from cerberank_training.data.sampling import Group
from cerberank_training.evaluation.metrics import question_metrics, ranks_of
from cerberank_training.learning.losses import listwise_loss, logit_difference, pointwise_loss
from cerberank_training.learning.train import Groups
from cerberank_training.teachers.teacher_input import Pair, TeacherInput

Item = list[tuple[Pair, float]]
"""One question's pairs with their labels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherConfig:
    """How a teacher is fine-tuned."""

    steps: int
    input: TeacherInput
    loss: Literal["pointwise", "listwise", "both"] = "pointwise"
    """Cross entropy of each pair (as in the paper), softmax over a question's candidates, or the sum of both."""
    questions_per_step: int = 8
    accumulate: int = 1
    """The number of batches whose gradients make one optimiser step."""
    learning_rate: float = 1e-5
    warmup: float = 0.05
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    evaluate_every: int = 250
    patience: int = 50
    seed: int = 1
    device: Literal["auto", "cpu"] = "auto"


def fine_tune(base: str, out: Path, sampler: Groups, dev: Sequence[Question], config: TeacherConfig) -> float:
    """Fine-tune `base` (path or hub id) and write the best weights, tokenizer and `teacher.json` to `out`.

    Returns the best dev MAP, in percent. A killed run, called again, resumes from its last evaluation.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=2)
    run = out / "run"
    groups = config.steps * config.accumulate * config.questions_per_step
    trainer = _TeacherTrainer(
        model=model,
        args=_arguments(run, config),
        train_dataset=_Items(groups, lambda index: _group_rows(sampler.step(index, 1)[0])),
        eval_dataset=_dev_items(dev),
        data_collator=_Collator(tokenizer, config.input),
        compute_metrics=_dev_metrics(dev),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    trainer.loss = config.loss
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(run)) if run.is_dir() else None)
    trainer.save_model(str(out))
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(out)
        config.input.write(out)
    return float(trainer.state.best_metric or 0.0)


def _arguments(run: Path, config: TeacherConfig) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(run),
        max_steps=config.steps,
        per_device_train_batch_size=config.questions_per_step,
        per_device_eval_batch_size=64,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup,
        lr_scheduler_type="linear",
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        eval_strategy="steps",
        eval_steps=config.evaluate_every,
        save_steps=config.evaluate_every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="map",
        logging_steps=min(50, config.evaluate_every),
        report_to=["tensorboard"],
        remove_unused_columns=False,
        label_names=["labels"],
        seed=config.seed,
        use_cpu=config.device == "cpu",
        dataloader_pin_memory=config.device != "cpu" and torch.cuda.is_available(),
    )


class _Items(Dataset[Item]):
    def __init__(self, size: int, item: Callable[[int], Item]) -> None:
        self._size, self._item = size, item

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Item:
        return self._item(index)


class _Collator:
    """Joins the rows of all items into one padded batch; `sizes` are the items' numbers of rows."""

    def __init__(self, tokenizer: Any, encoding: TeacherInput) -> None:
        self._tokenizer, self._encoding = tokenizer, encoding

    def __call__(self, items: list[Item]) -> dict[str, Tensor]:
        pairs, labels = zip(*(row for item in items for row in item), strict=True)
        encoded = self._encoding.encode(self._tokenizer, pairs)
        batch = dict(self._tokenizer.pad(encoded, return_tensors="pt"))
        batch["labels"] = torch.tensor(labels)
        batch["sizes"] = torch.tensor([len(item) for item in items])
        return batch


class _TeacherTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types
    loss: Literal["pointwise", "listwise", "both"] = "pointwise"

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        labels, sizes = inputs["labels"], inputs["sizes"]
        with self._attention():
            outputs = model(**{name: value for name, value in inputs.items() if name not in ("labels", "sizes")})
        difference = logit_difference(outputs.logits)[:, None]
        loss = torch.zeros((), device=labels.device)
        if self.loss != "listwise":
            loss = loss + pointwise_loss(difference, labels).sum()
        if self.loss != "pointwise":
            offsets = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
            loss = loss + listwise_loss(difference, labels, offsets).sum()
        return (loss, {"logits": outputs.logits}) if return_outputs else loss

    def _attention(self) -> AbstractContextManager[None]:
        """Plain attention on a CPU, where fused attention's backward pass takes longer than all matrix products."""
        return sdpa_kernel([SDPBackend.MATH]) if self.args.device.type == "cpu" else nullcontext()


def _group_rows(group: Group) -> Item:
    pairs = zip(group.candidates, group.labels, strict=True)
    return [((group.question, candidate), label) for candidate, label in pairs]


def _dev_items(dev: Sequence[Question]) -> _Items:
    """Dev data with one pair per item, because the Trainer can then join the predictions of questions of any size."""
    rows: list[Item] = [
        [((question.text, row.candidate), float(row.relevant))] for question in dev for row in question.candidates
    ]
    return _Items(len(rows), rows.__getitem__)


def _dev_metrics(dev: Sequence[Question]) -> Callable[[Any], dict[str, float]]:
    def measure(prediction: Any) -> dict[str, float]:
        scores = logit_difference(torch.from_numpy(prediction.predictions)).numpy()
        precision, start = [], 0
        for question in dev:
            stop = start + len(question.candidates)
            if question.answerable:
                ranks = ranks_of(np.zeros(stop - start, dtype=np.int64), scores[start:stop])
                metrics = question_metrics(np.asarray(question.labels), ranks, question.missed)
                precision.append(metrics.expected["map"])
            start = stop
        return {"map": 100 * float(np.mean(precision))}

    return measure
