"""Twins of folders that TANDA's and CERBERUS's authors published: transformers' classifiers with random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tests.tiny import bert_tokenizer, cross_encoder, roberta_tokenizer
from torch import Tensor
from torch.nn import functional

OLD: dict[str, object] = {
    "finetuning_task": "asnq",
    "output_attentions": False,
    "output_hidden_states": False,
    "output_past": True,
    "pruned_heads": {},
    "torchscript": False,
    "use_bfloat16": False,
}
"""The keys that transformers of 2019 wrote beside the sizes."""
SIZES = (
    *("attention_probs_dropout_prob", "embedding_size", "hidden_act", "hidden_dropout_prob", "hidden_size"),
    *("initializer_range", "intermediate_size", "layer_norm_eps", "max_position_embeddings", "num_attention_heads"),
    *("num_hidden_layers", "type_vocab_size", "vocab_size"),
)

TOKENIZERS: dict[str, Any] = {
    "bert": transformers.BertTokenizer,
    "electra": transformers.BertTokenizer,
    "roberta": transformers.RobertaTokenizer,
}


class Twin:
    """A classifier of transformers with random weights, and the folder that 2019's `save_pretrained` made of it."""

    def __init__(self, family: str, **stated: object) -> None:
        """`stated` are further fields of config.json, such as `architectures`."""
        self.family = family
        self.model: Any = cross_encoder(family, max_position_embeddings=194 if family == "roberta" else 192)
        self.stated = stated

    def state(self) -> dict[str, Tensor]:
        """The state dict; RoBERTa's classifiers of 2019 had an unused pooler."""
        state: dict[str, Tensor] = dict(self.model.state_dict())
        if self.family == "roberta":
            width = self.model.config.hidden_size
            state |= {
                "roberta.pooler.dense.weight": torch.ones(width, width),
                "roberta.pooler.dense.bias": torch.ones(width),
            }
        return state

    def save(self, folder: Path, state: object = None) -> Path:
        """Write the folder as transformers did, with weights in PyTorch's format of before 1.6."""
        folder.mkdir(parents=True)
        torch.save(
            self.state() if state is None else state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False
        )
        sizes = {name: getattr(self.model.config, name) for name in SIZES if hasattr(self.model.config, name)}
        (folder / "config.json").write_text(json.dumps({**OLD, "num_labels": 2, **sizes, **self.stated}))
        bytewise = self.family == "roberta"
        vocabulary = (roberta_tokenizer() if bytewise else bert_tokenizer()).get_vocab()
        special = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
        if bytewise:
            special = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>"}
            special["mask"] = "<mask>"
            (folder / "vocab.json").write_text(json.dumps(vocabulary | {"<mask>": len(vocabulary)}))
            (folder / "merges.txt").write_text("#version: 0.2\n")
        else:
            (folder / "vocab.txt").write_text(
                "".join(f"{word}\n" for word in sorted(vocabulary, key=vocabulary.__getitem__))
            )
        named = {f"{role}_token": token for role, token in special.items()}
        (folder / "special_tokens_map.json").write_text(json.dumps(named))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": True, "init_inputs": [], "max_len": 190})
        )
        (folder / "added_tokens.json").write_text("{}")
        torch.save({"not": "weights"}, folder / "training_args.bin")
        return folder

    @torch.inference_mode()
    def scores(self, tokenizer: Any, question: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """The softmax's second column by transformers' layers, of pairs that the tokenizer cuts at 128 tokens."""
        core, head = getattr(self.model, self.family), self.model.classifier
        scores = []
        for text in texts:
            pair = tokenizer([(question, text)], return_tensors="pt", max_length=128, truncation=True)
            hidden = core.embeddings(input_ids=pair["input_ids"], token_type_ids=pair.get("token_type_ids"))
            hidden = core.embeddings_project(hidden) if hasattr(core, "embeddings_project") else hidden
            for layer in core.encoder.layer:
                hidden = layer(hidden)
            logits = head(torch.tanh(core.pooler.dense(hidden[:, 0])) if self.family == "bert" else hidden)
            scores.append(functional.softmax(logits, dim=1)[0, 1].item())
        return np.asarray(scores)
