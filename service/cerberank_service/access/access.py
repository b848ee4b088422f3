"""Authentication by API keys with quotas; without a key file every request is accepted.

Each process counts quotas for itself. Requests and scrapes of the metrics check the file for changes, at most once a
second, so that a removed key stops working without a restart. While the file cannot be read, the keys stay as they are,
`cerberank_keys_stale` is 1, and each check tries to read it again.
"""

from __future__ import annotations

import hmac
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path

from cerberank_service.access.key_file import Key, KeysError, id_of, read_keys
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import KEY_EXHAUSTED, KEY_REQUESTS, KEY_TOKENS, KEYS_STALE

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
RawHeaders = list[tuple[bytes, bytes]]
SCHEME = b"bearer "


class Charge:
    """The tokens that a question has taken from a quota."""

    def __init__(self, quota: Bucket | None) -> None:
        """Start without any tokens taken; `quota` is None for a key without a quota of tokens."""
        self._quota = quota
        self.tokens = 0

    def add(self, tokens: int) -> None:
        """Take more tokens, even beyond the quota, because the question was already accepted."""
        self.tokens += tokens
        if self._quota is not None:
            self._quota.take(tokens)


class Caller:
    """An API key with the state of its quotas."""

    def __init__(self, key: Key, metrics: Metrics, clock: Callable[[], float]) -> None:
        """Start with full quotas."""
        self.key = key
        self._metrics = metrics
        self._requests = Bucket(key.requests_per_minute, clock) if key.requests_per_minute else None
        self._tokens = Bucket(key.tokens_per_minute, clock) if key.tokens_per_minute else None
        metrics.for_key(key.id)

    def enter(self) -> None:
        """Count a request. Raises ServiceError (429) when a quota is exhausted."""
        self._check({"requests": self._requests, "tokens": self._tokens})
        if self._requests is not None:
            self._requests.take(1)
        self._metrics[KEY_REQUESTS].labels(self.key.id).inc()

    @contextmanager
    def charging(self, tokens: int) -> Iterator[Charge]:
        """Take a question's tokens from the quota while the block answers it; the block may add tokens.

        If the block raises ServiceError, the tokens are returned, except those that the error counts. They are not
        returned if the client disconnects. Raises ServiceError (429) when earlier questions have exhausted the quota.
        """
        self._check({"tokens": self._tokens})
        charge = Charge(self._tokens)
        charge.add(tokens)
        try:
            yield charge
        except ServiceError as error:
            charge.add(-charge.tokens)
            self.charge_refused(error)
            raise
        self._metrics[KEY_TOKENS].labels(self.key.id).inc(charge.tokens)

    def _check(self, buckets: Mapping[str, Bucket | None]) -> None:
        """Raises ServiceError (429) with the longest wait among the buckets, unless every bucket holds a token."""
        waits = {name: bucket.wait() for name, bucket in buckets.items() if bucket is not None}
        if (wait := max(waits.values(), default=0.0)) > 0.0:
            self._metrics[KEY_EXHAUSTED].labels(self.key.id).inc()
            name, seconds = max(waits, key=lambda each: waits[each]), math.ceil(wait)
            raise ServiceError(Kind.EXHAUSTED, f"this key's {name} of the minute are used up", retry_after=seconds)

    def charge_refused(self, error: ServiceError) -> None:
        """Take the tokens of a question that was read and then refused for its content."""
        Charge(self._tokens).add(error.tokens)
        self._metrics[KEY_TOKENS].labels(self.key.id).inc(error.tokens)


def charge_tokens(caller: Caller | None, tokens: int) -> AbstractContextManager[Charge]:
    """See `Caller.charging`; without a key nothing is counted."""
    return nullcontext(Charge(None)) if caller is None else caller.charging(tokens)


