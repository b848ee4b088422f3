"""Reads public ColBERTs, in the formats of sentence-transformers' MultiVectorEncoder and of PyLate, as text rankers.

In both libraries a text has one vector of length 1 for each token. The score of a pair is the sum, over the question's
tokens, of the largest similarity to a token of the document (MaxSim).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import load_weights, transformer_config
from cerberank_models.convert.loading import load_encoder
from cerberank_models.convert.modules import SENTENCE_TRANSFORMERS, TRANSFORMER, listed_modules, model_kind
from cerberank_models.convert.source import Source
from cerberank_models.convert.source_network import read_config
from cerberank_models.convert.source_tokenizer import read_tokenizer
from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.text_config import ColbertTokens, TextEncodingConfig, TextRankerConfig

FEWEST = 64
"""The most tokens of a question if the model does not state a limit."""
SPECIAL = 3
"""The number of special tokens of a text: the first token, the mark and the separator."""
PUNCTUATION = tuple("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
"""The tokens that PyLate skips in documents if a model does not state them."""


KINDS = ("MultiVectorEncoder", "ColBERT")
"""The classes of such models in sentence-transformers and in PyLate."""


def is_late_interaction(source: Source) -> bool:
    """True for a model of sentence-transformers' MultiVectorEncoder or of PyLate."""
    return model_kind(source) in KINDS


