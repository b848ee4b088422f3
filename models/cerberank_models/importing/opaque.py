"""How an opaque network reads pairs: the configuration of a sequence classifier of any family, from its own tokenizer.

In: what transformers knows of a model. Out: a ranker's configuration with a single stage.
"""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.hugging_face import transformer_config
from cerberank_models.transformer import OpaqueTransformer, PairTemplate

QUESTION, TEXT = "How tall is it?", "It is 330 metres tall."


def why_opaque(source: Any) -> str | None:
    """Why the network of a `transformers` configuration has no layers here; None where it has."""
    try:
        transformer_config(source)
    except UnsupportedModelError as error:
        return str(error)
    return None


def opaque_config(source: Any, tokenizer: Any, *, name: str, encoding: EncodingConfig) -> RankerConfig:
    """The ranker of a `transformers` configuration and tokenizer, whose pairs are cut as `encoding` says.

    Raises UnsupportedModelError for a model that does not say the size of its vocabulary, and for pairs that are not
    built as `PairTemplate` states.
    """
    vocabulary = getattr(source, "vocab_size", None)
    if not isinstance(vocabulary, int):
        raise UnsupportedModelError(
            f"the configuration of this {source.model_type} states no vocab_size: it reads no text"
        )
    layers = getattr(source, "num_hidden_layers", None) or 1
    types = tokenizer(QUESTION, TEXT).get("token_type_ids", [0])
    return RankerConfig(
        name=name,
        transformer=OpaqueTransformer(
            family="opaque",
            model_type=source.model_type,
            vocab_size=vocabulary,
            layers=layers,
            max_positions=encoding.max_length,
            type_vocab_size=1 + max(types),
        ),
        architecture=ArchitectureConfig(
            body_layers=layers, heads=0, head_layers=0, classifier_logits=2 if source.num_labels == 2 else 1
        ),
        exits=(ExitConfig(after=layers, pooling="first"),),
        encoding=encoding.model_copy(update={"template": pair_template(tokenizer)}),
    )


def pair_template(tokenizer: Any) -> PairTemplate:
    """The special tokens that a fast tokenizer of transformers puts around a question and a text.

    Raises UnsupportedModelError for other layouts than `first question separator ... text separator`.
    """
    plain: Tokenizer = tokenizer.backend_tokenizer
    question, text = (plain.encode(each, add_special_tokens=False).ids for each in (QUESTION, TEXT))
    pair = list(tokenizer(QUESTION, TEXT)["input_ids"])
    between = len(pair) - len(question) - len(text) - 2
    if between < 1 or pair != [pair[0], *question, *[pair[-1]] * between, *text, pair[-1]]:
        raise UnsupportedModelError(
            f"its tokenizer makes pairs such as {' '.join(tokenizer.convert_ids_to_tokens(pair))!r}, which is not a "
            "first token, the question, separators, the text and a separator"
        )
    first, separator = tokenizer.convert_ids_to_tokens([pair[0], pair[-1]])
    return PairTemplate(first=first, separator=separator, between=between)
