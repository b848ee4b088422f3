"""Writes checkpoints with random weights, to size a machine or to measure speed before a model of that shape exists.

Their scores are meaningless, which is stated in their name, version, source and model card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import torch
from tokenizers import Tokenizer

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.convert.checkpoint import PARITY, Forms, export_checkpoint
from cerberank_models.convert.families import FAMILIES
from cerberank_models.convert.from_hugging_face import initialise
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import Family, PreNormConfig, TransformerConfig

MARK = "random-"
"""The prefix of the names and versions of such checkpoints."""
POSITIONS = 512
CARD = """# {name}

**Random weights: this model was not trained, and its scores mean nothing.**

`{architecture}`, width {width}, {attention_heads} attention heads, exits after layers {exits},
pairs of at most {length} tokens; seed {seed}. Made to measure how fast a ranker of this shape is on a machine.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderShape:
    """The shape of a known encoder, except for its depth."""

    family: Family
    width: int
    attention_heads: int
    embedding: int
    feed: float = 4.0
    """The width of a feed-forward, as a multiple of the hidden states' width."""
    vocabulary: int = 30522
    """The number of tokens: BERT's, which ELECTRA and MiniLM share. ALBERT has 30,000, but the bundled tokenizer needs
    BERT's number."""

    @property
    def transformer(self) -> dict[str, object]:
        """The settings of the encoder that depend on its family, without its sizes."""
        if self.family == "modernbert":
            return {"pre_norm": PreNormConfig(), "type_vocab_size": 1, "layer_norm_epsilon": 1e-5}
        if self.family == "xlm-roberta":
            return {"position_offset": 2, "max_positions": POSITIONS + 2, "type_vocab_size": 1}
        return {"type_vocab_size": 1} if self.family == "distilbert" else {}


def _shape(family: Family, width: int, attention_heads: int, embedding: int | None = None) -> EncoderShape:
    return EncoderShape(
        family=family, width=width, attention_heads=attention_heads, embedding=width if embedding is None else embedding
    )


def _modern(width: int, attention_heads: int, inner: int) -> EncoderShape:
    return replace(_shape("modernbert", width, attention_heads), feed=inner / width, vocabulary=50_368)


SHAPES: Mapping[str, EncoderShape] = MappingProxyType(
    {
        "albert-base": _shape("albert", 768, 12, embedding=128),
        "albert-xxlarge": _shape("albert", 4096, 64, embedding=128),
        "MiniLM": _shape("bert", 384, 12),
        "bert-base": _shape("bert", 768, 12),
        "bert-large": _shape("bert", 1024, 16),
        "electra-small": _shape("electra", 256, 4, embedding=128),
        "electra-base": _shape("electra", 768, 12),
        "electra-large": _shape("electra", 1024, 16),
        "distilbert-base": _shape("distilbert", 768, 12),
        "modernbert-base": _modern(768, 12, 1152),
        "modernbert-large": _modern(1024, 16, 2624),
        "xlm-roberta-base": replace(_shape("xlm-roberta", 768, 12), vocabulary=250_002),
        "xlm-roberta-large": replace(_shape("xlm-roberta", 1024, 16), vocabulary=250_002),
    }
)
"""The shapes by name, as in the configurations on the Hugging Face hub, except for the vocabulary."""


def random_config(
    name: str,
    shape: EncoderShape,
    *,
    body_layers: int,
    heads: int,
    head_layers: int,
    exits: Sequence[int] = (),
    max_length: int = 128,
) -> RankerConfig:
    """The ranker `B_b kH_h` with this encoder, and `exits` after these body layers; `random-` is added to the name.

    Raises ValueError (from pydantic) for an invalid shape.
    """
    return RankerConfig(
        name=MARK + name,
        transformer=TransformerConfig.model_validate(
            {
                "family": shape.family,
                "vocab_size": shape.vocabulary,
                "hidden_size": shape.width,
                "layers": body_layers + (head_layers if heads else 0),
                "attention_heads": shape.attention_heads,
                "intermediate_size": round(shape.feed * shape.width),
                "max_positions": POSITIONS,
                "embedding_size": shape.embedding,
                **shape.transformer,
            }
        ),
        architecture=ArchitectureConfig(
            body_layers=body_layers,
            heads=heads,
            head_layers=head_layers,
            classifier_activation=FAMILIES[shape.family].activation,
            classifier_bias=shape.family != "modernbert",
        ),
        exits=tuple(ExitConfig(after=after) for after in exits),
        encoding=EncodingConfig(max_length=max_length, question_length=min(64, max_length // 2)),
    )


def random_ranker(config: RankerConfig, *, seed: int = 0) -> RankingNetwork:
    """A network of this shape with random weights by `seed`, which gives candidates different scores.

    Weights have the deviation 1 / sqrt(D), which keeps the magnitude of a layer's input. With BERT's 0.02 the first
    token would hardly depend on the others, and a deep network would give all candidates almost the same score.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for the initial embeddings
        ranker = RankingNetwork(config)
    initialise(ranker, seed=seed, deviation=config.body.hidden_size**-0.5)
    return ranker


def write_random_checkpoint(
    path: Path, config: RankerConfig, tokenizer: Tokenizer, *, seed: int = 0, precisions: Sequence[str] = ()
) -> Checkpoint:
    """Write the checkpoint `path` with random weights, ONNX graphs in `precisions`, and golden scores.

    Raises ValueError for a name that does not begin with `random-`, or a tokenizer with more tokens than the network
    has embeddings, and FileExistsError if `path` exists. All of these are checked before anything is computed.
    """
    if not config.name.startswith(MARK):
        raise ValueError(f"the name of a checkpoint with random weights begins with {MARK!r}, not {config.name!r}")
    transformer = config.body
    if (largest := max(tokenizer.get_vocab().values())) >= transformer.vocab_size:
        raise ValueError(f"the tokenizer's ids go up to {largest}, the vocabulary has {transformer.vocab_size} entries")
    if path.exists():
        raise FileExistsError(f"{path} exists; a checkpoint is never overwritten")
    export_checkpoint(
        random_ranker(config, seed=seed),
        tokenizer,
        path,
        card=CARD.format(
            name=config.name,
            architecture=config.architecture,
            width=transformer.hidden_size,
            attention_heads=transformer.attention_heads,
            exits=", ".join(str(exit_.after) for exit_ in config.exits) or "none",
            length=config.encoding.max_length,
            seed=seed,
        ),
        version=f"{MARK}seed-{seed}",
        source="random weights, not trained",
        forms=Forms(precisions=precisions, parity={**PARITY, "int8": 1.0}),
    )
    return read_checkpoint(path)
