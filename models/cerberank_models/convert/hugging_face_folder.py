"""Writes one head of a checkpoint as a Hugging Face folder, and compares the model in it with the checkpoint.

The folder has `config.json`, `model.safetensors`, `tokenizer.json`, `tokenizer_config.json` and `README.md`.
`AutoModelForSequenceClassification` and sentence-transformers' `CrossEncoder` load it without this package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from huggingface_hub import ModelCard, ModelCardData
from tokenizers import Tokenizer, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.calibration import SECTION as CALIBRATED
from cerberank_models.checkpoint.atomic import appearing_folder, write_bytes
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.model_card import RUN, without_section
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.checkpoint import ParityError, golden_scores
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.loading import quiet_transformers
from cerberank_models.convert.source_network import source_scores
from cerberank_models.convert.source_tokenizer import check_pairs
from cerberank_models.convert.to_hugging_face import check_exportable, classifier_of, hugging_face_config, one_head
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.tokens import special_tokens
from cerberank_models.transformer import PAIR_TEMPLATES, TransformerConfig

NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"pad": ("[PAD]", "<pad>"), "unk": ("[UNK]", "<unk>"), "mask": ("[MASK]", "<mask>")}
)
"""The names in vocabularies of special tokens that do not occur in pairs."""


def special_token_names(tokenizer: Tokenizer, shape: TransformerConfig) -> dict[str, str]:
    """The special tokens by role: `cls`, `sep` and `pad`, and `unk` and `mask` if the vocabulary has them.

    If positions are counted from the padding token's id, `pad` is the token with that id. Raises UnsupportedModelError
    for a vocabulary without a padding token.
    """
    template = PAIR_TEMPLATES[shape.family]
    special = {"cls": template.first, "sep": template.separator}
    for role, names in NAMES.items():
        token = next((name for name in names if tokenizer.token_to_id(name) is not None), None)
        if token is not None:
            special[role] = token
    if shape.position_offset:
        special["pad"] = tokenizer.id_to_token(shape.position_offset - 1) or ""
    if not special.get("pad"):
        raise UnsupportedModelError(f"the tokenizer has no padding token: none of {', '.join(NAMES['pad'])}")
    return special


def token_ids(tokenizer: Tokenizer, names: Mapping[str, str]) -> dict[str, int]:
    """The ids of special tokens by role."""
    ids = {role: tokenizer.token_to_id(name) for role, name in names.items()}
    return {role: number for role, number in ids.items() if number is not None}


def tokenizer_files(tokenizer: Tokenizer, shape: TransformerConfig, *, max_length: int) -> dict[str, bytes]:
    """The files `tokenizer.json` and `tokenizer_config.json` of a fast tokenizer that makes the ranker's pairs.

    Pairs have at most `max_length` tokens.
    """
    special = special_token_names(tokenizer, shape)
    template = PAIR_TEMPLATES[shape.family]
    first, separator = special_tokens(tokenizer, template)
    fast = Tokenizer.from_str(tokenizer.to_str())
    fast.no_truncation()
    fast.no_padding()
    second = min(1, shape.type_vocab_size - 1)
    joins = " ".join([f"{template.separator}:0"] + [f"{template.separator}:{second}"] * (template.between - 1))
    fast.post_processor = processors.TemplateProcessing(
        single=f"{template.first}:0 $A:0 {template.separator}:0",
        pair=f"{template.first}:0 $A:0 {joins} $B:{second} {template.separator}:{second}",
        special_tokens=[(template.first, first), (template.separator, separator)],
    )
    types = ["token_type_ids"] if shape.token_types and shape.type_vocab_size > 1 else []
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name for role, name in special.items()},
    }
    return {
        "tokenizer.json": fast.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode(),
    }


TAGS = ("cross-encoder", "text-ranking", "reranker", "cerberank")
SECTION = """
## As a Hugging Face model

