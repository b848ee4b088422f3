"""Gives a Hugging Face model a token type of its own for every segment of its input (SSP appendix C)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from cerberank_models.config import NewTypes
from cerberank_models.convert.families import UnsupportedModelError


def grow_token_types(model: Any, types: int, *, new: NewTypes, seed: int) -> None:
    """Enlarge a model's table of token types to at least `types` rows in place, and update `model.config`.

    `model` is a transformers model whose base model has `embeddings.token_type_embeddings`. A table with enough rows is
    not changed. `new` says how rows are added:

    - `fresh`: new rows are drawn from N(0, initializer_range^2) by `seed`;
    - `copied`: new rows are copies of the last row, so that the model's outputs do not change;
    - `anew`: all rows are drawn, including the old ones (SSP appendix C).

    Raises UnsupportedModelError for a model without such a table.
    """
    embeddings = getattr(model.base_model, "embeddings", None)
    old = getattr(embeddings, "token_type_embeddings", None)
    if not isinstance(embeddings, nn.Module) or not isinstance(old, nn.Embedding):
        raise UnsupportedModelError(f"{type(model).__name__} has no table of token types")
    have, width = old.weight.shape
    if have >= types:
        return
    unchanged = old.weight.detach()[: 0 if new == "anew" else have]
    rows = old.weight.detach()[-1:].repeat(types - len(unchanged), 1)
    if new != "copied":
        noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
        rows = (model.config.initializer_range * noise).to(rows)
    table = nn.Embedding(types, width, device=old.weight.device, dtype=old.weight.dtype)
    with torch.no_grad():
        table.weight.copy_(torch.cat([unchanged, rows]))
    embeddings.token_type_embeddings = table
    model.config.type_vocab_size = types
