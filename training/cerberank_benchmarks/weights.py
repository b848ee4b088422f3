"""Generates the networks to measure; their weights are random, because speed does not depend on them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions

MAX_LENGTH = 128


def cross_encoder(settings: BenchmarkSettings, scratch: Path, *, labels: int = 1) -> Path:
    """The Hugging Face cross-encoder to compare with: the folder that the settings name, or a generated one."""
    if settings.model is not None:
        return settings.model
    folder = scratch / "cross-encoder"
    if folder.exists():
        return folder
    torch.manual_seed(settings.seed)
    config = transformers.BertConfig(
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.width // head_width(settings.width),
        intermediate_size=4 * settings.width,
        num_labels=labels,
        initializer_range=0.06,  # large enough that scores differ; otherwise equal results would prove nothing
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(settings.tokenizer or default_checkpoint() / "tokenizer.json"),
        model_max_length=512,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)
    # transformers 5 writes a class name that is unknown to the older version that infinity-emb needs.
    described = folder / "tokenizer_config.json"
    content = json.loads(described.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    described.write_text(json.dumps(content), encoding="utf-8")
    return folder


def imported(source: Path, scratch: Path) -> Checkpoint:
    """Import the cross-encoder `source` as a checkpoint in fp32 and int8."""
    folder = scratch / "imported"
    if not folder.exists():
        import_model(str(source), folder, ImportOptions(name="bench", max_length=MAX_LENGTH))
    return read_checkpoint(folder)


def head_width(width: int) -> int:
    """The width of an attention head: 64, as in BERT, for widths from 512 on; below that 32, as in all-MiniLM."""
    return 64 if width >= 512 else 32
