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

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.token_types import NewTypes, grow_token_types
from cerberank_models.transformer import Family
from cerberank_training.pretraining.batches import SEGMENTS
from cerberank_training.pretraining.network import LossWeights, MaskedPretraining, ReplacedTokenPretraining

GENERATOR = "generator"
"""The subfolder for ELECTRA's generator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartOptions:
    """The model that pre-training starts from."""

    source: str
    """Path or hub id of an encoder: BERT or RoBERTa, with or without its language-modelling head, or ELECTRA's
    discriminator."""
    generator: str | None = None
    """Path or hub id of ELECTRA's generator; None makes a new one. It shares the discriminator's embeddings, unless a
    given generator has embeddings of another size."""
    layers: int | None = None
    """The number of the encoder's first layers to use."""
    token_types: NewTypes = "fresh"
    """The initial values of new token types: random, copies of the last one, or random for all types (SSP)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A network before its first step, with its tokenizer."""

    network: MaskedPretraining | ReplacedTokenPretraining
    tokenizer: Any
    family: Family
    fresh: tuple[str, ...]
    """The parts, besides the binary head, with random weights because the base does not have them."""


def check_base(base: StartOptions) -> Any:
    """The configuration of the base's encoder. Raises UnsupportedModelError for options that do not fit the base."""
    config = AutoConfig.from_pretrained(base.source)
    if base.layers is not None and not 0 < base.layers <= config.num_hidden_layers:
        raise UnsupportedModelError(f"{base.source} has {config.num_hidden_layers} layers, not {base.layers}")
    if base.generator is not None and config.model_type != "electra":
        raise UnsupportedModelError(f"a generator belongs to ELECTRA, and {base.source} is {config.model_type}")
    return config


def build_start(base: StartOptions, weights: LossWeights, *, seed: int) -> Start:
    """The network of `base`; all its random weights follow from the seed.

    Raises UnsupportedModelError for an unsupported base or option, and ValueError when every loss has weight 0.
    """
    config = check_base(base)
    if not weights.ssp and not weights.mlm and not (config.model_type == "electra" and weights.rtd):
        raise ValueError("ssp_weight must be above 0 if the other losses have weight 0: nothing would be trained")
    set_seed(seed)
    layers = {"num_hidden_layers": base.layers or config.num_hidden_layers}
    network: MaskedPretraining | ReplacedTokenPretraining
    family: Family
    match config.model_type:
        case "bert" | "roberta" as family:
            language, fresh = _loaded(AutoModelForMaskedLM, base.source, "a head for masked language modelling", layers)
            if family == "bert":  # Hugging Face's class leaves out the pooler, which is part of the encoder
                language.base_model.pooler = AutoModel.from_pretrained(base.source, **layers).pooler
            grow_token_types(language, SEGMENTS, new=base.token_types, seed=seed)
            network = MaskedPretraining(language, weights)
        case "electra" as family:
            discriminator, fresh = _loaded(
                AutoModelForPreTraining, base.source, "a head for replaced-token detection", layers
            )
            grow_token_types(discriminator, SEGMENTS, new=base.token_types, seed=seed)
            generator, more = _generator(base, discriminator, seed=seed)
            fresh += more
            network = ReplacedTokenPretraining(generator, discriminator, weights)
        case other:
            raise UnsupportedModelError(f"model type {other!r} is not one of bert, electra, roberta")
    return Start(
        network=network, tokenizer=AutoTokenizer.from_pretrained(base.source), family=family, fresh=tuple(fresh)
    )


def save_encoder(start: Start, out: Path) -> None:
    """Write the encoder with the head of its own pre-training, the tokenizer, and ELECTRA's generator.

    The binary head is left out, because a fine-tuned model gets its own classifier.
    """
    if isinstance(start.network, ReplacedTokenPretraining):
        start.network.discriminator.save_pretrained(out)
        start.network.generator.save_pretrained(out / GENERATOR)
        start.tokenizer.save_pretrained(out / GENERATOR)
    else:
        start.network.language.save_pretrained(out)
    start.tokenizer.save_pretrained(out)


def _loaded(kind: Any, source: str, head: str, changes: dict[str, int]) -> tuple[Any, list[str]]:
    """The model, and a list with the name of its head if the source has no weights for it."""
    model, report = kind.from_pretrained(source, **changes, output_loading_info=True)
    missing = [name for name in report["missing_keys"] if not name.startswith(f"{model.base_model_prefix}.")]
    return model, [head] if missing else []


def _generator(base: StartOptions, discriminator: Any, *, seed: int) -> tuple[Any, list[str]]:
    """ELECTRA's generator: the given one, or a new one that is narrower than the discriminator.

    ELECTRA's base model has a third of the width, and the small and large models have a quarter (ELECTRA table 6).
    """
    wide: Literal[3, 4]
    config = discriminator.config
    if base.generator is not None:
        generator, fresh = _loaded(AutoModelForMaskedLM, base.generator, "the generator's head", {})
        if generator.config.model_type != "electra" or generator.config.vocab_size != config.vocab_size:
            raise UnsupportedModelError(f"{base.generator} is not an ELECTRA generator with {config.vocab_size} tokens")
        grow_token_types(generator, SEGMENTS, new=base.token_types, seed=seed)
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
