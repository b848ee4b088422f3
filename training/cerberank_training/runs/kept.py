"""The name, languages and terms that an extended run keeps of the model that it had made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cerberank_models.checkpoint.card import terms_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The name, the terms and the languages of the model that is made."""

    name: str
    terms: str | None
    languages: tuple[str, ...] = ()
    """Those that the model states before its extension; empty for a new one."""
    kept: tuple[str, ...] | None = None
    """Those of the run's model before its extension, for people; None if it is not extended."""

    def said(self, version: str) -> str:
        """Suffix for a line: the name of the extended model and what it has kept; empty for a new one."""
        if self.kept is None:
            return ""
        return f"; extended: {', '.join([*(f'{each} kept' for each in self.kept), f'version {version}'])}"


def names_of(out: Path, *, asked: str | None, default: str, terms: str | None) -> Names:
    """The name and the terms that were asked for, else those of the model in `out`, else the default and none.

    The model's are those that it has now: `cerberank checkpoint card` may have changed them.
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
    """The run's checkpoint; where a call was killed that had put it aside, the one that was put aside last."""
    if (out / "checkpoint").is_dir():
        return out / "checkpoint"
    aside = [path for path in out.glob("checkpoint-*") if (path / "config.json").is_file()]
    return max(aside, key=lambda path: (path / "manifest.json").stat().st_mtime_ns, default=None)
