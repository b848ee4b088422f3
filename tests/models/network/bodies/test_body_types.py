from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from cerberank_models.convert.decoders import MAPPINGS
from cerberank_models.convert.families import FAMILIES
from cerberank_models.network.bodies.body_types import BODIES
from cerberank_models.transformer import DECODERS, PAIR_TEMPLATES, Family


@pytest.mark.parametrize(
    ("table", "families"),
    [
        (BODIES, set(get_args(Family))),
        (FAMILIES, set(get_args(Family)) - set(DECODERS)),
        (PAIR_TEMPLATES, set(get_args(Family)) - set(DECODERS)),
        (MAPPINGS, set(DECODERS)),
    ],
)
def test_every_family_has_a_row(table: Mapping[Family, object], families: set[Family]) -> None:
    """A body, an import mapping and special tokens: a family that lacks one is named here and not when it is used."""
    assert set(table) == families
