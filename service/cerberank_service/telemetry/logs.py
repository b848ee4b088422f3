"""Log lines as text or, with CERBERANK_LOG_FORMAT=json, as one JSON object per line.

Request id, version, schedule and trace are separate fields in both formats; times are in UTC, in the format of RFC
3339. Texts of requests are not logged, except for questions with CERBERANK_LOG_QUESTIONS.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter
from starlette.requests import HTTPConnection

from cerberank_models.output import printable
from cerberank_models.ranking.call import RankAnswer
from cerberank_service.errors import Refusal, ServiceError
from cerberank_service.settings import Settings

logger = logging.getLogger(__name__)

JSON_FIELDS = "{asctime}{levelname}{name}{message}"
NAMES = {"asctime": "time", "levelname": "level", "name": "logger"}
FIELDS = "fields"
"""The attribute of a log record that contains its fields."""
NOT_FIELDS = (*RESERVED_ATTRS, "color_message")
"""Attributes of a record that are not fields; the last one is uvicorn's message for terminals."""
PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)
"""Texts that are written without quotation marks."""
LONGEST_PATH = 200
PATIENCE_MS = 100
"""Milliseconds to wait for room in a pipe, so that a reader that is only slow loses nothing."""
MOST_NAMES = 200
"""Limit of logged field names for each dialect. Clients choose the names, and must not be able to flood the log."""
LONGEST_NAME = 64
REFUSAL_SECONDS = 60.0
"""Seconds between two lines about refused questions."""
UNRELATED_REASONS = ("deadline",)
"""Reasons of refusals that have another cause than the load: each has its line."""


class RFC3339(logging.Formatter):
    """Writes times such as `2026-11-22T10:43:22.123Z`."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class TextFormatter(RFC3339):
    """Writes the fields as `name=value` after the message; a record is one line, and its traceback is indented.

    Line breaks in a message are escaped. A message may contain the name of a file in a store, and such a name may
    contain a line break, followed by text that looks like another record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record with its fields at the end of the first line."""
        fields = getattr(record, FIELDS, {})
        record = logging.makeLogRecord(record.__dict__)
        record.msg = printable(record.getMessage())
        record.msg += "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
        record.args, record.exc_text = (), None
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        """Format a traceback with indented lines; its last lines are the exception's message, which is escaped too."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line)}" for line in lines)


def _quoted(value: object) -> str:
    """The value as JSON without blanks outside of strings, so that a client's text cannot look like another field.

    Texts of letters, digits and a few other characters are written without quotation marks. Non-ASCII letters are
    escaped only in texts with control characters.

    >>> _quoted("rank"), _quoted("x kind=internal"), _quoted([0.5, 0.0])
    ('rank', '"x kind=internal"', '[0.5,0.0]')
    """
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    readable = isinstance(value, str) and value.isprintable()
    return json.dumps(value, ensure_ascii=not readable, separators=(",", ":"))


class FlatJsonFormatter(JsonFormatter, RFC3339):
    """Writes the fields at the same level as time, level and message."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Move the fields to the top level."""
        fields = log_data.pop(FIELDS, {})
        return {**log_data, **fields}


