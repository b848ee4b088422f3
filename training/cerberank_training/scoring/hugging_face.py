"""Any Hugging Face sequence classifier with one or two logits as a teacher, with its own tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cerberank_models.encoding import CHARACTERS_PER_TOKEN, Candidate, replace_surrogates
from cerberank_models.torch_backend import PRECISIONS
from cerberank_training.score_cache import TeacherIdentity
from cerberank_training.scoring.teacher import Pair, TeacherSpec, files_revision

FILES = [
    "config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
]
"""Weights, configuration and tokenizer, all that the scores depend on; never a pickle."""


def identity(spec: TeacherSpec) -> TeacherIdentity:
    """A hash of the model's files, the same wherever they lie, and how it is run."""
    folder = _folder(spec.source)
    return TeacherIdentity(
        name=spec.source,
        revision=files_revision([path for pattern in FILES for path in folder.glob(pattern)]),
        precision=f"torch/{spec.precision}",
        max_length=spec.max_length,
        context=spec.context,
    )


class HuggingFaceTeacher:
    """Scores in batches of like length."""

    def __init__(self, spec: TeacherSpec) -> None:
        """Load model and tokenizer, from the hub when `spec.source` is no folder.

        Raises ValueError for another number of logits than one or two, or for a precision that torch does not have.
        """
        if spec.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {spec.precision!r}")
        folder = _folder(spec.source)
        model: Any = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True)
        if model.config.num_labels not in (1, 2):
            raise ValueError(f"{spec.source} has {model.config.num_labels} labels; a teacher has one or two")
        self._device = torch.device(spec.device)
        self._model = model.to(device=self._device, dtype=PRECISIONS[spec.precision]).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._spec = spec

    @torch.inference_mode()
    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """`z1 - z0`; one logit is the difference itself."""
        encoded = self._encode(pairs)
        result = np.empty(len(pairs), dtype=np.float32)
        for rows in _batches([len(ids) for ids in encoded["input_ids"]], self._spec.batch_tokens):
            batch = {name: [values[row] for row in rows] for name, values in encoded.items()}
            inputs = self._tokenizer.pad(batch, return_tensors="pt").to(self._device)
            logits = self._model(**inputs).logits.float()
            difference = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
            result[rows] = difference.cpu().numpy()
        return result

    def _encode(self, pairs: Sequence[Pair]) -> dict[str, list[list[int]]]:
        questions = [self._text(question) for question, _ in pairs]
        answers = [self._answer(candidate) for _, candidate in pairs]
        length = self._spec.max_length
        return dict(self._tokenizer(questions, answers, truncation="longest_first", max_length=length))

    def _answer(self, candidate: Candidate) -> str:
        """The second text; the context, where it is read, stands behind a separator (SSP section 3)."""
        text = self._text(candidate.text)
        if not self._spec.context:
            return text
        context = self._text(" ".join(filter(None, (candidate.previous, candidate.next))))
        return f"{text}{self._tokenizer.sep_token}{context}"

    def _text(self, text: str) -> str:
        return replace_surrogates(text[: CHARACTERS_PER_TOKEN * self._spec.max_length])


def _folder(source: str) -> Path:
    folder = Path(source)
    return folder if folder.is_dir() else Path(snapshot_download(source, allow_patterns=FILES, ignore_patterns="*/*"))


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Rows of each padded batch, longest first: a batch that does not fit in memory fails at once."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        room = max(1, batch_tokens // max(1, lengths[order[start]]))
        yield order[start : start + room]
        start += room
