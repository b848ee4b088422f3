"""Imports a cross-encoder of a family without layers in this package as one opaque stage, for `cerberank import`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from cerberank_models.commands.import_options import Import
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.modules import ModularHead
from cerberank_models.convert.opaque import export_opaque, long_texts, opaque_config, opaque_encoder
from cerberank_models.convert.opaque_graph import OpaqueNetwork, adopt_graph, export_network
from cerberank_models.convert.source import Source
from cerberank_models.convert.source_network import read_network, source_scores
from cerberank_models.convert.source_tokenizer import MOST_TOKENS, check_pairs, longest_pair, plain_tokenizer

logger = logging.getLogger(__name__)

SHIPPED = ("onnx/model.onnx", "model.onnx")
"""The possible paths of the graph in a repository without weights."""
WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")
"""The names of files that hold weights, or that list such files."""
CARD = """# {name}

Imported from the Hugging Face cross-encoder `{source}` (`{model_type}`) by `cerberank import` as one opaque stage:
{graph}. There are no exits, heads or weights: it is served by the onnx backend as it is, and cannot be trained, cut or
run by torch. Pairs of at most {length} tokens, cut as the model's own tokenizer cuts them. Data, licence, intended use
and figures are those of the source: see its model card.
"""


def import_opaque(model: Import, tokenizer: Any, head: ModularHead | None) -> None:
    """Write the checkpoint of a model as one stage, from its exported network or from a graph that it ships.

    `tokenizer` is its fast tokenizer of transformers, and `head` the head of a modular cross-encoder. The option
    `graph` is the name of a file of the model to use instead of exporting the network. If the model has no weights, one
    of `SHIPPED` is used.

    Raises UnsupportedModelError for a network or graph that cannot be exported or read, and ParityError for a graph
    whose scores differ from the model's.
    """
    source, configuration, graph = model.source, model.configuration, model.options.graph
    most = longest_pair(tokenizer, getattr(configuration, "max_position_embeddings", None) or MOST_TOKENS)
    model.check_length(most, f"tokens that {model.place} reads")
    encoding = model.encoding(most)
    config = opaque_config(configuration, tokenizer, name=model.name, encoding=encoding)
    config = config.model_copy(update={"languages": source.languages})
    plain = plain_tokenizer(tokenizer)
    check_pairs(tokenizer, opaque_encoder(config, plain), GOLDEN_TEXTS, max_length=encoding.max_length)

    # The scores that the graph has to reproduce are those of the model's own network, if it has weights.
    pad = next(each for each in (configuration.pad_token_id, tokenizer.pad_token_id, 0) if each is not None)
    network = _network(source, configuration, head, pad=pad, reads_types=config.transformer.type_vocab_size > 1)
    expected = None
    if network is not None:
        texts = (*GOLDEN_TEXTS, long_texts(encoding.max_length))
        expected = source_scores(network.network, tokenizer, texts, longest=encoding.max_length)
    if network is not None and graph is None:
        write, how = partial(export_network, network, longest=encoding.max_length), "its own forward, exported to ONNX"
    else:
        file = _shipped(source, SHIPPED if graph is None else (graph,))
        write = partial(adopt_graph, file, labels=configuration.num_labels, pad=pad)
        how = f"the ONNX graph `{graph or file.name}` that it ships"
        if network is None:
            how += ", without weights to compare it with, so that the golden scores are the graph's own"
    export_opaque(
        write,
        config,
        plain,
        model.out,
        card=CARD.format(
            name=model.name,
            source=model.place,
            model_type=configuration.model_type,
            graph=how,
            length=encoding.max_length,
        ),
        version=model.version,
        source=model.place,
        precisions=model.options.forms,
        expected=expected,
        files=source.run,
    )


def _network(
    source: Source, configuration: Any, head: ModularHead | None, *, pad: int, reads_types: bool
) -> OpaqueNetwork | None:
    """The model with its weights; None if the repository has a graph but no weights."""
    try:
        network = read_network(source, configuration, head)
    except OSError as error:
        if _has_weights(source):
            raise UnsupportedModelError(f"{source.place}: its weights cannot be read: {error}") from error
        if _downloaded(source, SHIPPED) is None:
            raise UnsupportedModelError(f"{source.place} has neither weights nor {SHIPPED[0]}: {error}") from error
        logger.warning("%s has no weights: its ONNX graph is taken, with nothing to compare it with", source.place)
        return None
    takes_types = "token_type_ids" in inspect.signature(network.forward).parameters
    return OpaqueNetwork(network, pad=pad, reads_types=reads_types and takes_types)


def _has_weights(source: Source) -> bool:
    """True if the repository has a file of weights, or an index of such files, next to its configuration."""
    if source.commit is None:
        names = [item.name for item in source.folder.iterdir()]
    else:
        from huggingface_hub import HfApi  # noqa: PLC0415 - folders need no hub

        try:
            names = HfApi().list_repo_files(source.place, revision=source.commit)
        except OSError:  # offline: only the files in the cache
            names = [item.name for item in source.folder.iterdir()]
    return any("/" not in name and fnmatch(name, each) for name in names for each in WEIGHTS)


def _shipped(source: Source, names: Sequence[str]) -> Path:
    """The first file of `names` that the repository has. Raises UnsupportedModelError if it has none."""
    if (file := _downloaded(source, names)) is None:
        raise UnsupportedModelError(f"{source.place} has no {' or '.join(names)}")
    return file


def _downloaded(source: Source, names: Sequence[str]) -> Path | None:
    if source.commit is not None:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - folders need no hub

        # A graph above 2 GB has its weights in other files, whose names begin with the graph's name.
        snapshot_download(source.place, revision=source.commit, allow_patterns=[f"{name}*" for name in names])
    return next((source.folder / name for name in names if (source.folder / name).is_file()), None)
