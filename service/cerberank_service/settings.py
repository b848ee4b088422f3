"""Every setting of the service, each an environment variable `CERBERANK_<NAME>`.

`python -m cerberank_service.settings` prints the table that stands in the README.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class SettingsError(ValueError):
    """A variable has a value that cannot be used; the message names it."""


class Settings(BaseSettings):
    """Read once at start-up; nothing else reads the environment."""

    model_config = SettingsConfigDict(env_prefix="CERBERANK_", frozen=True, extra="ignore")

    checkpoint: Annotated[
        Path | None, Field(description="Checkpoint folder to serve; empty serves the bundled `cerberank-mini`.")
    ] = None
    aliases: Annotated[
        str,
        Field(
            description="Further model names to answer to, comma-separated, such as `rerank-v3.5` for Cohere clients."
        ),
    ] = ""
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8000
    backend: Annotated[
        Literal["onnx", "torch"], Field(description="What runs the model: `onnx`, or `torch` (needs the extra).")
    ] = "onnx"
    precision: Annotated[str, Field(description="`int8` or `fp32` with onnx; `fp32`, `bf16` or `fp16` with torch.")] = (
        "int8"
    )
    device: Annotated[str, Field(description="`cpu` or `cuda`.")] = "cpu"
    threads: Annotated[
        int, Field(ge=0, description="Threads of the model; 0 takes the processors that this process may use.")
    ] = 0
    encode_workers: Annotated[int, Field(ge=1, le=64, description="Threads that parse, tokenise and render.")] = 2
    step_tokens: Annotated[
        int, Field(ge=128, description="Tokens of one engine step; small questions get in between two steps.")
    ] = 8192
    max_candidates: Annotated[int, Field(ge=1, le=100_000, description="Most candidates of one request.")] = 10_000
    max_body_bytes: Annotated[int, Field(ge=1024, description="Largest request body in bytes.")] = 16 * 1024 * 1024
    max_queued_tokens: Annotated[
        int, Field(ge=1, description="Backlog above which requests are refused with 503; an idle service takes any.")
    ] = 4_000_000
    state_bytes: Annotated[
        int,
        Field(ge=0, description="Bytes of hidden states that may wait between steps; beyond, they are run again."),
    ] = 512 * 1024 * 1024
    latency_target_ms: Annotated[
        float, Field(ge=0, description="Choose each question's drop schedule to answer within this; 0 never does.")
    ] = 0.0
    score_cache_entries: Annotated[
        int, Field(ge=0, description="Pairs whose scores are remembered (about 500 bytes each); 0 switches it off.")
    ] = 0
    drain_seconds: Annotated[
        float, Field(ge=0, description="After SIGTERM, how long accepted requests may still take.")
    ] = 20.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Log level; question texts are never logged.")
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], Field(description="Log lines for people, or one JSON object a line.")
    ] = "text"
    traces: Annotated[
        bool,
        Field(description="Export OpenTelemetry traces (extra `otel`); where to, the `OTEL_*` variables say."),
    ] = False

    @property
    def alias_names(self) -> frozenset[str]:
        """The aliases as a set."""
        return frozenset(name.strip() for name in self.aliases.split(",") if name.strip())


def read_settings() -> Settings:
    """Settings from the environment. Raises SettingsError naming every variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [f"CERBERANK_{str(p['loc'][0]).upper()}={p['input']!r}: {p['msg']}" for p in error.errors()]
        raise SettingsError("; ".join(problems)) from error


def markdown_table() -> str:
    """The settings as a Markdown table."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "") else f"`{field.default}`"
        rows.append(f"| `CERBERANK_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")
