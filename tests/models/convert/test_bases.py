"""The start of training is read from a configuration, before weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import hugging_face_config, save_cross_encoder
from transformers import AutoModel

from cerberank_models.convert.bases import is_checkpoint, open_base, open_teacher_base
from cerberank_models.convert.families import UnsupportedModelError


@pytest.mark.parametrize(
    ("labels", "kind", "scores"),
    [
        (1, "a cross-encoder of one logit", True),
        (2, "a cross-encoder of two logits", True),
        (3, "a classifier into 3 labels", False),
    ],
)
def test_a_classifier_is_told_by_its_labels(labels: int, kind: str, scores: bool, tmp_path: Path) -> None:
    """One and two labels give a score."""
    base = open_base(str(save_cross_encoder("bert", tmp_path, num_labels=labels)))
    assert (base.kind, base.classifies, base.is_cross_encoder) == (kind, True, scores)


def test_an_encoder_is_none(tmp_path: Path) -> None:
    """Its configuration may state two labels, which transformers writes for every model."""
    AutoModel.from_config(hugging_face_config("bert")).save_pretrained(tmp_path)
    base = open_base(str(tmp_path))
    assert (base.kind, base.is_cross_encoder) == ("an encoder", False)


def test_a_configuration_of_no_known_model_is_refused(tmp_path: Path) -> None:
    """One line, with the folder."""
    (tmp_path / "config.json").write_text('{"model_type": "none-such"}')
    with pytest.raises(UnsupportedModelError, match="none-such") as caught:
        open_base(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(caught.value)


def test_a_checkpoint_is_no_base_of_a_teacher(tiny_checkpoint: Path) -> None:
    """The message names both ways on."""
    assert is_checkpoint(str(tiny_checkpoint))
    with pytest.raises(UnsupportedModelError, match=r"distil --base .* export .* OUT --hugging-face"):
        open_teacher_base(str(tiny_checkpoint))
