"""The import of a Hugging Face model that ranks, which becomes a checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from cerberank_models.checkpoint.store.checkpoint_store import check_model
from cerberank_models.commands.import_cerberus import import_cerberus
from cerberank_models.commands.import_decoder import import_decoder
from cerberank_models.commands.import_options import USUAL, Import, ImportOptions
from cerberank_models.convert.checkpoint import (
    PARITY,
    Forms,
    Questions,
    check_differing,
    check_parity,
    export_checkpoint,
    golden_scores,
)
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import load_weights, ranker_config, transformer_config
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.limits import check_source
from cerberank_models.convert.modules import SENTENCE_TRANSFORMERS, ModularHead
from cerberank_models.convert.opaque import why_opaque
from cerberank_models.convert.source import Source, find_source
from cerberank_models.convert.source_network import read_config, read_head, read_network, source_scores
from cerberank_models.convert.source_tokenizer import check_pairs, longest_pair, plain_tokenizer, read_tokenizer
from cerberank_models.encoding import PairEncoder
from cerberank_models.first_stage.attach import write_alone
from cerberank_models.first_stage.bi_encoders import read_hugging_face
from cerberank_models.first_stage.late_interaction import SPECIAL, document_length, is_late_interaction
from cerberank_models.network.ranking_network import RankingNetwork

logger = logging.getLogger(__name__)

CARD = """# {name}

