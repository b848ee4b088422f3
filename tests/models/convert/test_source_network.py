"""Models that transformers cannot load, or would run foreign code for, are refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from tests.tiny import save_cross_encoder

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import find_source
from cerberank_models.convert.source_network import read_config, read_head, read_network


def test_code_of_a_repository_is_not_run(tmp_path: Path) -> None:
    """A model type that only the repository's code knows; an unknown one without code has transformers' own message."""
    folder = save_cross_encoder("bert", tmp_path / "model")
    described = json.loads((folder / "config.json").read_text()) | {"model_type": "brand-new"}
    (folder / "config.json").write_text(json.dumps(described | {"auto_map": {"AutoConfig": "code.Config"}}))
    (folder / "code.py").write_text("raise SystemExit('run')")
    with pytest.raises(UnsupportedModelError, match=r"model needs Python code of its repository"):
        read_config(find_source(str(folder)))
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="`brand-new`"):
        read_config(find_source(str(folder)))


def bert(folder: Path) -> Path:
    """An encoder without a head, with its tokenizer."""
    save_cross_encoder("bert", folder)
    described = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModel.from_config(described).save_pretrained(folder)
    return folder


def bi_encoder(folder: Path) -> None:
    SentenceTransformer(str(bert(folder / "bert")), device="cpu").save_pretrained(str(folder))


def old_bi_encoder(folder: Path) -> None:
    bi_encoder(folder)
    (folder / "config_sentence_transformers.json").unlink()


def multi_vector(folder: Path) -> None:
    MultiVectorEncoder(str(bert(folder / "bert")), device="cpu").save_pretrained(str(folder))


def decoder(kind: Any) -> Callable[[Path], None]:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.Qwen3Config(vocab_size=50, num_hidden_layers=1, head_dim=8, num_labels=1, **sizes)
    return lambda folder: kind(config).save_pretrained(folder)


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (bert, "is BertModel, without a classifier that ranks: `cerberank train teach"),
        (bi_encoder, "is a bi-encoder, .* `checkpoint first-stage`"),
        (old_bi_encoder, "is a bi-encoder"),
        (multi_vector, "is a multi-vector encoder"),
        (decoder(transformers.Qwen3ForCausalLM), r"is a decoder \(Qwen3ForCausalLM\)"),
        (decoder(transformers.Qwen3ForSequenceClassification), r"is a decoder \(Qwen3ForSequenceClassification\)"),
    ],
)
def test_a_model_that_is_not_a_cross_encoder_is_told_by_its_kind(
    tmp_path: Path, save: Callable[[Path], None], message: str
) -> None:
    """From the files beside its weights, as the libraries save them."""
    save(tmp_path / "model")
    source = find_source(str(tmp_path / "model"))
    with pytest.raises(UnsupportedModelError, match=message):
        read_head(source, read_config(source))


def test_a_cross_encoder_of_sentence_transformers_is_one(tmp_path: Path) -> None:
    """Whose modules are a Transformer alone."""
    CrossEncoder(str(save_cross_encoder("bert", tmp_path / "bert")), device="cpu").save_pretrained(str(tmp_path / "ce"))
    source = find_source(str(tmp_path / "ce"))
    read_head(source, read_config(source))


def test_damaged_and_missing_weights_are_refused(tmp_path: Path) -> None:
    """A file that ends early is named as such; without any file the error is the one of a missing file."""
    folder = save_cross_encoder("bert", tmp_path / "model")
    (folder / "model.safetensors").unlink()
    source = find_source(str(folder))
    with pytest.raises(OSError, match="model"):
        read_network(source, read_config(source))
    for content in (b"PK\x03\x04 it ends here", b"", b"version https://git-lfs.github.com/spec/v1\n"):
        (folder / "pytorch_model.bin").write_bytes(content)
        with pytest.raises((UnsupportedModelError, OSError), match=r"weights cannot be read|git-lfs|pytorch_model"):
            read_network(source, read_config(source))
