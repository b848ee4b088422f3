"""Fine-tuning tiny random classifiers: their input, that they learn, and that the settings reach the loop."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import hugging_face_config, save_cross_encoder
from tests.training.letters import questions, sampler
from transformers import AutoModel, AutoModelForSequenceClassification

from cerberank_models.convert.families import FAMILIES, UnsupportedModelError
from cerberank_training.evaluation.dev_figures import dev_figures
from cerberank_training.learning.settings import TeacherConfig
from cerberank_training.learning.teacher_job import classifier, teacher_learner, teacher_ranks
from cerberank_training.runs.base import Base, open_base
from cerberank_training.runs.loop import Loop
from cerberank_training.runs.settings import Precision
from cerberank_training.teachers.scoring.hugging_face import logit_difference
from cerberank_training.teachers.teacher_reader import TeacherReader

CONFIG = TeacherConfig(
    steps=4, max_length=32, precision="fp32", examples_per_step=2, evaluate_every=2, learning_rate=1e-3
)


def base_of(family: str, folder: Path, **changes: object) -> Base:
    return open_base(str(save_cross_encoder(family, folder, **changes)))


def trained(base: Base, folder: Path, config: TeacherConfig = CONFIG, workers: int = 0) -> tuple[float, Any]:
    """The best figure of a run, and its model."""
    model = classifier(base, config)
    reader = TeacherReader(base.tokenizer(), model.config, config.input)
    run = Loop(folder, teacher_learner(model, reader, sampler(), config), workers=workers)
    return run.train(dev_figures(teacher_ranks(reader, "cpu", config.precision), questions())), model


def first_step(folder: Path) -> dict[str, float]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return next(line for line in lines if "loss" in line)


@pytest.fixture(params=["fork", "spawn"])
def start_method(request: pytest.FixtureRequest) -> Iterator[None]:
    """The ways in which other processes begin: as on Linux, and without this one's memory, as on macOS and Windows."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(request.param, force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def test_one_and_two_logits_give_one_difference() -> None:
    """z1 - z0 of two classes, the logit itself of one; always fp32."""
    two = torch.tensor([[1.0, 3.0], [2.0, 1.5]], dtype=torch.bfloat16)
    assert logit_difference(two).tolist() == [2.0, -0.5]
    assert logit_difference(two[:, :1]).tolist() == [1.0, 2.0]
    assert logit_difference(two).dtype == torch.float32


@pytest.mark.parametrize(("loss", "precision"), [("pointwise", "fp32"), ("listwise", "bf16"), ("both", "fp16")])
def test_every_loss_changes_the_weights(loss: str, precision: Precision, tmp_path: Path) -> None:
    """In every precision; the log has both losses where there are two; the teacher reads context."""
    base = base_of("bert", tmp_path / "base")
    best, model = trained(base, tmp_path / "run", replace(CONFIG, loss=loss, context=True, precision=precision))
    assert 0 < best <= 100
    before = AutoModelForSequenceClassification.from_pretrained(base.folder)
    assert not torch.equal(before.classifier.weight, model.classifier.weight)
    parts = {name: value for name, value in first_step(tmp_path / "run").items() if name.startswith("loss/")}
    assert set(parts) == ({"loss/pointwise", "loss/listwise"} if loss == "both" else set())


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than a machine has processors
@pytest.mark.usefixtures("start_method")
def test_batches_of_other_processes_are_the_same(tmp_path: Path) -> None:
    """The same weights, dropout included, and the same figures, whoever tokenises."""
    base, config = base_of("bert", tmp_path / "base"), replace(CONFIG, dropout=0.1)
    (best, one), (again, other) = (trained(base, tmp_path / str(each), config, workers=each) for each in (0, 2))
    assert best == again
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    """Two batches of two questions give the gradient and the loss of one batch of four, up to rounding."""
    base = base_of("bert", tmp_path / "base")
    for accumulate in (1, 2):
        config = replace(CONFIG, steps=1, examples_per_step=4, accumulate=accumulate, dropout=0.0)
        trained(base, tmp_path / str(accumulate), config)
    whole, halves = (first_step(tmp_path / str(accumulate)) for accumulate in (1, 2))
    for figure in ("gradient_norm", "loss"):
        assert halves[figure] == pytest.approx(whole[figure], rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing_gives_the_same_gradients(family: str, tmp_path: Path) -> None:
    """In every family, with dropout: the same norm and loss; the first layer's products are computed twice."""
    base, first, calls = base_of(family, tmp_path / "base"), [], []
    for checkpointing in (False, True):
        config = replace(CONFIG, steps=1, dropout=0.1, gradient_checkpointing=checkpointing)
        out, ran = tmp_path / str(checkpointing), []
        with torch.nn.modules.module.register_module_forward_hook(
            lambda module, *_, ran=ran: ran.append(module.training and isinstance(module, torch.nn.Linear))
        ):
            trained(base, out, config)
        first.append([first_step(out)[figure] for figure in ("gradient_norm", "loss")])
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
    _, after = trained(base, tmp_path / "run", replace(CONFIG, steps=2))
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
