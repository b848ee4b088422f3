"""Fine-tuning tiny random classifiers: their input, that they learn, that a killed run resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import hugging_face_config, save_cross_encoder
from tests.training.copies import compare_with_copies
from tests.training.letters import questions, sampler
from transformers import AutoModel, AutoModelForSequenceClassification, Trainer

from cerberank_models.convert.families import FAMILIES, UnsupportedModelError
from cerberank_training.learning.divergence import DivergenceError
from cerberank_training.learning.losses import logit_difference
from cerberank_training.runs.base import Base, open_base
from cerberank_training.teachers.fine_tuning import TeacherConfig, classifier, fine_tune, training_arguments

CONFIG = TeacherConfig(
    steps=4, max_length=32, precision="fp32", examples_per_step=2, evaluate_every=2, learning_rate=1e-3, device="cpu"
)


def base_of(family: str, folder: Path, **changes: object) -> Base:
    return open_base(str(save_cross_encoder(family, folder, **changes)))


def test_one_and_two_logits_give_one_difference() -> None:
    """z1 - z0 of two classes, the logit itself of one; always fp32."""
    two = torch.tensor([[1.0, 3.0], [2.0, 1.5]], dtype=torch.bfloat16)
    assert logit_difference(two).tolist() == [2.0, -0.5]
    assert logit_difference(two[:, :1]).tolist() == [1.0, 2.0]
    assert logit_difference(two).dtype == torch.float32


@pytest.mark.parametrize("loss", ["pointwise", "listwise", "both"])
def test_every_loss_changes_the_weights(loss: str, tmp_path: Path) -> None:
    """The folder loads with Hugging Face's classes; the teacher reads context."""
    base = base_of("bert", tmp_path / "base")
    config = replace(CONFIG, loss=loss, context=True)
    best = fine_tune(base, tmp_path / "teacher", sampler(), questions(), config)
    assert 0 < best <= 100
    before, after = (
        AutoModelForSequenceClassification.from_pretrained(path) for path in (base.folder, tmp_path / "teacher")
    )
    assert not torch.equal(before.classifier.weight, after.classifier.weight)


def test_the_settings_of_the_trainer() -> None:
    """A triangle whose warm-up is a whole number of steps, decay, clipping, the sampler's own order."""
    config = replace(CONFIG, steps=30, warmup=0.05, weight_decay=0.01, clip=0.5)
    arguments = training_arguments(Path("run"), config)
    assert (arguments.warmup_steps, arguments.lr_scheduler_type) == (2, "linear")
    assert (arguments.weight_decay, arguments.max_grad_norm) == (0.01, 0.5)
    assert arguments.train_sampling_strategy == "sequential"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than a machine has processors
def test_batches_of_other_processes_are_the_same(tmp_path: Path) -> None:
    """The same weights, dropout included, and the same figures, whoever tokenises."""
    base, found = base_of("bert", tmp_path / "base"), []
    for workers in (0, 2):
        config = replace(CONFIG, workers=workers, dropout=0.1)
        best = fine_tune(base, tmp_path / str(workers), sampler(), questions(), config)
        found.append((best, load_file(tmp_path / str(workers) / "model.safetensors")))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(value, found[1][1][name]) for name, value in found[0][1].items())


def test_workers_need_no_fork(tmp_path: Path) -> None:
    """The maker of batches is copied into another process, and makes the same there."""
    base = base_of("bert", tmp_path / "base")
    compare_with_copies(lambda: fine_tune(base, tmp_path / "out", sampler(), questions(), CONFIG))


@pytest.mark.parametrize("evaluate_every", [1, 4])
def test_a_diverged_run_ends_before_its_weights_are_saved(evaluate_every: int, tmp_path: Path) -> None:
    """The second step is the first with a rate above 0. Its evaluation tells, or else the third step's loss."""
    base = base_of("bert", tmp_path / "base")
    config = replace(CONFIG, learning_rate=1e38, evaluate_every=evaluate_every)
    with pytest.raises(DivergenceError, match=rf"the loss is (nan|inf) in step {2 if evaluate_every == 1 else 3}, "):
        fine_tune(base, tmp_path / "teacher", sampler(), questions(), config)
    saved = {path.name for path in (tmp_path / "teacher" / "run").glob("checkpoint-*")}
    assert saved == ({"checkpoint-1"} if evaluate_every == 1 else set())


