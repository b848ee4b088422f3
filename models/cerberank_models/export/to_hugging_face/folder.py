"""Writes a head of a checkpoint as a Hugging Face folder, and compares what is loaded from it with the checkpoint.

`config.json`, `model.safetensors`, `tokenizer.json`, `tokenizer_config.json` and `README.md`: what
`AutoModelForSequenceClassification` and sentence-transformers' `CrossEncoder` load without code of ours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.atomic import appearing_folder, write_bytes
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.export.checkpoint import ParityError
from cerberank_models.export.golden_texts import GOLDEN_TEXTS
from cerberank_models.export.to_hugging_face.card import hugging_face_card, place_of
from cerberank_models.export.to_hugging_face.configuration import hugging_face_config
from cerberank_models.export.to_hugging_face.one_head import check_exportable, one_head
from cerberank_models.export.to_hugging_face.tokenizer_files import special_token_names, token_ids, tokenizer_files
from cerberank_models.export.to_hugging_face.weights import classifier_of
from cerberank_models.importing.own_tokenizer import check_pairs
from cerberank_models.network.ranker import Ranker

RUN = "run.json"
"""What made the checkpoint, which its card names."""
SAME = 1e-5
"""The largest difference of scores (probabilities) between the written model and the checkpoint."""


def export_hugging_face(
    checkpoint: Checkpoint, out: Path, *, head: int | None = None, repository: str | None = None
) -> None:
    """Write `head` (from 1) of the checkpoint to the folder `out`, atomically; None is the only head of a plain one.

    `repository` is where on the hub the folder will be, which its card names. Raises UnsupportedModelError for what no
    sequence classifier is, ParityError when the written model tokenises or scores otherwise, FileExistsError.
    """
    check_exportable(checkpoint.config, head)
    if out.exists():
        raise FileExistsError(f"{out} exists")
    ranker = one_head(load_ranker(checkpoint), head or 1)
    shape, length = ranker.config.body, checkpoint.config.encoding.max_length
    tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
    names = special_token_names(tokenizer, shape)
    described = hugging_face_config(ranker.config, token_ids(tokenizer, names))
    model = classifier_of(ranker, described)
    with appearing_folder(out) as folder:
        model.save_pretrained(folder)
        for name, content in tokenizer_files(tokenizer, shape, max_length=length).items():
            write_bytes(folder / name, content)
        card = hugging_face_card(
            checkpoint, head=head or 1, model_class=type(model).__name__, place=place_of(out, repository)
        )
        write_bytes(folder / "README.md", card.encode())
        if RUN in checkpoint.manifest.files:
            write_bytes(folder / RUN, (checkpoint.path / RUN).read_bytes())
        check_written(folder, ranker, tokenizer)


def check_written(folder: Path, ranker: Ranker, tokenizer: Tokenizer) -> None:
    """Raise unless what transformers loads from `folder` gives the golden texts the tokens and scores of `ranker`.

    Both cut pairs that are too long as transformers does.
    """
    shape, length = ranker.config.body, ranker.config.encoding.max_length
    encoder = PairEncoder(
        tokenizer,
        family=shape.family,
        config=EncodingConfig(max_length=length, question_length=length - 7, truncation="longest_first"),
        type_vocab_size=shape.type_vocab_size,
    )
    own = AutoTokenizer.from_pretrained(folder)
    check_pairs(own, encoder, GOLDEN_TEXTS, max_length=length)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    got, wanted = [], []
    for question, texts in GOLDEN_TEXTS:
        pairs = encoder.encode(question, [Candidate(text=text) for text in texts])
        arrays = (torch.from_numpy(array) for array in (pairs.token_ids, pairs.type_ids, pairs.offsets))
        inputs = own(
            [question] * len(texts),
            list(texts),
            truncation="longest_first",
            max_length=length,
            padding=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            wanted.append(ranker(*arrays)[:, 0].sigmoid().numpy())
            got.append(model(**inputs).logits[:, 0].sigmoid().numpy())
    difference = float(np.abs(np.concatenate(wanted) - np.concatenate(got)).max())
    if not difference <= SAME:
        raise ParityError(f"the Hugging Face model's scores differ by {difference:.2g}, more than {SAME:g}")
