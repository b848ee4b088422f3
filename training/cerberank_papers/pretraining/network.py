"""The networks of context-aware pre-training: an encoder with a language-modelling head and one binary head.

There are two forms (SSP appendix C). In the RoBERTa-like form the loss is the weighted sum of masked language modelling
(MLM) and of the binary head's cross entropy (SSP), both on the masked input. In the ELECTRA-like form it is the
weighted sum of MLM of a generator, replaced-token detection (RTD) of a discriminator, and the binary head on the
discriminator's first token; the discriminator reads the input with the generator's tokens.

Encoders, heads and losses are Hugging Face's. Language-modelling heads read only masked tokens, because a head over the
whole vocabulary costs as much as all layers of a small encoder.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from cerberank_papers.pretraining.settings import LossWeights

IGNORED = -100
"""The label of a token that is not masked, as in Hugging Face's collator."""


class BinaryHead(nn.Module):
    """The head of all objectives, on the first token: a hidden layer with tanh, dropout, two logits [n, 2].

    In BERT the pooler is this hidden layer; it stays in the encoder, and `teach` starts from it.
    """

    def __init__(self, config: Any, *, pooled: bool) -> None:
        """`pooled` is True if the encoder has a pooler."""
        super().__init__()
        width = config.hidden_size
        self.hidden = nn.Identity() if pooled else nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.output = nn.Linear(width, 2)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=config.initializer_range)
                nn.init.zeros_(module.bias)

    def forward(self, encoded: Any) -> Tensor:
        """Compute the logits from the encoder's output."""
        pooled = getattr(encoded, "pooler_output", None)
        first = encoded.last_hidden_state[:, 0] if pooled is None else pooled
        logits: Tensor = self.output(self.dropout(self.hidden(first)))
        return logits.float()


class MaskedPretraining(nn.Module):
    """The RoBERTa-like form. `language` is a model for masked language modelling; BERT's keeps its pooler."""

    def __init__(self, language: Any, weights: LossWeights) -> None:
        super().__init__()
        self.language = language
        self.weights = weights
        self.ssp = BinaryHead(language.config, pooled=getattr(language.base_model, "pooler", None) is not None)
        keep_one_of_tied(self)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        ssp_labels: Tensor,
        labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The losses `loss`, `ssp` and `mlm` of the batch, and `ssp_logits` [n, 2]."""
        encoded = self.language.base_model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        parts = {}
        if labels is not None:
            parts["mlm"], _ = masked_loss(self.language, encoded.last_hidden_state, labels)
        return summed(self.ssp(encoded), ssp_labels, parts, self.weights)


class ReplacedTokenPretraining(nn.Module):
    """The ELECTRA-like form: `generator` for masked language modelling, `discriminator` for replaced tokens."""

    def __init__(self, generator: Any, discriminator: Any, weights: LossWeights) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        self.weights = weights
        self.ssp = BinaryHead(discriminator.config, pooled=False)
        keep_one_of_tied(self)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        ssp_labels: Tensor,
        labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The losses `loss`, `ssp`, `mlm` and `rtd` of the batch, and `ssp_logits` [n, 2].

        A token counts as replaced if the generator's token differs from the original.
        """
        shared = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        parts, replaced = {}, None
        if labels is not None:
            written = self.generator.base_model(input_ids=input_ids, **shared).last_hidden_state
            parts["mlm"], logits = masked_loss(self.generator, written, labels)
            original = torch.where(labels == IGNORED, input_ids, labels)
            input_ids = original.masked_scatter(labels != IGNORED, drawn(logits, again=not self.training))
            replaced = (input_ids != original)[attention_mask.bool()]
        encoded = self.discriminator.base_model(input_ids=input_ids, **shared)
        if replaced is not None:
            logits = self.discriminator.discriminator_predictions(encoded.last_hidden_state)[attention_mask.bool()]
            parts["rtd"] = binary_cross_entropy_with_logits(logits.float(), replaced.float())
        return summed(self.ssp(encoded), ssp_labels, parts, self.weights)


def masked_loss(language: Any, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cross entropy over masked tokens (0 without any), and their logits [masked, vocabulary]."""
    chosen = labels != IGNORED
    logits = _language_head(language, hidden[chosen]).float()
    total = cross_entropy(logits, labels[chosen], reduction="sum")
    return total / chosen.sum().clamp(min=1), logits


def _language_head(language: Any, hidden: Tensor) -> Any:
    """The output of the family's language-modelling head for encoded tokens [tokens, width]."""
    match language.config.model_type:
        case "bert":
            return language.cls(hidden)
        case "roberta":
            return language.lm_head(hidden)
        case _:
            return language.generator_lm_head(language.generator_predictions(hidden))


def drawn(logits: Tensor, *, again: bool) -> Tensor:
    """Draw a token for each row of logits, by their softmax, without a gradient (ELECTRA section 2).

    With `again`, the same logits give the same tokens, so that an evaluation can be repeated.
    """
    generator = torch.Generator(logits.device).manual_seed(0) if again else None
    return torch.multinomial(logits.detach().softmax(-1), 1, generator=generator)[:, 0]


def summed(logits: Tensor, ssp_labels: Tensor, parts: dict[str, Tensor], weights: LossWeights) -> dict[str, Tensor]:
    """The weighted sum of SSP's loss and the others, and each loss.

    A loss of weight 0 is left out of the sum, so that weights that only this loss uses have no weight decay.
    """
    parts = {"ssp": cross_entropy(logits, ssp_labels), **parts}
    loss = sum(weight * part for name, part in parts.items() if (weight := getattr(weights, name)))
    return {"loss": loss, "ssp_logits": logits, **{name: part.detach() for name, part in parts.items()}}


def keep_one_of_tied(network: nn.Module) -> None:
    """Save a tied weight once, as safetensors requires, and load it under all its names."""
    first: dict[int, str] = {}
    names = network.state_dict(keep_vars=True)
    tied = {name: first[id(value)] for name, value in names.items() if first.setdefault(id(value), name) != name}

    def drop(_module: Any, state: dict[str, Any], _prefix: str, _metadata: Any) -> None:
        for name in tied:
            state.pop(name, None)

    def restore(_module: Any, state: dict[str, Any], *_: Any) -> None:
        state.update({name: state[first_name] for name, first_name in tied.items() if first_name in state})

    hooked: Any = network  # these two methods of torch have no types
    hooked.register_state_dict_post_hook(drop)
    hooked.register_load_state_dict_pre_hook(restore)
