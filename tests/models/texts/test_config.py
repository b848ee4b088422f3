"""The config of a text ranker refuses shapes that no paper has and texts that do not fit."""

from __future__ import annotations

import pytest
from tests.text_rankers import ENCODING, MONO, NAMES, SHAPES, TWIN
from tests.tiny import hugging_face_config

from cerberank_models.importing.hugging_face import transformer_config
from cerberank_models.texts.config import TextEncodingConfig, TextRankerConfig

TRANSFORMER = transformer_config(hugging_face_config("bert"))


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_the_papers_shapes_survive_json(shape: dict[str, object]) -> None:
    """Written and read again they are equal."""
    config = TextRankerConfig(name="s", transformer=TRANSFORMER, encoding=ENCODING, **shape)
    assert TextRankerConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "first_ranker or token_ranker"),
        ({**MONO, "joint": False}, "needs joint"),
        ({**TWIN, "encoding": TextEncodingConfig(question_length=30, window=32)}, "are 65, the encoder has 64"),
    ],
)
def test_wrong_shapes_are_refused(changes: dict[str, object], message: str) -> None:
    """Each with a message that says why; 30 + 32 + three special tokens are one too many."""
    with pytest.raises(ValueError, match=message):
        TextRankerConfig.model_validate(
            {"name": "s", "transformer": TRANSFORMER, "encoding": TextEncodingConfig(window=16), **changes}
        )
