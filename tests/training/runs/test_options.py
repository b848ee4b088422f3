"""Errors by the names of the options."""

from __future__ import annotations

import pytest

from cerberank_models.text_config import TextEncodingConfig
from cerberank_training.runs.options import named_options


def test_a_setting_becomes_its_option() -> None:
    """Pydantic's errors in one line, our own with the option's name; others as they are."""
    said = r"^--document-length Input should be greater than or equal to 1, not 0$"
    with pytest.raises(ValueError, match=said), named_options({"document_length"}):
        TextEncodingConfig(document_length=0)
    for message, said in (("max_length must grow", "--max-length must grow"), ("no field", "no field")):
        with pytest.raises(ValueError, match=f"^{said}$"), named_options({"max_length"}):
            raise ValueError(message)
