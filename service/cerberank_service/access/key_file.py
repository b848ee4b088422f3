"""The key file: the hashes of API keys, with their quotas. A key itself is shown only once, when it is created.

Format: `{"keys": [{"name", "sha256", "created", "requests_per_minute"?, "tokens_per_minute"?}]}`
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.store.checkpoint_store import NAME

PREFIX = "cbk-"
"""The beginning of every key, by which secret scanners recognise a key that was published by mistake."""
RANDOM_BYTES = 32


class KeysError(ValueError):
    """The key file is invalid, or a change to it is impossible; the message names the file."""


class Key(BaseModel):
    """The hash of one API key, with its quotas."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    created: str
    requests_per_minute: Annotated[int | None, Field(ge=1)] = None
    tokens_per_minute: Annotated[int | None, Field(ge=1)] = None

    @property
    def id(self) -> str:
        """The beginning of the hash. It stands for the key in metrics, which are readable without a key."""
        return id_of(self.sha256)


def id_of(sha256: str) -> str:
    """The id of a key, from its hash in hexadecimal."""
    return sha256[:8]


class KeyFile(BaseModel):
    """The content of the key file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    keys: tuple[Key, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> KeyFile:
        if len({key.name for key in self.keys}) < len(self.keys):
            raise ValueError("two keys have one name")
        return self


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of the file `path`. Raises KeysError, which names the field, or OSError if the file is unreadable."""
    try:
        return KeyFile.model_validate_json(path.read_bytes()).keys
    except ValidationError as error:
        first = error.errors()[0]
        raise KeysError(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from None


def add_key(
    path: Path, name: str, *, requests_per_minute: int | None = None, tokens_per_minute: int | None = None
) -> str:
    """Create a key, write its hash to the file, and return the key. The file need not exist. Raises KeysError."""
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    with _changing(path) as keys:
        if any(key.name == name for key in keys):
            raise KeysError(f"{path}: there is a key {name} already")
        try:
            key = Key(
                name=name,
                sha256=sha256(secret.encode()).hexdigest(),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            )
        except ValidationError as error:
            raise KeysError(f"{error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}") from None
        keys.append(key)
    return secret


def remove_key(path: Path, name: str) -> None:
    """Remove a key from the file. Raises KeysError when there is no such key."""
    with _changing(path) as keys:
        removed = [key for key in keys if key.name == name]
        if not removed:
            raise KeysError(f"{path}: there is no key {name}")
        keys.remove(removed[0])


@contextmanager
def _changing(path: Path) -> Iterator[list[Key]]:
    """Lock the file and yield its keys; changes to the list are written when the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        keys = list(read_keys(path)) if path.exists() else []
        yield keys
        write_bytes(path, KeyFile(keys=tuple(keys)).model_dump_json(indent=2, exclude_none=True).encode() + b"\n")
