"""The results of a mining run that is not finished, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.bound import SETTINGS, Bound

LINES = "lines.jsonl"


def texts_digest(texts: Iterable[str]) -> str:
    """The SHA-256 of texts in order, and of where each begins."""
    digest = sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()


class Work:
    """A folder with the settings, and a line of JSON for each searched question; they are written in chunks."""

    def __init__(self, folder: Path, settings: Mapping[str, str], *, chunk: int) -> None:
        """Begin a run, or resume after the last complete chunk. Raises BoundError if the folder has other settings."""
        self._path = folder / LINES
        self._bound = Bound(folder, settings)
        self._bound.begin()
        self.done = self._keep_whole_chunks(chunk)
        """The number of questions that are done."""

    def add(self, records: Sequence[Any]) -> None:
        """Append a chunk: a record for each question, or None for a question without negatives."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))

    def records(self) -> Iterator[Any]:
        """All records, in order."""
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield json.loads(line)

    def remove(self) -> None:
        """Remove the folder with its content."""
        self._bound.finish()

    def given_up(self) -> str:
        """Remove the folder if it has no results. Otherwise return the end of a message that says that it is kept."""
        folder = self._path.parent
        if any(path.is_file() and path.name != SETTINGS and path.stat().st_size for path in folder.rglob("*")):
            return f"; {folder} is kept, and the same command resumes from it"
        self.remove()
        return ""

    def _keep_whole_chunks(self, chunk: int) -> int:
        if not self._path.is_file():
            return 0
        ends, position = [0], 0
        with self._path.open("r+b") as file:
            for line in file:
                position += len(line)
                if line.endswith(b"\n"):
                    ends.append(position)
            complete = (len(ends) - 1) // chunk * chunk
            file.truncate(ends[complete])
        return complete
