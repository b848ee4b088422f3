"""The networks of the systems that TRMD compares, before the first training step."""

from __future__ import annotations

from string import punctuation
from typing import Literal

from tokenizers import Tokenizer

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import initialise, load_weights, transformer_config
from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.text_config import ColbertTokens, TextEncodingConfig, TextRankerConfig
from cerberank_papers.pairwise.settings import System
from cerberank_training.learning.student_network import pretrained_encoder
from cerberank_training.runs.base import Base


def build_text_ranker(
    system: System,
    base: Base,
    *,
    name: str,
    encoding: TextEncodingConfig,
    seed: int,
    dropout: float,
    layers: int | None = None,
    mean: Literal["all", "text"] = "all",
    colbert_texts: bool = False,
) -> tuple[TextRanker, Tokenizer]:
    """The network of `system` and its tokenizer, from the encoder `base`.

    `layers` takes only the first layers of the encoder. `mean` applies to systems with TwinBERT's ranker, and
    `colbert_texts` to ColBERT's bi-encoder. Layers on top of the encoder start from random values. Raises
    UnsupportedModelError when the base does not fit.
    """
    encoder, tokenizer = pretrained_encoder(base, layers=layers), base.tokenizer().backend_tokenizer
    if colbert_texts and system.token_ranker == "colbert" and not system.joint:
        encoding = encoding.model_copy(update={"colbert": colbert_tokens(base.place, tokenizer)})
    config = TextRankerConfig(
        name=name,
        transformer=transformer_config(encoder.config),
        joint=system.joint,
        first_ranker=system.first_ranker,
        token_ranker=system.token_ranker,
        mean=mean if system.token_ranker == "twin" else "all",
        encoding=encoding,
    )
    ranker = TextRanker(config, dropout=dropout)
    load_weights(ranker, encoder.state_dict(), fresh_classifier=True)
    for index, part in enumerate((ranker.first_ranker, ranker.token_ranker)):
        if part is not None:
            initialise(part, seed=seed + index)
    return ranker, tokenizer


def colbert_tokens(base: str, tokenizer: Tokenizer) -> ColbertTokens:
    """ColBERT's special tokens in BERT's vocabulary, as the released code of ColBERT and TRMD chooses them.

    Raises UnsupportedModelError for a vocabulary without them.
    """
    ids = {token: tokenizer.token_to_id(token) for token in ("[unused0]", "[unused1]", "[MASK]")}
    if lacking := [token for token, number in ids.items() if number is None]:
        raise UnsupportedModelError(f"--colbert-texts: the tokenizer of {base} has no {', '.join(lacking)}")
    question, document, fill = ids.values()
    symbols = (tokenizer.token_to_id(symbol) for symbol in punctuation)
    skipped = tuple(sorted(number for number in symbols if number is not None))
    return ColbertTokens(question_mark=question, document_mark=document, fill=fill, skipped=skipped)