Imported from the Hugging Face cross-encoder `{source}` by `cerberank import`; the weights are unchanged.
Architecture {architecture}, {stages} stage(s), pairs of at most {length} tokens. Data, licence, intended use and
figures are those of the source: see its model card. Ranges of the int8 form were measured on {calibration}.
"""


def import_model(source: str, out: Path, options: ImportOptions = USUAL, *, calibration: Questions = ()) -> None:
    """Import the model `source` as the checkpoint `out`, after checking that all weights and pairs are read correctly.

    The authors' CERBERUS becomes a ranker with all of its heads. A ColBERT becomes a first stage without stages of
    pairs. A model of an unknown family becomes one opaque stage (`import_opaque`), as does any model with `opaque`. A
    folder of `train teach` states the input of the teacher and its training data, and the checkpoint gets the same. The
    ranges of the int8 form are measured on `calibration`.

    Raises UnsupportedModelError for models that do not rank in one of these ways, SourceError if there is no model, and
    StoreError for a `name` that no model can have.
    """
    opened = find_source(source, options.revision)
    name = opened.name if options.name is None else check_model(options.name)
    check_source(opened)
    if options.tokenizer and not opened.is_cerberus:
        raise ValueError(f"--tokenizer is for a CERBERUS of its authors, and {source} has a tokenizer of its own")
    model = Import(
        source=opened,
        configuration=None if opened.is_cerberus else read_config(opened),
        out=out,
        name=name,
        options=options,
        calibration=calibration,
    )
    if opened.is_cerberus:
        import_cerberus(model)
    elif opened.decodes:
        import_decoder(model)
    elif is_late_interaction(opened) and not options.opaque:
        _import_late_interaction(model)
    else:
        _import_cross_encoder(model)


def _import_cross_encoder(model: Import) -> None:
    """Write the checkpoint of a cross-encoder: a ranker with its layers, or one opaque stage."""
    configuration = model.configuration
    head = read_head(model.source, configuration)
    if head is not None:
        configuration.num_labels = head.labels
    if configuration.num_labels not in (1, 2):
        raise UnsupportedModelError(
            f"{model.place} has {configuration.num_labels} labels; a cross-encoder has one or two"
        )
    check_prompt(model.source)
    tokenizer = read_tokenizer(model.source, model.vocabulary, configuration)
    if reason := "as asked for" if model.options.opaque else why_opaque(configuration):
        if model.calibration:
            raise ValueError("--int8-texts has no meaning for an opaque network: its int8 measures no ranges")
        logger.warning("%s becomes one opaque stage without exits and heads: %s", model.place, reason)
        from cerberank_models.commands.import_opaque import import_opaque  # noqa: PLC0415 - always needs onnx

        import_opaque(model, tokenizer, head)
    else:
        _import_layers(model, tokenizer, head)


def _import_layers(model: Import, tokenizer: Any, head: ModularHead | None) -> None:
    """Write the checkpoint of a model whose family has layers in this package; arguments are as of `import_opaque`.

    Raises UnsupportedModelError for pairs or weights that the ranker would read otherwise, and ParityError for scores
    that are not the model's own.
    """
    configuration = model.configuration
    transformer = transformer_config(configuration)
    positions = transformer.max_positions - transformer.position_offset
    model.check_length(positions, f"positions of {model.place}")
    encoding = model.encoding(longest_pair(tokenizer, positions))
    config = ranker_config(
        configuration, name=model.name, encoding=encoding, logits=configuration.num_labels, head=head
    )
    config = config.model_copy(update={"languages": model.source.languages})
    ranker = RankingNetwork(config).eval()
    network = read_network(model.source, configuration, head)
    load_weights(ranker, network.state_dict())
    pairs_alone = PairEncoder(
        plain_tokenizer(tokenizer),
        family=transformer.family,
        config=encoding.model_copy(update={"segments": 2}),
        type_vocab_size=transformer.type_vocab_size,
    )

    # Tokens and scores must be the model's own. With context, training defined the pairs, and no library reads them.
    got = golden_scores(ranker, pairs_alone)
    if encoding.segments == 2:
        check_pairs(tokenizer, pairs_alone, GOLDEN_TEXTS, max_length=encoding.max_length)
        wanted = source_scores(network, tokenizer, GOLDEN_TEXTS, longest=encoding.max_length)
        check_parity("imported", wanted, got, PARITY["fp32"])
    check_differing(model.place, got)
    questions = f"{len(model.calibration)} given questions" if model.calibration else "the golden texts alone"
    export_checkpoint(
        ranker,
        plain_tokenizer(tokenizer),
        model.out,
        card=CARD.format(
            name=config.name,
            source=model.place,
            architecture=config.architecture,
            stages=len(config.stages),
            length=encoding.max_length,
            calibration=questions,
        ),
        version=model.version,
        source=model.place,
        forms=Forms(precisions=model.options.forms, calibration=model.calibration),
        files=model.source.run,
    )


def _import_late_interaction(model: Import) -> None:
    """Write the checkpoint of a ColBERT as its only stage; the option `max_length` is about its candidates.

    Raises UnsupportedModelError for settings that a first stage does not support, and ParityError if a graph's results
    differ too much.
    """
    if model.options.windows:
        raise ValueError(f"--windows is for models that read pairs, and {model.place} reads candidates alone")
    transformer = transformer_config(model.configuration)
    room = transformer.max_positions - transformer.position_offset - SPECIAL
    model.check_length(room, f"tokens that {model.place} reads")
    longest = min(document_length(model.source) or room, room)
    checkpoint = write_alone(
        read_hugging_face(model.source, candidate_length=model.length(longest)),
        model.out,
        name=model.name,
        source=model.place,
        version=model.version,
        precisions=model.options.forms,
        languages=model.source.languages,
        calibration=model.calibration,
    )
    check_differing(model.place, [np.asarray(each.scores["fp32"]) for each in checkpoint.golden])


def check_prompt(source: Source) -> None:
    """Raise UnsupportedModelError for a model for which sentence-transformers adds a prompt before every question."""
    settings = source.optional_json(SENTENCE_TRANSFORMERS) or {}
    name = settings.get("default_prompt_name")
    if prompt := name and (settings.get("prompts") or {}).get(name):
        raise UnsupportedModelError(
            f"{source.place} reads the prompt {prompt!r} before every question ({SENTENCE_TRANSFORMERS}), which is not "
            "supported: its scores would not be its own"
        )