class DroppingHandler(logging.StreamHandler[TextIO]):
    """Drops lines while nobody reads the pipe that it writes to.

    A write to a full pipe would block the event loop for as long as the reader hangs. A write of at most `PIPE_BUF`
    bytes to a pipe that has room never does.
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`. A stream that is not a file of the system, such as a string, is never full."""
        super().__init__(stream)
        self.dropped = 0
        """The number of lines that were dropped or cut."""
        self._full = self._cut = False
        self._descriptor: int | None = None
        self._room = select.poll()
        with suppress(OSError, ValueError):
            self._descriptor = stream.fileno()
            self._room.register(self._descriptor, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it or its rest. The first record that finds no room waits for it for a moment."""
        if self._descriptor is None:
            super().emit(record)
            return
        try:
            line = f"{self.format(record)}{self.terminator}".encode(errors="backslashreplace")
            rest = b"\n" + line if self._cut else line
            while rest:
                self._full = not self._room.poll(0 if self._full else PATIENCE_MS)
                if self._full:
                    self.dropped += 1
                    self._cut |= len(rest) < len(line)
                    return
                rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]
            self._cut = False
        except Exception:
            self.handleError(record)


def dropped_lines() -> int:
    """The number of log lines of this process that were dropped."""
    handlers = logging.getLogger().handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, DroppingHandler))


def configure_logs(settings: Settings) -> None:
    """Configure the process to log to standard error."""
    handler = DroppingHandler(sys.stderr)
    handler.setFormatter(
        FlatJsonFormatter(JSON_FIELDS, style="{", rename_fields=NAMES, reserved_attrs=NOT_FIELDS)
        if settings.log_format == "json"
        else TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    server = logging.getLogger("uvicorn.error")
    server.addFilter(_is_no_upgrade)
    if settings.log_level == "info":
        server.setLevel(logging.WARNING)  # `serve` says itself where it listens and why it ends


def _is_no_upgrade(record: logging.LogRecord) -> bool:
    """False for uvicorn's two warnings about clients that offer HTTP/2; such clients are answered in HTTP/1.1."""
    return not str(record.msg).startswith(("Unsupported upgrade request", "No supported WebSocket library"))


def request_fields(request: HTTPConnection) -> dict[str, str]:
    """The fields of a request: path, client address, and the name of the API key if there is one.

    Behind a proxy that CERBERANK_TRUSTED_PROXIES does not name, the address is that of the proxy.
    """
    fields = {"path": request.scope["path"][:LONGEST_PATH]}
    if request.client is not None:
        fields["client"] = request.client.host
    key: str | None = getattr(request.state, "key", None)
    return fields if key is None else fields | {"key": key}


def log_answer(
    answer: RankAnswer, request: Mapping[str, str], trace_id: str | None, question: str | None = None
) -> None:
    """Log an answer in one line, with the fields of its request (`request`), and with the question if it is given."""
    if not logger.isEnabledFor(logging.INFO):
        return
    timing = answer.timing
    fields = {
        "request_id": answer.request_id,
        **request,
        "model": answer.model,
        "version": answer.version,
        "drop_schedule": list(answer.drop_schedule),
        "lexical_ratio": answer.lexical_ratio,
        "complete": answer.complete,
        "candidates": len(answer.scores),
        "tokens": answer.tokens,
        "encode_ms": round(timing.encode, 3),
        "queue_ms": round(timing.queue, 3),
        "compute_ms": round(timing.compute, 3),
        "total_ms": round(timing.total, 3),
    }
    text = {} if question is None else {"question": question}
    logger.info("answered", extra={FIELDS: fields | text | _trace(trace_id)})


def log_embeddings(request: Mapping[str, str], trace_id: str | None, **answer: object) -> None:
    """Log an answer of embeddings in one line, with the fields of its request and of the answer."""
    logger.info("embedded", extra={FIELDS: {**request, **answer} | _trace(trace_id)})


def log_error(
    error: ServiceError,
    request_id: str,
    request: Mapping[str, str],
    trace_id: str | None,
    cause: BaseException | None,
    *,
    level: int,
) -> None:
    """Log an error in one line, with the fields of its request, its reason, and the traceback of `cause`.

    If the question was refused with 503, the details of the refusal are fields too.
    """
    fields = {"request_id": request_id, **request, "kind": error.kind.label, "status": error.kind.value}
    reason = {"reason": error.logged} if error.logged else {}
    refusal = {} if error.refusal is None else error.refusal.fields
    logger.log(level, "refused", exc_info=cause, extra={FIELDS: fields | reason | refusal | _trace(trace_id)})


def _trace(trace_id: str | None) -> dict[str, str]:
    return {} if trace_id is None else {"trace_id": trace_id}


class IgnoredFields:
    """Logs the name of each ignored field once for each dialect."""

    def __init__(self) -> None:
        """Start without any logged names."""
        self._logged = dict[str, set[str]]()

    def log(self, dialect: str, names: Iterable[str]) -> None:
        """Log new names among the ignored fields of one request. They come from a client and may be any text."""
        logged = self._logged.setdefault(dialect, set())
        for name in names:
            field = name[:LONGEST_NAME]
            if field not in logged and len(logged) < MOST_NAMES:
                logged.add(field)
                fields = {"dialect": dialect, "field": field}
                logger.warning("a field of other services has no effect here", extra={FIELDS: fields})


def _later(seconds: float, then: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, then)


class RefusalLog:
    """Logs questions that are refused for load: one line at once, then a line a minute with their number.

    Used by one event loop only.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], None] = _later) -> None:
        """`later` calls a function after some seconds."""
        self._later = later
        self._waiting = False
        self._counts: Counter[str] = Counter()

    def level_of(self, refusal: Refusal) -> int:
        """The level of the line of this refusal, which is counted if others have been logged within a minute."""
        if refusal.reason in UNRELATED_REASONS:
            return logging.INFO
        if not self._waiting:
            self._wait()
            return logging.WARNING
        self._counts[refusal.reason] += 1
        return logging.DEBUG

    def _wait(self) -> None:
        self._waiting = True
        self._later(REFUSAL_SECONDS, self._log_count)

    def _log_count(self) -> None:
        """Log the number of refusals of the last minute; without any, the next one is logged at once again."""
        self._waiting = False
        if self._counts:
            fields = {"refused": self._counts.total(), **self._counts}
            logger.warning("questions were refused within %g seconds", REFUSAL_SECONDS, extra={FIELDS: fields})
            self._counts.clear()
            self._wait()
