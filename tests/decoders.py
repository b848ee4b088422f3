"""Decoders that rerank, as repositories hold them: Qwen's tokenizer in small, and random weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from cerberank_models.config import EncodingConfig, RankerConfig
from cerberank_models.convert.decoders import decoder_config
from cerberank_models.convert.from_hugging_face import initialise
from cerberank_models.convert.prompts import PROMPTS
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import PromptTemplate

PROMPT = PromptTemplate(tail=("?",), yes="yes", no="no")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The places where Qwen's tokenizer cuts texts before it looks for tokens: a line end belongs to the sign before it."""
TEXTS = ["how tall is the tower? it was built in paris.\n", "yes no <think>\n\n</think>\n\n ?\n .\n", *["Yes"] * 9] * 9


@cache
def qwen_tokenizer() -> Tokenizer:
    """Byte-level BPE whose merges are learnt from the prompts, so that these are short."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    pieces = [text for known in PROMPTS.values() for text in (*known.prompt.head, *known.prompt.tail)]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*pieces, *TEXTS], trainer)
    return tokenizer


def save_decoder(folder: Path, *, family: str = "qwen3", **changes: object) -> Path:
    """Two layers of a Qwen2 or Qwen3 whose heads share keys, with weights large enough that mistakes show."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(decoder_shape(family, **changes))
    for name, value in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(value, 1.0 if "norm" in name else 0.0, 0.3)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=qwen_tokenizer(), model_max_length=512, pad_token="<|endoftext|>"
    ).save_pretrained(folder)
    return folder


def decoder_shape(family: str, **changes: object) -> transformers.PretrainedConfig:
    shape = {
        "vocab_size": 620,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16 if family == "qwen3" else 8,
        "intermediate_size": 48,
        "max_position_embeddings": 1024,
        "initializer_range": 0.3,
        "tie_word_embeddings": family == "qwen3",
        "pad_token_id": 0,
    }
    kinds = {"qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}
    return kinds[family](**(shape | changes))


def decoder_of(*, exits: tuple[int, ...] = ()) -> RankingNetwork:
    """A network of two layers with random weights, and `exits` after these layers."""
    config = decoder_config(decoder_shape("qwen3"), name="random-decoder", encoding=EncodingConfig(prompt=PROMPT))
    described = {**config.model_dump(), "exits": [{"after": after, "pooling": "last"} for after in exits]}
    torch.manual_seed(0)
    ranker = RankingNetwork(RankerConfig.model_validate(described))
    initialise(ranker, seed=0, deviation=0.3)
    return ranker.eval()


def last_logits(folder: Path, texts: list[list[int]], words: list[str], *, left: bool = True) -> NDArray[np.float64]:
    """Transformers' logits of the words as the next token of each text's token ids `[n, words]`, in a padded batch."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    longest = max(map(len, texts))
    pads = [[0] * (longest - len(ids)) for ids in texts]
    ids = torch.tensor([pad + own if left else own + pad for pad, own in zip(pads, texts, strict=True)])
    ones = [[1] * len(own) for own in texts]
    mask = torch.tensor([pad + own if left else own + pad for pad, own in zip(pads, ones, strict=True)])
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, position_ids=places).logits
    ends = torch.full((len(texts),), longest - 1) if left else mask.sum(dim=1) - 1
    columns = [qwen_tokenizer().token_to_id(word) for word in words]
    return np.asarray(logits[torch.arange(len(texts)), ends][:, columns].double().numpy())
