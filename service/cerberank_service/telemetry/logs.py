"""Log lines as text or, with CERBERANK_LOG_FORMAT=json, as one JSON object per line.

Request id, version, schedule and trace are separate fields in both formats. Texts of requests are not logged, except
for questions with CERBERANK_LOG_QUESTIONS.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from cerberank_service.call import RankAnswer
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.settings import Settings

logger = logging.getLogger(__name__)

JSON_FIELDS = "{asctime}{levelname}{name}{message}"
NAMES = {"asctime": "time", "levelname": "level", "name": "logger"}
FIELDS = "fields"
"""The attribute of a log record that contains its fields."""


class TextFormatter(logging.Formatter):
    """Writes the fields as `name=value` after the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record with its fields at the end of the first line."""
        fields = getattr(record, FIELDS, {})
        if fields:
            record = logging.makeLogRecord(record.__dict__)
            record.msg = record.getMessage() + "".join(f" {name}={_in_a_line(value)}" for name, value in fields.items())
            record.args = ()
        return super().format(record)


def _in_a_line(value: object) -> object:
    """Escape a text with line breaks or control characters, because questions are untrusted input."""
    return repr(value) if isinstance(value, str) and not value.isprintable() else value


class FlatJsonFormatter(JsonFormatter):
    """Writes the fields on the same level as time, level and message."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Move the fields to the top level."""
        return {**log_data, **log_data.pop(FIELDS, {})}


def configure_logs(settings: Settings) -> None:
    """Configure the process to log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        FlatJsonFormatter(JSON_FIELDS, style="{", rename_fields=NAMES)
        if settings.log_format == "json"
        else TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])


def log_answer(answer: RankAnswer, trace_id: str | None, question: str | None = None) -> None:
    """Log an answer in one line, with the question when it is given."""
    if not logger.isEnabledFor(logging.INFO):
        return
    timing = answer.timing
    fields = {
        "request_id": answer.request_id,
        "model": answer.model,
        "version": answer.version,
        "drop_schedule": list(answer.drop_schedule),
        "complete": answer.complete,
        "candidates": len(answer.scores),
        "tokens": answer.tokens,
        "encode_ms": round(timing.encode, 3),
        "queue_ms": round(timing.queue, 3),
        "compute_ms": round(timing.compute, 3),
        "total_ms": round(timing.total, 3),
    }
    asked = {} if question is None else {"question": question}
    logger.info("answered", extra={FIELDS: fields | asked | _trace(trace_id)})


def log_error(error: ServiceError, request_id: str, trace_id: str | None, cause: BaseException | None) -> None:
    """Log an error in one line, with the traceback of `cause`; not its message, which may quote a request's text."""
    level = logging.ERROR if error.kind is Kind.INTERNAL else logging.INFO
    fields = {"request_id": request_id, "kind": error.kind.label, "status": error.kind.value}
    logger.log(level, "refused", exc_info=cause, extra={FIELDS: fields | _trace(trace_id)})


def _trace(trace_id: str | None) -> dict[str, str]:
    return {} if trace_id is None else {"trace_id": trace_id}
