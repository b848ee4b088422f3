"""The name, languages and licence terms that an extended run keeps of its earlier model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cerberank_models.checkpoint.card import terms_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The name, licence terms and languages of the new model."""

    name: str
    terms: str | None
    languages: tuple[str, ...] = ()
    """The languages that the earlier model states; empty for a new run."""
    kept: tuple[str, ...] | None = None
    """The properties that are kept of the earlier model, in words; None if the run is not extended."""

    def said(self, version: str) -> str:
        """A suffix for a line with the kept properties and the version of an extended model; empty for a new run."""
        if self.kept is None:
            return ""
        return f"; extended: {', '.join([*(f'{each} kept' for each in self.kept), f'version {version}'])}"


def names_of(out: Path, *, asked: str | None, default: str, terms: str | None) -> Names:
    """The name and terms that the options give, else those of the model in `out`, else the default name and no terms.

    Those of the model are read from its files, because `cerberank checkpoint card` may have changed them.
    """
    there = _latest(out)
    if there is None:
        return Names(name=asked or default, terms=terms)
    config = json.loads((there / "config.json").read_bytes())
    name: str = config["name"]
    stated = terms_of((there / "README.md").read_text(encoding="utf-8"))
    languages = tuple(config.get("languages", ()))
    kept = [f"name {name}"] if asked is None and name != default else []
    kept += ["terms"] if terms is None and stated is not None else []
    return Names(name=asked or name, terms=stated if terms is None else terms, languages=languages, kept=tuple(kept))


def _latest(out: Path) -> Path | None:
    """The run's checkpoint. If a killed call had moved it aside, the one that was moved aside last."""
    if (out / "checkpoint").is_dir():
        return out / "checkpoint"
    aside = [path for path in out.glob("checkpoint-*") if (path / "config.json").is_file()]
    return max(aside, key=lambda path: (path / "manifest.json").stat().st_mtime_ns, default=None)
