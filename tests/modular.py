"""Modular cross-encoders as sentence-transformers saves them. Their weights are random: they rank nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from tests.tiny import save_cross_encoder
from torch import nn

WIDTH = 32


def ettin_head(width: int = WIDTH) -> list[nn.Module]:
    """Pooling by the first token, a hidden layer and its norm, one score: the head of the Ettin rerankers."""
    return [
        Pooling(width, "cls"),
        Dense(width, width, bias=False, activation_function=nn.GELU()),
        LayerNorm(width),
        Dense(width, 1, activation_function=nn.Identity(), module_output_name="scores"),
    ]


def mean_head(width: int = WIDTH) -> list[nn.Module]:
    """Every other module that is read: the mean, a narrower layer, a length of 1, two scores that are bent."""
    return [
        Pooling(width, "mean"),
        Dropout(0.5),
        Dense(width, 24),
        Normalize(),
        Dense(24, 2, activation_function=nn.SiLU(), module_output_name="scores"),
    ]


def save_modular(
    family: str,
    folder: Path,
    *,
    head: Callable[[], list[nn.Module]] = ettin_head,
    save: Callable[..., Path] = save_cross_encoder,
    **changes: object,
) -> Path:
    """A cross-encoder whose encoder is one of `family`, and whose head is these modules; weights show mistakes."""
    base = save(family, folder / "encoder", **changes) if save is save_cross_encoder else save(folder / "encoder")
    torch.manual_seed(1)
    described = transformers.AutoConfig.from_pretrained(base)
    transformers.AutoModel.from_config(described).save_pretrained(base)
    modules = head()
    for part in (part for module in modules for part in module.modules()):
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.3)
        if isinstance(part, nn.LayerNorm):
            nn.init.normal_(part.weight, 1.0, 0.3)
            nn.init.normal_(part.bias, std=0.3)
    CrossEncoder(modules=[Transformer(str(base)), *modules], device="cpu").save_pretrained(str(folder / "model"))
    return folder / "model"
