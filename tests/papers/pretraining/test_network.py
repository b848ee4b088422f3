"""Losses against Hugging Face's own on the same inputs, and weights that are saved once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.papers.pretraining.networks import save_base
from tests.papers.pretraining.test_batches import items
from torch import Tensor
from torch.nn.functional import cross_entropy

from cerberank_models.transformer import Family
from cerberank_papers.pretraining import network as networks
from cerberank_papers.pretraining.batches import Batches
from cerberank_papers.pretraining.settings import LossWeights
from cerberank_papers.pretraining.start import Start, build_start
from cerberank_training.runs.base import open_base

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
"""Two orders of summing the same fp32 numbers."""
WEIGHTS = LossWeights(mlm=0.5, rtd=7.0)


def started(family: Family, folder: Path) -> tuple[Start, dict[str, Tensor]]:
    start = build_start(open_base(str(save_base(family, folder))), WEIGHTS, seed=1)
    start.network.eval()
    return start, Batches(start.tokenizer, family=family, max_length=48, masks=True, seed=1)(items(3))


def model_inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_losses_are_hugging_faces(family: Family, tmp_path: Path) -> None:
    """MLM as BertForMaskedLM's own loss, SSP as the binary head's cross entropy, and their weighted sum."""
    start, batch = started(family, tmp_path)
    network: Any = start.network
    found = network(**batch)
    oracle = network.language(**model_inputs(batch), labels=batch["labels"], output_hidden_states=True)
    first = oracle.hidden_states[-1][:, 0]
    hidden = torch.tanh((network.language.bert.pooler.dense if family == "bert" else network.ssp.hidden[0])(first))
    logits = network.ssp.output(hidden)
    torch.testing.assert_close(found["mlm"], oracle.loss, **CLOSE)
    torch.testing.assert_close(found["ssp_logits"], logits, **CLOSE)
    torch.testing.assert_close(found["ssp"], cross_entropy(logits, batch["ssp_labels"]), **CLOSE)
    torch.testing.assert_close(found["loss"], found["ssp"] + 0.5 * oracle.loss, **CLOSE)


def test_language_modelling_alone_gives_ssps_weights_no_gradient(tmp_path: Path) -> None:
    """With weight 0 the sum is MLM's loss; the binary head and BERT's pooler stay, even under weight decay."""
    start = build_start(open_base(str(save_base("bert", tmp_path))), LossWeights(ssp=0, mlm=0.5), seed=1)
    batch = Batches(start.tokenizer, family="bert", max_length=48, masks=True, seed=1)(items(3))
    network: Any = start.network.eval()
    found = network(**batch)
    torch.testing.assert_close(found["loss"], 0.5 * found["mlm"], **CLOSE)
    found["loss"].backward()
    assert {name for name, value in network.named_parameters() if value.grad is None} == {
        "language.bert.pooler.dense.weight",
        "language.bert.pooler.dense.bias",
        "ssp.output.weight",
        "ssp.output.bias",
    }


def test_electras_losses_are_hugging_faces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator's and the discriminator's own losses; a drawn token that is the original is not a replacement.

    SSP reads the corrupted input, and no gradient of the discriminator reaches the generator's own layers.
    """
    start, batch = started("electra", tmp_path)
    network: Any = start.network
    chosen = batch["labels"] != -100
    tokens = torch.where(torch.arange(int(chosen.sum())) % 2 == 0, 9, batch["labels"][chosen])
    monkeypatch.setattr(networks, "drawn", lambda logits, again: tokens)
    found = network(**batch)
    original = torch.where(chosen, batch["labels"], batch["input_ids"])
    corrupted = original.clone()
    corrupted[chosen] = tokens
    labels = (corrupted != original).long()
    assert 0 < labels.sum() < chosen.sum()
    generator = network.generator(**model_inputs(batch), labels=batch["labels"])
    shared = model_inputs(batch) | {"input_ids": corrupted}
    discriminator = network.discriminator(**shared, labels=labels, output_hidden_states=True)
    logits = network.ssp.output(network.ssp.hidden(discriminator.hidden_states[-1][:, 0]))
    torch.testing.assert_close(found["mlm"], generator.loss, **CLOSE)
    torch.testing.assert_close(found["rtd"], discriminator.loss, **CLOSE)
    torch.testing.assert_close(found["ssp_logits"], logits, **CLOSE)
    whole = found["ssp"] + 0.5 * generator.loss + 7 * discriminator.loss
    torch.testing.assert_close(found["loss"], whole, **CLOSE)
    (found["loss"] - 0.5 * found["mlm"]).backward(retain_graph=True)
    mlm_only = torch.autograd.grad(
        network.generator(**model_inputs(batch), labels=batch["labels"]).loss,
        network.generator.electra.encoder.layer[0].output.dense.weight,
    )[0]
    have = network.generator.electra.encoder.layer[0].output.dense.weight.grad
    torch.testing.assert_close(have, 0.5 * mlm_only, **CLOSE)


def test_tokens_are_drawn_by_the_generators_probabilities() -> None:
    """Frequencies of 20,000 draws within six standard deviations of the softmax."""
    torch.manual_seed(1)
    logits = torch.tensor([0.0, 1.0, 2.0, -30.0])
    counts = networks.drawn(logits.expand(20_000, -1), again=False).bincount(minlength=4) / 20_000
    expected = logits.softmax(-1)
    assert ((counts - expected).abs() <= 6 * (expected * (1 - expected) / 20_000).sqrt() + 1e-9).all()
    one, two = (networks.drawn(logits.expand(100, -1), again=True) for _ in range(2))
    assert torch.equal(one, two)


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_without_masks_ssp_is_the_whole_loss(family: Family, tmp_path: Path) -> None:
    """A batch without labels gives no other loss, on the input as it is."""
    start, batch = started(family, tmp_path)
    del batch["labels"]
    found = start.network(**batch)
    assert {"mlm", "rtd"}.isdisjoint(found)
    torch.testing.assert_close(found["loss"], cross_entropy(found["ssp_logits"], batch["ssp_labels"]), **CLOSE)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_tied_weights_are_saved_once_and_stay_tied(family: Family, tmp_path: Path) -> None:
    """A file of safetensors takes the state; read again it gives the same outputs, and the head is still tied."""
    start, batch = started(family, tmp_path / "base")
    other = build_start(open_base(str(tmp_path / "base")), WEIGHTS, seed=2)
    save_file(start.network.state_dict(), tmp_path / "state.safetensors")
    report = other.network.load_state_dict(load_file(tmp_path / "state.safetensors"), strict=False)
    assert (report.missing_keys, report.unexpected_keys) == ([], [])
    network: Any = other.network.eval()
    del batch["labels"]
    assert torch.equal(start.network(**batch)["ssp_logits"], network(**batch)["ssp_logits"])
    language = network.generator if family == "electra" else network.language
    assert language.get_output_embeddings().weight is language.get_input_embeddings().weight
