from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.tiny import random_ranker

from cerberank_models.transformer import TransformerConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_norm_epsilon": 0.0}, "layer_norm_epsilon"),
        ({"attention_heads": 5}, "multiple of attention_heads"),
        ({"family": "gpt"}, "family"),
        ({"surprise": 1}, "surprise"),
        ({"family": "modernbert"}, "modernbert, which needs it"),
        ({"pre_norm": {}}, "the family is bert"),
        ({"family": "modernbert", "pre_norm": {}, "attention_heads": 32}, "heads of an even size"),
    ],
)
def test_an_impossible_encoder_is_refused(changes: dict[str, object], message: str) -> None:
    """Sizes that do not fit together, unknown families and unknown keys raise an error that names the field."""
    with pytest.raises(ValidationError, match=message):
        TransformerConfig.model_validate({**random_ranker().config.transformer.model_dump(), **changes})
