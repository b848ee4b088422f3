"""A cache of pairs' scores by tenant, model, version, question and candidate; off by default.

Only candidates that reached the last stage are cached, with their scores of every stage, so that they take part in
every drop as if they had been run. Candidates that were read in windows are not cached: where a window ends depends
on the other candidates, which share the request's windows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from cerberank_models.backends.contract import Scores
from cerberank_models.checkpoint.store.contract import Reference
from cerberank_models.encoding import Candidate
from cerberank_service.call import RankCall
from cerberank_service.engine.known_scores import KnownScores


class ScoreCache:
    """An LRU cache. Thread-safe."""

    def __init__(self, entries: int) -> None:
        """`entries` is the number of pairs; 0 switches the cache off."""
        self._most = entries
        self._found: OrderedDict[bytes, tuple[Scores, Scores | None]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of cached pairs."""
        return len(self._found)

    def find(self, reference: Reference, call: RankCall, candidates: Sequence[Candidate]) -> KnownScores | None:
        """The cached scores of these of the call's candidates, with their positions; None when none is cached."""
        if not self._most:
            return None
        keys = _keys(reference, call, candidates)
        rows, found = [], []
        with self._lock:
            for row, key in enumerate(keys):
                if (entry := self._found.get(key)) is not None:
                    self._found.move_to_end(key)
                    rows.append(row)
                    found.append(entry)
        if not rows:
            return None
        heads = [entry[1] for entry in found if entry[1] is not None]
        return KnownScores(
            np.asarray(rows, dtype=np.int64),
            np.stack([entry[0] for entry in found]),
            np.stack(heads) if len(heads) == len(found) else None,
        )

    def keep(
        self, reference: Reference, call: RankCall, candidates: Sequence[Candidate], trace: Scores, heads: Scores | None
    ) -> None:
        """Cache the candidates whose `trace[n, stages]` is complete."""
        if not self._most:
            return
        rows = np.flatnonzero(~np.isnan(trace).any(axis=1)).tolist()
        keys = _keys(reference, call, [candidates[row] for row in rows])
        with self._lock:
            for row, key in zip(rows, keys, strict=True):
                self._found[key] = trace[row].copy(), None if heads is None else heads[row].copy()
                self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)


def _keys(reference: Reference, call: RankCall, candidates: Sequence[Candidate]) -> list[bytes]:
    """Digests instead of texts, because texts may be long and are private."""
    begun = blake2b(digest_size=16)
    reading = f"{call.windowing is not None} {call.most_tokens}"
    for part in (call.tenant, *reference, call.question, reading):
        _add(begun, part)
    keys = []
    for candidate in candidates:
        digest = begun.copy()
        for part in (candidate.text, candidate.previous, candidate.next):
            _add(digest, part)
        keys.append(digest.digest())
    return keys


def _add(digest: blake2b, text: str) -> None:
    """Add a text with its length, so that different sequences of texts cannot give the same bytes."""
    content = text.encode("utf-8", "surrogatepass")
    digest.update(len(content).to_bytes(8, "little"))
    digest.update(content)
