"""Imports the checkpoint of CERBERUS's authors as a ranker with all of its heads, for `cerberank import`."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.commands.import_options import Import
from cerberank_models.convert.cerberus import LENGTH, TOKENIZER, read_cerberus
from cerberank_models.convert.checkpoint import (
    PARITY,
    Forms,
    check_differing,
    check_parity,
    export_checkpoint,
    golden_scores,
)
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.limits import check_source
from cerberank_models.convert.source import Source, SourceError, find_source
from cerberank_models.convert.source_tokenizer import check_pairs, plain_tokenizer, read_tokenizer
from cerberank_models.encoding import PairEncoder

CARD = """# {name}

Imported from the CERBERUS checkpoint `{source}` by `cerberank import`; the weights are unchanged. Architecture
{architecture}, the tokenizer of `{tokenizer}`, pairs of at most {length} tokens, whose longest text is cut first. Texts
that do not fit: windows {windows}. A score is the mean of the heads' probabilities. Data, licence, intended use and
figures are those of the source; the checkpoints that the authors of CERBERUS published are under CC BY-NC 4.0.
"""


def import_cerberus(model: Import) -> None:
    """Write the checkpoint of a CERBERUS, with its tokenizer (the option `tokenizer`, the folder's, or ELECTRA's).

    Raises UnsupportedModelError for tensors that do not fit and pairs that are read otherwise, and ParityError for
    scores that are not those of transformers' layers with the same weights.
    """
    options = model.options
    if options.opaque or options.context or options.prompt:
        raise ValueError(f"{model.place} is a CERBERUS: --opaque, --context and --prompt are for other models")
    weights = read_cerberus(model.source)
    configuration = weights.configuration
    tokens = _tokenizer_source(model)
    tokenizer = read_tokenizer(tokens, configuration.vocab_size, configuration)
    plain = plain_tokenizer(tokenizer)
    positions = configuration.max_position_embeddings
    model.check_length(positions, f"positions of {model.place}")
    # Pairs are cut as the authors cut them, unless an option or a request says otherwise.
    encoding = model.with_windows(model.encoding(min(LENGTH, positions)), default="off")
    config = weights.config(model.name, encoding)
    config = config.model_copy(update={"languages": model.source.languages})
    ranker = weights.load(config)
    # Tokens and scores must be those of transformers' tokenizer and layers.
    encoder = PairEncoder(plain, family="electra", config=encoding, type_vocab_size=configuration.type_vocab_size)
    check_pairs(tokenizer, encoder, GOLDEN_TEXTS, max_length=encoding.max_length)
    got = golden_scores(ranker, encoder)
    check_parity("imported", weights.scores(tokenizer, GOLDEN_TEXTS, longest=encoding.max_length), got, PARITY["fp32"])
    check_differing(model.place, got)
    export_checkpoint(
        ranker,
        plain,
        model.out,
        card=CARD.format(
            name=config.name,
            source=model.place,
            architecture=config.architecture,
            tokenizer=tokens.place,
            length=encoding.max_length,
            windows=encoding.windows,
        ),
        version=model.version,
        source=model.place,
        forms=Forms(precisions=model.options.forms, calibration=model.calibration),
        files=model.source.run,
    )


def _tokenizer_source(model: Import) -> Source:
    """The model whose tokenizer is read. Raises UnsupportedModelError if there is none."""
    if model.options.tokenizer is None and model.source.has_tokenizer:
        return model.source
    place = model.options.tokenizer or TOKENIZER
    # A tokenizer that was saved without its model has no config.json, which find_source asks for.
    alone = Source(place=place, folder=Path(place), commit=None)
    if alone.has_tokenizer:
        return alone
    try:
        source = find_source(place)
    except SourceError as error:
        raise UnsupportedModelError(
            f"{model.place}: its tokenizer cannot be read, unless --tokenizer names a folder or hub id with it: {error}"
        ) from error
    check_source(source)
    return source
