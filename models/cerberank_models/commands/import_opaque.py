"""Imports a cross-encoder of a family without layers in this package as one opaque stage, for `cerberank import`."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from cerberank_models.commands.import_options import Import
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.modules import ModularHead
from cerberank_models.convert.opaque import export_opaque, long_texts, opaque_config, opaque_encoder
from cerberank_models.convert.opaque_graph import OpaqueNetwork, export_network
from cerberank_models.convert.source_network import read_network, source_scores
from cerberank_models.convert.source_tokenizer import MOST_TOKENS, check_pairs, longest_pair, plain_tokenizer

CARD = """# {name}

Imported from the Hugging Face cross-encoder `{source}` (`{model_type}`) by `cerberank import` as one opaque stage:
its own forward, exported to ONNX. There are no exits, heads or weights: it is served by the onnx backend as it is, and
cannot be trained, cut or run by torch. Pairs of at most {length} tokens, cut as the model's own tokenizer cuts them.
Data, licence, intended use and figures are those of the source: see its model card.
"""


def import_opaque(model: Import, tokenizer: Any, head: ModularHead | None) -> None:
    """Write the checkpoint of a model as one stage, its exported network.

    `tokenizer` is its fast tokenizer of transformers, and `head` the head of a modular cross-encoder.

    Raises UnsupportedModelError for a network that cannot be read or exported, and ParityError for a graph whose scores
    differ from the model's.
    """
    source, configuration = model.source, model.configuration
    most = longest_pair(tokenizer, getattr(configuration, "max_position_embeddings", None) or MOST_TOKENS)
    model.check_length(most, f"tokens that {model.place} reads")
    encoding = model.encoding(most)
    config = opaque_config(configuration, tokenizer, name=model.name, encoding=encoding)
    config = config.model_copy(update={"languages": source.languages})
    plain = plain_tokenizer(tokenizer)
    check_pairs(tokenizer, opaque_encoder(config, plain), GOLDEN_TEXTS, max_length=encoding.max_length)

    # The graph has to reproduce the scores of the model's own network.
    pad = next(each for each in (configuration.pad_token_id, tokenizer.pad_token_id, 0) if each is not None)
    try:
        network = read_network(source, configuration, head)
    except OSError as error:
        raise UnsupportedModelError(f"{source.place}: its weights cannot be read: {error}") from error
    reads_types = "token_type_ids" in inspect.signature(network.forward).parameters
    network = OpaqueNetwork(network, pad=pad, reads_types=reads_types and config.transformer.type_vocab_size > 1)
    texts = (*GOLDEN_TEXTS, long_texts(encoding.max_length))
    export_opaque(
        partial(export_network, network, longest=encoding.max_length),
        config,
        plain,
        model.out,
        card=CARD.format(
            name=model.name,
            source=model.place,
            model_type=configuration.model_type,
            length=encoding.max_length,
        ),
        version=model.version,
        source=model.place,
        precisions=model.options.forms,
        expected=source_scores(network.network, tokenizer, texts, longest=encoding.max_length),
        files=source.run,
    )
