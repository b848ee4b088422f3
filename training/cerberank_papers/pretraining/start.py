"""Builds the network of pre-training from a Hugging Face encoder, and writes the pre-trained encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    set_seed,
)

from cerberank_models.config import NewTypes
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.loading import quiet_transformers
from cerberank_models.convert.token_types import grow_token_types
from cerberank_models.transformer import Family
from cerberank_papers.pretraining.batches import SEGMENTS
from cerberank_papers.pretraining.network import MaskedPretraining, ReplacedTokenPretraining
from cerberank_papers.pretraining.settings import LossWeights
from cerberank_training.runs.base import Base

GENERATOR = "generator"
"""The subfolder for ELECTRA's generator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A network before its first step, with its tokenizer."""

    network: MaskedPretraining | ReplacedTokenPretraining
    tokenizer: Any
    family: Family
    fresh: tuple[str, ...]
    """The parts, besides the binary head, with random weights because the base does not have them."""


def check_start(base: Base, *, layers: int | None, generator: bool) -> None:
    """Raise UnsupportedModelError if the base does not have so many layers, or if no `generator` belongs to it."""
    config = base.described
    if layers is not None and not 0 < layers <= config.num_hidden_layers:
        raise UnsupportedModelError(f"{base.place} has {config.num_hidden_layers} layers, not {layers}")
    if generator and config.model_type != "electra":
        raise UnsupportedModelError(f"a generator belongs to ELECTRA, and {base.place} is {config.model_type}")


def build_start(
    base: Base,
    weights: LossWeights,
    *,
    seed: int,
    generator: Base | None = None,
    layers: int | None = None,
    token_types: NewTypes = "fresh",
) -> Start:
    """The network of `base`; all its random weights follow from the seed.

    `base` is BERT or RoBERTa, with or without its language-modelling head, or ELECTRA's discriminator. `generator` is
    ELECTRA's generator; None makes a new one. It shares the discriminator's embeddings, unless its own have another
    size. `layers` is the number of the encoder's first layers to use. New token types start from random values, from
    copies of the last one, or all types from random values (SSP).

    Raises UnsupportedModelError for an unsupported base or option, and ValueError when every loss has weight 0.
    """
    check_start(base, layers=layers, generator=generator is not None)
    config, folder = base.described, str(base.folder)
    if not weights.ssp and not weights.mlm and not (config.model_type == "electra" and weights.rtd):
        raise ValueError("--ssp-weight must be above 0 if the other losses have weight 0: nothing would be trained")
    set_seed(seed)
    changes = {"num_hidden_layers": layers or config.num_hidden_layers}
    network: MaskedPretraining | ReplacedTokenPretraining
    family: Family
    match config.model_type:
        case "bert" | "roberta" as family:
            language, fresh = _loaded(AutoModelForMaskedLM, folder, "a head for masked language modelling", changes)
            if family == "bert":  # Hugging Face's class leaves out the pooler, which is part of the encoder
                with quiet_transformers():
                    language.base_model.pooler = AutoModel.from_pretrained(folder, **changes).pooler
            grow_token_types(language, SEGMENTS, new=token_types, seed=seed)
            network = MaskedPretraining(language, weights)
        case "electra" as family:
            discriminator, fresh = _loaded(
                AutoModelForPreTraining, folder, "a head for replaced-token detection", changes
            )
            grow_token_types(discriminator, SEGMENTS, new=token_types, seed=seed)
            generator_network, more = _generator(generator, discriminator, token_types=token_types, seed=seed)
            fresh += more
            network = ReplacedTokenPretraining(generator_network, discriminator, weights)
        case other:
            raise UnsupportedModelError(f"model type {other!r} is not one of bert, electra, roberta")
    return Start(network=network, tokenizer=AutoTokenizer.from_pretrained(folder), family=family, fresh=tuple(fresh))


def save_encoder(start: Start, out: Path) -> None:
    """Write the encoder with the head of its own pre-training, the tokenizer, and ELECTRA's generator.

    The binary head is left out, because a fine-tuned model gets its own classifier.
    """
    with quiet_transformers():
        if isinstance(start.network, ReplacedTokenPretraining):
            start.network.discriminator.save_pretrained(out)
            start.network.generator.save_pretrained(out / GENERATOR)
            start.tokenizer.save_pretrained(out / GENERATOR)
        else:
            start.network.language.save_pretrained(out)
        start.tokenizer.save_pretrained(out)


def _loaded(kind: Any, folder: str, head: str, changes: dict[str, int]) -> tuple[Any, list[str]]:
    """The model, and a list with the name of its head if the folder has no weights for it."""
    with quiet_transformers():
        model, report = kind.from_pretrained(folder, **changes, output_loading_info=True)
    missing = [name for name in report["missing_keys"] if not name.startswith(f"{model.base_model_prefix}.")]
    return model, [head] if missing else []


def _generator(base: Base | None, discriminator: Any, *, token_types: NewTypes, seed: int) -> tuple[Any, list[str]]:
    """ELECTRA's generator `base`, or a new one that is narrower than the discriminator.

    ELECTRA's base model has a third of the width, and the small and large models have a quarter (ELECTRA table 6).
    """
    wide: Literal[3, 4]
    config = discriminator.config
    if base is not None:
        generator, fresh = _loaded(AutoModelForMaskedLM, str(base.folder), "the generator's head", {})
        if generator.config.model_type != "electra" or generator.config.vocab_size != config.vocab_size:
            raise UnsupportedModelError(f"{base.place} is not an ELECTRA generator with {config.vocab_size} tokens")
        grow_token_types(generator, SEGMENTS, new=token_types, seed=seed)
        if _shapes(generator) == _shapes(discriminator):
            _share_embeddings(generator, discriminator)
        return generator, fresh
    wide = 3 if config.num_attention_heads % 3 == 0 and config.hidden_size == 768 else 4
    if config.num_attention_heads % wide:
        raise UnsupportedModelError(
            f"{config.num_attention_heads} attention heads cannot be divided by {wide}; name a generator"
        )
    narrow = {
        name: getattr(config, name) // wide for name in ("hidden_size", "num_attention_heads", "intermediate_size")
    }
    generator = AutoModelForMaskedLM.from_config(AutoConfig.for_model(**{**config.to_dict(), **narrow}))
    _share_embeddings(generator, discriminator)
    return generator, ["a generator"]


def _shapes(model: Any) -> list[Any]:
    return [weight.shape for weight in model.base_model.embeddings.parameters()]


def _share_embeddings(generator: Any, discriminator: Any) -> None:
    """Let the generator use and train the discriminator's embeddings, as in ELECTRA."""
    generator.base_model.embeddings = discriminator.base_model.embeddings
    generator.tie_weights()
