"""The command `cerberank checkpoint card`, which changes a checkpoint's card, name, version or languages."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import read_terms, with_terms, with_title
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import is_name
from cerberank_models.commands.values import Names
from cerberank_models.language import CODE
from cerberank_models.output import say


def card(
    checkpoint: Path,
    /,
    *,
    terms: str | None = None,
    file: Path | None = None,
    name: str | None = None,
    version: str | None = None,
    language: Names | None = None,
) -> None:
    """Change the model card, the name, the version or the languages of a checkpoint, and update its manifest.

    Weights, graphs and golden questions are not changed. A version in a store is never changed: to push a changed
    checkpoint again, give it another version.

    Args:
        checkpoint: Checkpoint folder.
        terms: Licence and terms of the data, as text or as a file: the card's last section.
        file: New card, in Markdown.
        name: Name of the model in stores and services.
        version: Version in stores and services.
        language: Languages that the model is for, as codes of ISO 639-1 separated by commas; answers warn of texts in
            other languages.
    """
    edited = edit_card(checkpoint, terms=terms, file=file, name=name, version=version, languages=language)
    say(f"{checkpoint} is {edited.config.name}@{edited.manifest.version}")


def edit_card(
    path: Path,
    *,
    terms: str | None = None,
    file: Path | None = None,
    name: str | None = None,
    version: str | None = None,
    languages: Sequence[str] | None = None,
) -> Checkpoint:
    """Replace the checkpoint `path` by one with these changes; arguments that are None change nothing.

    `languages` are ISO 639-1 codes. The new folder is written beside `path` and then renamed. A process that is killed
    between the two renames leaves the old folder under a hidden name, which the next call restores. Raises ValueError
    for invalid names and codes, and if there is nothing to change.
    """
    if terms is None and file is None and name is None and version is None and languages is None:
        raise ValueError("give --terms, --file, --name, --version or --language: what to change")
    for option, value in (("--name", name), ("--version", version)):
        if value is not None and not is_name(value):
            raise ValueError(f"{option} {value!r} is not a name: letters, digits, '.', '_' and '-', at most 96")
    if languages is not None and (not languages or not all(CODE.fullmatch(code) for code in languages)):
        raise ValueError(f"--language {','.join(languages)!r}: codes of ISO 639-1 are two small letters, such as en,de")
    # A call that was killed between its two renames has left the checkpoint in `old`.
    path = path.resolve()
    new, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    if old.is_dir() and not path.exists():
        old.rename(path)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    checkpoint = read_checkpoint(path)
    card = (file or path / "README.md").read_text(encoding="utf-8")
    config = checkpoint.config
    if name is not None:
        card = with_title(card, config.name, name)
        config = config.model_copy(update={"name": name})
    if languages is not None:
        config = config.model_copy(update={"languages": tuple(languages)})
    if terms is not None:
        card = with_terms(card, read_terms(terms))
    revise_checkpoint(checkpoint, new, version=version or checkpoint.manifest.version, config=config, card=card)
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)
    return read_checkpoint(path)