`{model_class}` with one logit, written by `cerberank export --hugging-face` from {part} of the checkpoint
`{name}@{version}` ({architecture}). {left}The sigmoid of the logit is the score that Cerberank
gives, and sentence-transformers computes it:

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{place}")
scores = model.predict([("how tall is it?", "It is 330 metres tall."), ("how tall is it?", "It is in Paris.")])
```

Pairs have at most {length} tokens.{cut} Figures above that were measured with dropping,
with other heads or in another precision are not this model's.
"""
CUT = """ Longer ones lose the ends of their longest segments, as Hugging Face's tokenizers cut; the checkpoint
reads at most {question} tokens of the question and cuts the candidate, so that scores of longer pairs differ."""


def hugging_face_card(checkpoint: Checkpoint, *, head: int, model_class: str, place: str) -> str:
    """The model card for the checkpoint's `head` (counted from 1) as a `model_class` that users load from `place`.

    Terms and other metadata of the checkpoint's card are kept.
    """
    config = checkpoint.config
    text = (checkpoint.path / "README.md").read_text(encoding="utf-8")
    card = ModelCard(text) if text.startswith("---\n") else None
    data = card.data if card else ModelCardData()
    data["library_name"] = "sentence-transformers"
    data["pipeline_tag"] = "text-ranking"
    data["tags"] = list(dict.fromkeys([*(data.get("tags") or []), *TAGS]))
    if config.languages:
        data["language"] = list(config.languages)
    heads, encoding = config.architecture.heads, config.encoding
    rest = [f"the other {'head' if heads == 2 else 'heads'}"] if heads > 1 else []
    rest += ["the exits"] if config.exits else []
    rest += ["the first stage"] if config.first_stage else []
    left = " and ".join(rest)
    section = SECTION.format(
        model_class=model_class,
        part=f"head {head} of {heads}" if heads > 1 else "the head",
        name=config.name,
        version=checkpoint.manifest.version,
        architecture=config.architecture,
        left=f"{left[:1].upper()}{left[1:]} are left out. " if left else "",
        place=place,
        length=encoding.max_length,
        cut=CUT.format(question=encoding.question_length) if encoding.truncation == "last_first" else "",
    )
    body = without_section((card.text if card else text).strip("\n"), CALIBRATED)  # the written model gives raw scores
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n{section}"


SAME = 1e-5
"""The largest allowed difference of scores (probabilities) between the written model and the checkpoint."""


def export_hugging_face(checkpoint: Checkpoint, out: Path, *, head: int | None = None) -> None:
    """Write the checkpoint's `head` (counted from 1) to the folder `out` atomically.

    `head` may be None if the checkpoint has only one head and nothing else. Raises UnsupportedModelError for a ranker
    that is not a sequence classifier, ParityError if the written model tokenises or scores differently, and
    FileExistsError.
    """
    check_exportable(checkpoint.config, head)
    if out.exists():
        raise FileExistsError(f"{out} exists")
    ranker = one_head(load_ranker(checkpoint), head or 1)
    shape, length = ranker.config.body, checkpoint.config.encoding.max_length
    tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
    names = special_token_names(tokenizer, shape)
    configuration = hugging_face_config(ranker.config, token_ids(tokenizer, names))
    model = classifier_of(ranker, configuration)
    with appearing_folder(out) as folder:
        with quiet_transformers():
            model.save_pretrained(folder)
        for name, content in tokenizer_files(tokenizer, shape, max_length=length).items():
            write_bytes(folder / name, content)
        card = hugging_face_card(checkpoint, head=head or 1, model_class=type(model).__name__, place=out.name)
        write_bytes(folder / "README.md", card.encode())
        if RUN in checkpoint.manifest.files:
            write_bytes(folder / RUN, (checkpoint.path / RUN).read_bytes())
        check_written(folder, ranker, tokenizer)


def check_written(folder: Path, ranker: RankingNetwork, tokenizer: Tokenizer) -> None:
    """Raise an error unless the model in `folder` gives the golden texts the same tokens and scores as `ranker`.

    Pairs that are too long are cut as transformers cuts them.
    """
    shape, length = ranker.config.body, ranker.config.encoding.max_length
    encoder = PairEncoder(
        tokenizer,
        family=shape.family,
        config=EncodingConfig(max_length=length, question_length=length - 7, truncation="longest_first"),
        type_vocab_size=shape.type_vocab_size,
    )
    written = AutoTokenizer.from_pretrained(folder)
    check_pairs(written, encoder, GOLDEN_TEXTS, max_length=length)
    with quiet_transformers():
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    wanted = np.concatenate(golden_scores(ranker, encoder))
    got = np.concatenate(source_scores(model, written, GOLDEN_TEXTS, longest=length))
    difference = float(np.abs(wanted - got).max())
    if not difference <= SAME:
        raise ParityError(f"the Hugging Face model's scores differ by {difference:.2g}, more than {SAME:g}")
