"""Twins of the checkpoint that CERBERUS's authors published: transformers' ELECTRA layers with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tests.tiny import hugging_face_config
from torch import Tensor
from torch.nn import functional

WIDTH = 128
"""Two of ELECTRA's attention heads of 64."""


@dataclass(frozen=True, slots=True)
class Twin:
    """k classifiers of transformers, of which the first has the body, and each the layers above it and a classifier."""

    models: Sequence[Any]
    body_layers: int

    def state(self) -> dict[str, Tensor]:
        """The state dict as the authors' code saves it, with the second copy of the encoder."""
        core = self.models[0].electra
        state = {name: value for name, value in core.state_dict().items() if name.startswith("embeddings")}
        state |= {f"core_base_model.{name}": value for name, value in core.state_dict().items()}
        state |= _named("cerberus_shared_encoder.layer", core.encoder.layer[: self.body_layers])
        for number, model in enumerate(self.models):
            state |= _named(f"cerberus_heads.{number}.layer", model.electra.encoder.layer[self.body_layers :])
            state |= _named(f"cerberus_heads.{number}", {"classifier": model.classifier}.items())
        return state

    def scores(self, tokenizer: Any, question: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """The mean over heads of the softmax's second column, of pairs that the tokenizer cuts at 128 tokens."""
        scores = []
        for text in texts:
            pair = tokenizer([(question, text)], return_tensors="pt", max_length=128, truncation=True)
            core = self.models[0].electra
            hidden = core.embeddings(input_ids=pair["input_ids"], token_type_ids=pair["token_type_ids"])
            hidden = core.embeddings_project(hidden) if hasattr(core, "embeddings_project") else hidden
            for layer in core.encoder.layer[: self.body_layers]:
                hidden = layer(hidden)
            heads = []
            for model in self.models:
                above = hidden
                for layer in model.electra.encoder.layer[self.body_layers :]:
                    above = layer(above)
                heads.append(functional.softmax(model.classifier(above), dim=1)[0, 1].item())
            scores.append(float(np.mean(heads)))
        return np.asarray(scores)


def _named(prefix: str, parts: Any) -> dict[str, Tensor]:
    """The tensors of modules, by their names or numbers."""
    pairs = enumerate(parts) if isinstance(parts, torch.nn.ModuleList) else parts
    return {f"{prefix}.{part}.{name}": value for part, module in pairs for name, value in module.state_dict().items()}


def twin(*, body_layers: int = 2, head_layers: int = 1, heads: int = 3, embedding_size: int = WIDTH) -> Twin:
    """A CERBERUS in which every weight is random, biases and norms too."""
    sizes: dict[str, Any] = {"hidden_size": WIDTH, "num_attention_heads": 2, "max_position_embeddings": 160}
    config = hugging_face_config(
        "electra",
        **sizes,
        num_hidden_layers=body_layers + head_layers,
        embedding_size=embedding_size,
        initializer_range=0.08,
    )
    torch.manual_seed(1)
    models = [transformers.ElectraForSequenceClassification(config).eval() for _ in range(heads)]
    with torch.no_grad():
        for model in models:
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape))
    return Twin(models, body_layers)


def save(state: object, folder: Path) -> Path:
    """Write `cerberus_model.pt` in a new folder."""
    folder.mkdir()
    torch.save(state, folder / "cerberus_model.pt")
    return folder
