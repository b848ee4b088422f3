"""Finds a model to import: a folder that `save_pretrained` wrote, or a model on the Hugging Face hub.

The result is the place from which transformers loads the model, and the identity of its content. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from httpx import InvalidURL

from cerberank_models.checkpoint.model_card import RUN
from cerberank_models.checkpoint.regular import SMALL, NotRegularError, file_digest, read_regular
from cerberank_models.checkpoint.store.checkpoint_store import name_of
from cerberank_models.connection import proxy_problem
from cerberank_models.language import CODE

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
CONFIG = "config.json"
CARD = "README.md"
CERBERUS = "cerberus_model.pt"
"""The weights of a CERBERUS, as its authors' code saves them, without a configuration (`convert/cerberus.py`)."""
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
"""The files from which transformers makes a tokenizer; without any of them it makes an empty one."""


class SourceError(ValueError):
    """There is no model to import at the given place; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An existing Hugging Face model, or a folder with the checkpoint of CERBERUS's authors."""

    place: str
    """The folder, or the id on the hub, as an argument of `from_pretrained`."""
    folder: Path
    """The folder, or the hub's snapshot in the local cache, which has only the files that were loaded so far."""
    commit: str | None
    """The commit on the hub; None for a folder."""

    @property
    def name(self) -> str:
        """The last part of `place`, as far as a model can be called so."""
        return name_of(Path(self.place).name if self.commit else self.folder.resolve().name)

    @property
    def decodes(self) -> bool:
        """True if the model's configuration is that of a causal language model. Raises SourceError."""
        configuration = self.optional_json(CONFIG)
        architectures = configuration.get("architectures") if isinstance(configuration, dict) else None
        return any(str(name).endswith("ForCausalLM") for name in architectures or ())

    @property
    def is_cerberus(self) -> bool:
        """True for a folder with the weights of a CERBERUS in its authors' format."""
        return self.commit is None and (self.folder / CERBERUS).is_file()

    @property
    def has_tokenizer(self) -> bool:
        """True if `folder` has a tokenizer's vocabulary; for a model on the hub, after its tokenizer was loaded."""
        return any((self.folder / name).is_file() for name in VOCABULARIES)

    def optional_json(self, name: str) -> Any:
        """The content of the model's JSON file `name`; None without such a file. Raises SourceError."""
        file = self.file(name)
        return None if file is None else _json(file)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the model card states, as ISO 639-1 codes.

        Empty if the card states none, or if one of them is not such a code, as "multilingual".
        """
        from huggingface_hub import metadata_load  # noqa: PLC0415 - importing it takes long
        from yaml import YAMLError  # noqa: PLC0415 - a dependency of huggingface_hub

        try:
            file = self.file(CARD)
            stated = ((metadata_load(file) if file else None) or {}).get("language")
        except (OSError, ValueError, YAMLError):
            return ()
        codes = stated if isinstance(stated, list) else [stated]
        valid = [code for code in codes if isinstance(code, str) and CODE.fullmatch(code)]
        return tuple(dict.fromkeys(valid)) if len(valid) == len(codes) else ()

    def file(self, name: str) -> Path | None:
        """The model's file `name`, after loading it from the hub if needed; None without such a file."""
        file = self.folder / name
        if self.commit is not None and not file.is_file():
            from huggingface_hub import hf_hub_download  # noqa: PLC0415 - folders need no hub
            from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

            try:
                file = Path(hf_hub_download(self.place, name, revision=self.commit))
            except EntryNotFoundError:
                return None
        return file if file.is_file() else None

    @property
    def run(self) -> dict[str, Path]:
        """The summary of the model's training run, which names its data, by its name; empty without one."""
        file = self.file(RUN)
        return {} if file is None else {RUN: file}

    def content(self) -> str:
        """The identity of the content: the commit, or the SHA-256 of a folder's files and their names."""
        if self.commit is not None:
            return self.commit
        digest = hashlib.sha256()
        for path in sorted(_files(self.folder)):
            name = path.relative_to(self.folder).as_posix()
            digest.update(f"{name}\0{file_digest(path)}\0".encode())
        return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """The regular files below `folder` that are not hidden. Links to folders are followed, each folder once."""
    seen: set[Path] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = Path(place).resolve()
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            yield from (path for name in names if not name.startswith(".") and (path := Path(place, name)).is_file())
        seen.add(real)


def find_source(model: str, revision: str | None = None) -> Source:
    """The model in the folder `model` if that exists, else the one with this id on the hub at `revision`.

    `revision` is a branch, tag or commit. From the hub only the configuration is loaded, by huggingface_hub with its
    cache, token (HF_TOKEN) and offline mode (HF_HUB_OFFLINE). Raises SourceError.
    """
    folder = Path(model)
    if model and folder.is_dir():
        if revision:
            raise SourceError(f"{model} is a folder, which has no revision {revision!r}")
        source = Source(place=model, folder=folder, commit=None)
        if source.is_cerberus:
            return source
        if any(folder.glob("*/*/manifest.json")) and not (folder / CONFIG).is_file():
            raise SourceError(f"{model} is a store of Cerberank checkpoints: set CERBERANK_STORE={model}")
        if not (folder / CONFIG).is_file():
            within = [each.parent for name in (CONFIG, CERBERUS) for each in sorted(folder.glob(f"*/{name}"))]
            instead = f"; did you mean {within[0]}?" if within else ""
            raise SourceError(
                f"{model} has no {CONFIG}: it is not a folder that transformers' save_pretrained wrote{instead}"
            )
    elif folder.is_file():
        raise SourceError(f"{model} is a file: unpack it (unzip, or tar -xf) and name the folder with the weights")
    else:
        source = _on_hub(model, revision)
    if _model_type(source.folder / CONFIG) == "cerberank":
        folder_of = model if source.commit is None else "FOLDER, after loading it from the hub"
        raise SourceError(f"{model} is a Cerberank checkpoint already: set CERBERANK_CHECKPOINT={folder_of}")
    return source


def _on_hub(model: str, revision: str | None) -> Source:
    if not HUB_ID.fullmatch(model):
        raise SourceError(f"{model}: there is no such folder, and it is not an id on the Hugging Face hub (OWNER/NAME)")
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - folders need no hub, and importing it takes long

    try:
        config = Path(hf_hub_download(model, CONFIG, revision=revision))
    except (ImportError, InvalidURL) as error:
        raise SourceError(f"{model} cannot be loaded from the hub: {proxy_problem(error)}") from error
    except (OSError, ValueError) as error:
        at = f" at revision {revision}" if revision else ""
        raise SourceError(
            f"{model}{at}: there is no such folder, and the hub did not give it: {_first_line(error)}"
        ) from error
    return Source(place=model, folder=config.parent, commit=config.parent.name)  # .../snapshots/<commit>/config.json


def _model_type(config: Path) -> object:
    configuration = _json(config)
    return configuration.get("model_type") if isinstance(configuration, dict) else None


def _json(file: Path) -> Any:
    try:
        return json.loads(read_regular(file, SMALL))
    except (NotRegularError, ValueError, RecursionError) as error:
        raise SourceError(f"{file} is not JSON that can be read: {error}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
