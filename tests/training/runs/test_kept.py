"""The name and the terms of an extended run's model."""

from __future__ import annotations

import json
from pathlib import Path

from cerberank_models.checkpoint.card import with_terms
from cerberank_training.runs.kept import Names, names_of


def test_what_was_not_asked_for_is_as_the_model_has_it(tmp_path: Path) -> None:
    """A new run has the recipe's name; an extended one its model's name and terms, unless options say otherwise."""
    assert names_of(tmp_path, asked=None, default="tiny", terms=None) == Names(name="tiny", terms=None)
    assert names_of(tmp_path, asked="mine", default="tiny", terms="CC0").said("2") == ""
    there = tmp_path / "checkpoint"
    there.mkdir()
    (there / "config.json").write_text(json.dumps({"name": "mine"}))
    (there / "README.md").write_text(with_terms("# mine\n", "MIT"))
    kept = names_of(tmp_path, asked=None, default="tiny", terms=None)
    assert (kept.name, kept.terms) == ("mine", "MIT")
    assert kept.said("2") == "; extended: name mine kept, terms kept, version 2"
    other = names_of(tmp_path, asked="other", default="tiny", terms="CC0")
    assert (other.name, other.terms, other.said("2")) == ("other", "CC0", "; extended: version 2")