class Access:
    """Authenticates requests. Used by one event loop only."""

    def __init__(self, path: Path | None, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the key file `path`. Raises KeysError when it is unusable, rather than accept everybody."""
        self._path = path
        self._metrics = metrics
        self._clock = clock
        self._callers: dict[bytes, Caller] = {}
        self._read_state: tuple[int, int, int] | None = None
        """The state of the file that was read last (`_state`)."""
        self._problem = ""
        """The reason that the file cannot be read; empty if it can."""
        self._checked_at = clock()
        if path is not None:
            try:
                self._read_state = _state(path)
                self._replace_keys(read_keys(path))
            except OSError as error:
                raise KeysError(f"CERBERANK_KEYS_FILE={path} cannot be read: {error.strerror or error}") from error

    def caller(self, headers: RawHeaders) -> Caller | None:
        """The caller of a request; None without a key file. Raises ServiceError (401)."""
        if self._path is None:
            return None
        self.check()
        secret = bearer(headers)
        if secret is None:
            raise ServiceError(Kind.UNAUTHORIZED, "this service needs an API key: Authorization: Bearer KEY")
        sha256_digest = digest(secret)
        caller = self._find(sha256_digest)
        if caller is None:
            # The id shows an operator whose removed key is still in use; a hash of random bits tells nothing else.
            raise ServiceError(
                Kind.UNAUTHORIZED,
                "this API key is not known: it is wrong, or it was removed",
                reason=f"an unknown API key, with the id {id_of(sha256_digest.hex())}",
            )
        return caller

    def _find(self, secret_digest: bytes) -> Caller | None:
        """Find a key by its digest. All keys are compared, so that the time taken does not depend on the result."""
        match = None
        for key_digest, caller in self._callers.items():
            if same(key_digest, secret_digest):
                match = caller
        return match

    def check(self) -> None:
        """Read the key file again if it has changed, and set `cerberank_keys_stale`; at most once a second."""
        path = self._path
        if path is None or self._clock() - self._checked_at < POLL_SECONDS:
            return
        self._checked_at = self._clock()
        try:
            state = _state(path)
            if state != self._read_state:
                self._replace_keys(read_keys(path))
                self._read_state = state
                logger.info("the key file was reloaded: %d keys", len(self._callers))
            problem = ""
        except (KeysError, OSError) as error:
            problem = str(error)
            if problem != self._problem:
                logger.error("the keys are left as they were, and a key that was removed still works: %s", error)
        self._problem = problem
        self._metrics[KEYS_STALE].set(bool(problem))

    def _replace_keys(self, keys: tuple[Key, ...]) -> None:
        """Replace the keys; unchanged keys keep the state of their quotas."""
        callers = {caller.key: caller for caller in self._callers.values()}
        self._callers = {
            bytes.fromhex(key.sha256): callers.get(key) or Caller(key, self._metrics, self._clock) for key in keys
        }


def _state(path: Path) -> tuple[int, int, int]:
    """The time, size and inode of a file, one of which changes with its content."""
    state = path.stat()
    return state.st_mtime_ns, state.st_size, state.st_ino


class Bucket:
    """A token bucket with the capacity of one minute.

    One question may overdraw it, because a single question may cost more than the capacity.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        """Start with a full bucket; `clock` returns seconds and is monotonic."""
        self.per_minute = per_minute
        self._clock = clock
        self._filled_at = clock()
        self._level = float(per_minute)

    def wait(self) -> float:
        """Seconds until the bucket holds at least one token; 0 if it holds one now."""
        self._fill()
        return max(0.0, (1.0 - self._level) * 60.0 / self.per_minute)

    def take(self, amount: int) -> None:
        """Take `amount` tokens; a negative amount returns tokens.

        The level may fall below zero: later requests then wait until the bucket is refilled.
        """
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.per_minute, self._level + (now - self._filled_at) * self.per_minute / 60.0)
        self._filled_at = now


def bearer(headers: RawHeaders) -> bytes | None:
    """The secret in an ASGI scope's headers (names in lower case); None unless there is exactly one such header."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1 or values[0][: len(SCHEME)].lower() != SCHEME:
        return None
    return values[0][len(SCHEME) :].strip() or None


def digest(secret: bytes) -> bytes:
    """SHA-256 of a secret. A fast hash suffices, because secrets are random and too long to guess."""
    return sha256(secret).digest()


def same(one: bytes, other: bytes) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(one, other)
