from __future__ import annotations

import argparse

import pytest

from cerberank_models.commands.ratios import one_or_all, ratios


def test_ratios_are_read_in_order() -> None:
    """One number, or one an exit; a single one stands for every exit, and none stays none."""
    assert ratios("0.3, 0,0.25") == (0.3, 0.0, 0.25)
    assert one_or_all(ratios("0.3")) == 0.3
    assert one_or_all(ratios("0.3,0.2")) == (0.3, 0.2)
    assert one_or_all(None) is None


@pytest.mark.parametrize("text", ["", "a", "0.3,", "1", "-0.1", "nan", "0.3;0.2"])
def test_what_is_no_ratio_is_refused_with_what_it_takes(text: str) -> None:
    """Argparse shows the message of this kind of error, and the text that was given."""
    with pytest.raises(argparse.ArgumentTypeError, match=r"at least 0 and below 1, such as 0\.3,0\.3") as caught:
        ratios(text)
    assert repr(text) in str(caught.value)