def test_a_kill_keeps_the_patience_and_needs_no_whole_checkpoint(tmp_path: Path) -> None:
    """Beside half a checkpoint, a run that was out of patience ends after one evaluation."""
    base = base_of("bert", tmp_path / "base")
    config = replace(CONFIG, steps=40, evaluate_every=1, patience=3, learning_rate=1e-9)
    fine_tune(base, tmp_path / "teacher", sampler(), questions(), config)
    run = tmp_path / "teacher" / "run"
    last = max(int(path.name.rpartition("-")[2]) for path in run.glob("checkpoint-*"))
    (run / f"checkpoint-{last + 1}").mkdir()
    fine_tune(base, tmp_path / "teacher", sampler(), questions(), config)
    assert max(int(path.name.rpartition("-")[2]) for path in run.glob("checkpoint-*")) == last + 1
    assert (run / f"checkpoint-{last + 1}" / "trainer_state.json").is_file()


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    """Two batches of two questions give the gradient and the loss of one batch of four, up to rounding."""
    base = base_of("bert", tmp_path / "base")
    first = {}
    for name, size, accumulate in (("whole", 4, 1), ("halves", 4, 2)):
        sizes = {"examples_per_step": size, "accumulate": accumulate}
        config = replace(CONFIG, steps=1, evaluate_every=1, dropout=0.0, clip=1e9, **sizes)
        fine_tune(base, tmp_path / name, sampler(), questions(), config)
        state = json.loads((tmp_path / name / "run" / "checkpoint-1" / "trainer_state.json").read_text())
        first[name] = next(entry for entry in state["log_history"] if "grad_norm" in entry)
    for figure in ("grad_norm", "loss"):
        assert first["halves"][figure] == pytest.approx(first["whole"][figure], rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing_gives_the_same_gradients(family: str, tmp_path: Path) -> None:
    """In every family, with dropout: the same norm and loss; the first layer's products are computed twice."""
    base, first, calls = base_of(family, tmp_path / "base"), [], []
    for checkpointing in (False, True):
        config = replace(CONFIG, steps=1, evaluate_every=1, dropout=0.1, gradient_checkpointing=checkpointing)
        out, ran = tmp_path / str(checkpointing), []
        with torch.nn.modules.module.register_module_forward_hook(
            lambda module, *_, ran=ran: ran.append(module.training and isinstance(module, torch.nn.Linear))
        ):
            fine_tune(base, out, sampler(), questions(), config)
        state = json.loads((out / "run" / "checkpoint-1" / "trainer_state.json").read_text())
        entry = next(entry for entry in state["log_history"] if "grad_norm" in entry)
        first.append([entry["grad_norm"], entry["loss"]])
        calls.append(sum(ran))
    assert first[1] == pytest.approx(first[0], rel=1e-5)
    assert calls[0] < calls[1] <= 2 * calls[0]


def test_the_seed_and_dropout_reach_the_network(tmp_path: Path) -> None:
    """The classifier that a base lacks and fresh rows follow from the seed; dropout is the one asked for."""
    base = tmp_path / "base"
    AutoModel.from_config(hugging_face_config("bert")).save_pretrained(base)
    first, again, other = (
        classifier(open_base(str(base)), replace(CONFIG, context=True, token_types="fresh", seed=seed, dropout=0.3))
        for seed in (1, 1, 2)
    )
    rows = "bert.embeddings.token_type_embeddings.weight"
    for name in ("classifier.weight", rows):
        assert torch.equal(first.state_dict()[name], again.state_dict()[name])
        assert not torch.equal(first.state_dict()[name], other.state_dict()[name])
    assert len(first.state_dict()[rows]) == 3
    assert {part.p for part in first.modules() if isinstance(part, torch.nn.Dropout)} == {0.3}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_one_logit_cross_encoder_of_every_family_is_a_base(family: str, tmp_path: Path) -> None:
    """As ms-marco-MiniLM: it keeps its one logit, and before the first step it scores as it did."""
    base = base_of(family, tmp_path / "base", num_labels=1)
    before = AutoModelForSequenceClassification.from_pretrained(base.folder).state_dict()
    start = classifier(base, CONFIG).state_dict()
    assert all(torch.equal(start[name], value) for name, value in before.items())
    fine_tune(base, tmp_path / "teacher", sampler(), questions(), replace(CONFIG, steps=2))
    after = AutoModelForSequenceClassification.from_pretrained(tmp_path / "teacher")
    assert after.config.num_labels == 1
    assert not all(torch.equal(after.state_dict()[name], value) for name, value in before.items())


def test_a_classifier_into_three_labels_gets_a_fresh_last_layer(tmp_path: Path) -> None:
    """As one of natural language inference; what stands below that layer is its own."""
    base = base_of("roberta", tmp_path / "base", num_labels=3)
    own, model = AutoModelForSequenceClassification.from_pretrained(base.folder), classifier(base, CONFIG)
    assert model.config.num_labels == 2
    assert torch.equal(model.classifier.dense.weight, own.classifier.dense.weight)


def test_a_classifier_without_its_weights_is_refused(tmp_path: Path) -> None:
    """Its configuration says a classifier of two labels, its file holds an encoder alone."""
    base = base_of("bert", tmp_path / "base")
    AutoModel.from_pretrained(base.folder).save_pretrained(tmp_path / "encoder")
    (tmp_path / "encoder" / "model.safetensors").replace(base.folder / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"lacks classifier\.bias, classifier\.weight"):
        classifier(base, CONFIG)


def killed_at_the_second_checkpoint() -> Callable[..., None]:
    original, saved = Trainer.save_model, []

    def save_model(self: Trainer, *arguments: object, **named: object) -> None:
        if saved:
            raise KeyboardInterrupt
        saved.append(True)
        original(self, *arguments, **named)

    return save_model


def test_a_killed_teacher_goes_on(tmp_path: Path) -> None:
    """Stopped after an evaluation and called again: the weights of the run without interruption."""
    base = base_of("bert", tmp_path / "base")
    fine_tune(base, tmp_path / "whole", sampler(), questions(), CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.Trainer.save_model", killed_at_the_second_checkpoint())
        with pytest.raises(KeyboardInterrupt):
            fine_tune(base, tmp_path / "cut", sampler(), questions(), CONFIG)
    assert [path.name for path in (tmp_path / "cut" / "run").glob("checkpoint-*")] == ["checkpoint-2"]
    fine_tune(base, tmp_path / "cut", sampler(), questions(), CONFIG)
    weights = [
        AutoModelForSequenceClassification.from_pretrained(tmp_path / name).state_dict() for name in ("whole", "cut")
    ]
    for name, value in weights[0].items():
        assert np.allclose(value.numpy(), weights[1][name].numpy(), atol=1e-6), name
