from __future__ import annotations

from typing import get_args

import pytest

from cerberank_models.convert.families import FAMILIES
from cerberank_models.network.bodies.registry import BODIES
from cerberank_models.transformer import PAIR_TEMPLATES, Family


@pytest.mark.parametrize("table", [BODIES, FAMILIES, PAIR_TEMPLATES])
def test_every_family_has_a_row(table: object) -> None:
    """A body, an import mapping and special tokens: a family that lacks one is named here and not when it is used."""
    assert set(table) == set(get_args(Family))  # type: ignore[call-overload]
