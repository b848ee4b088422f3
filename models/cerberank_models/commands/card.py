"""The command `cerberank checkpoint card`, which changes a checkpoint's card, name, version or languages."""

from __future__ import annotations

import shutil
from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
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
    checkpoint again, give it another version. A call that was killed is completed or undone by the next one.

    Args:
        checkpoint: Checkpoint folder.
        terms: Licence and terms of the data, as text or as a file: the card's last section.
        file: New card, in Markdown.
        name: Name of the model in stores and services.
        version: Version in stores and services.
        language: Languages that the model is for, as codes of ISO 639-1 separated by commas; answers warn of texts in
            other languages.
    """
    if terms is None and file is None and name is None and version is None and language is None:
        raise ValueError("give --terms, --file, --name, --version or --language: what to change")
    for option, value in (("--name", name), ("--version", version)):
        if value is not None and not is_name(value):
            raise ValueError(f"{option} {value!r} is not a name: letters, digits, '.', '_' and '-', at most 96")
    if language is not None and (not language or not all(CODE.fullmatch(code) for code in language)):
        raise ValueError(f"--language {','.join(language)!r}: codes of ISO 639-1 are two small letters, such as en,de")
    # The new folder is written beside the old one. A call that was killed between its two renames has left the
    # checkpoint in `old`.
    path = checkpoint.resolve()
    new, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    if old.is_dir() and not path.exists():
        old.rename(path)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    read = read_checkpoint(path)
    text = (file or path / "README.md").read_text(encoding="utf-8")
    config = read.config
    if name is not None:
        text = with_title(text, config.name, name)
        config = config.model_copy(update={"name": name})
    if language is not None:
        config = config.model_copy(update={"languages": tuple(language)})
    if terms is not None:
        text = with_terms(text, read_terms(terms))
    revise_checkpoint(read, new, version=version or read.manifest.version, config=config, card=text)
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)
    say(f"{checkpoint} is {config.name}@{version or read.manifest.version}")