def document_length(source: Source) -> int | None:
    """The most tokens of a document that the model reads, without special tokens; None if it states none."""
    saved = [source.optional_json(name) or {} for name in (SENTENCE_TRANSFORMERS, TRANSFORMER)]
    length = next((each["document_length"] for each in saved if each.get("document_length")), None)
    return None if length is None else int(length) - SPECIAL


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of a model, which sentence-transformers keeps in the files of modules, and PyLate in one file."""

    question: str
    """The text before a question."""
    document: str
    length: int | None
    """The most tokens of a question, including special tokens."""
    expansion: Mapping[str, Any] | None
    """The rule by which questions are filled up: `strategy`, `length`, `attend`, `token`."""
    skipped: Sequence[str]


def late_interaction_encoder(model: Source, candidate_length: int) -> tuple[TextRanker, Tokenizer]:
    """The model as a text ranker. Raises UnsupportedModelError, which names the unsupported setting, and OSError."""
    source = model.place
    listed = listed_modules(model)
    modules = dict(listed)
    # Modules that would compute something else are refused by their names.
    if unknown := set(modules) - {"Transformer", "Dense", "MultiVectorMask", "Normalize"}:
        raise UnsupportedModelError(f"{source} has modules that are not supported: {', '.join(sorted(unknown))}")
    if not {"Transformer", "Dense"} <= set(modules):
        raise UnsupportedModelError(f"{source} has no projection of token vectors (module Dense)")
    if len(listed) > len(modules) or modules["Transformer"]:
        raise UnsupportedModelError(
            f"{source} has several projections, or its encoder in a folder of its own: {listed}"
        )
    # The libraries read the encoder's configuration and the tokenizer.
    settings = _settings(model, modules)
    transformer = transformer_config(read_config(model))
    opened = read_tokenizer(model, transformer.vocab_size)
    tokenizer = opened.backend_tokenizer
    projection = _projection(model, modules["Dense"])
    room = transformer.max_positions - transformer.position_offset
    colbert, question_length = _texts(source, settings, tokenizer, opened, room)
    ranker = TextRanker(
        TextRankerConfig(
            transformer=transformer,
            token_ranker="colbert",
            projection=len(projection),
            encoding=TextEncodingConfig(
                question_length=question_length,
                document_length=candidate_length,
                window=candidate_length,
                colbert=colbert,
            ),
        )
    )
    # The encoder's weights, and those of the projection.
    network = load_encoder(source, revision=model.commit or "main")
    load_weights(ranker, network.state_dict(), fresh_classifier=True)
    ranker.get_submodule("token_ranker.project").load_state_dict({"weight": projection})
    return ranker, tokenizer


def _settings(model: Source, modules: Mapping[str, str]) -> _Settings:
    source, saved = model.place, model.optional_json(SENTENCE_TRANSFORMERS)
    if saved["model_type"] == "ColBERT":  # PyLate
        length = int(saved.get("query_length") or 32)
        filled = {"strategy": "fixed", "length": length, "attend": saved.get("attend_to_expansion_tokens") or False}
        words = saved.get("skiplist_words")
        return _Settings(
            question=saved.get("query_prefix") or "",
            document=saved.get("document_prefix") or "",
            length=length,
            expansion=filled if saved.get("do_query_expansion", True) else None,
            skipped=PUNCTUATION if words is None else words,
        )
    if "Normalize" not in modules:
        raise UnsupportedModelError(f"{source} compares vectors that are not of length 1 (no module Normalize)")
    prompts = saved.get("prompts") or {}
    reads = model.optional_json(TRANSFORMER) or {}
    mask = model.optional_json(f"{modules['MultiVectorMask']}/config.json") if "MultiVectorMask" in modules else None
    mask = mask or {}
    if (mask.get("skiplist_tasks") or ["document"]) != ["document"] or mask.get("keep_only_token_ids"):
        raise UnsupportedModelError(f"{source} leaves tokens out by other rules than a skip list of documents: {mask}")
    return _Settings(
        question=prompts.get("query") or "",
        document=prompts.get("document") or "",
        length=reads.get("query_length"),
        expansion=reads.get("query_expansion"),
        skipped=mask.get("skiplist_words") or (),
    )


def _projection(model: Source, folder: str) -> torch.Tensor:
    """The weights `[P, D]` of the projection of token vectors. Raises UnsupportedModelError for other projections."""
    source, config = model.place, model.optional_json(f"{folder}/config.json") or {}
    activation = str(config.get("activation_function", "")).rpartition(".")[2]
    if config.get("bias") or activation != "Identity" or config.get("use_residual"):
        raise UnsupportedModelError(f"{source} projects token vectors by more than a matrix: {config}")
    path = model.file(f"{folder}/model.safetensors")
    if path is None:
        raise UnsupportedModelError(f"{source} has no {folder}/model.safetensors with the projection's weights")
    weights: torch.Tensor = load_file(path)["linear.weight"].float()
    return weights


def _texts(source: str, settings: _Settings, tokenizer: Tokenizer, named: Any, room: int) -> tuple[ColbertTokens, int]:
    """ColBERT's tokens, and the most tokens of a question without special tokens, for an encoder with `room` positions.

    `named` holds the tokenizer's special tokens by name.
    """
    marks = [_mark(source, tokenizer, text) for text in (settings.question, settings.document)]
    if marks[0] == marks[1]:
        raise UnsupportedModelError(f"{source} marks questions and documents alike, by {settings.question!r}")
    known = (tokenizer.token_to_id(word) for word in settings.skipped)
    skipped = tuple(sorted({number for number in known if number is not None}))
    expansion, fill, filled = settings.expansion, None, None
    length = min(settings.length or FEWEST + SPECIAL, room)
    if expansion is not None:
        fill = tokenizer.token_to_id(expansion.get("token") or str(named.mask_token))
        if fill is None or fill == named.sep_token_id:
            raise UnsupportedModelError(f"{source} fills questions with its separator, or with no token that it has")
        filled = int(expansion["length"]) - SPECIAL
        length = int(expansion["length"]) if expansion["strategy"] == "fixed" else max(length, expansion["length"])
    colbert = ColbertTokens(
        question_mark=marks[0],
        document_mark=marks[1],
        fill=fill,
        filled=None if filled == length - SPECIAL else filled,
        attends=bool(expansion and expansion.get("attend")),
        skipped=skipped,
    )
    return colbert, length - SPECIAL


def _mark(source: str, tokenizer: Tokenizer, text: str) -> int:
    """The id of the token before a question or a document. Raises UnsupportedModelError unless `text` is one token."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) != 1:
        raise UnsupportedModelError(
            f"{source} marks its texts by {text!r}, which is {len(ids)} tokens: a first stage reads models whose "
            "questions and documents have one token each that marks them"
        )
    return int(ids[0])
