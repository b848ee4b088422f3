"""All settings of the service; each is an environment variable `CERBERANK_<NAME>`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cerberank_models.backends.registry import (
    BACKENDS,
    Form,
    check_precision,
    form_for,
    precisions_help,
    spec_of,
    usual_backend,
)
from cerberank_models.windows import MOST_WINDOWS

SHORTEST_TOKEN = 16
AUTO = "auto"
"""The value of a backend or precision that is chosen by the checkpoint and the device."""
DEVICES = tuple(dict.fromkeys(kind for spec in BACKENDS.values() for kind in spec.devices))
"""The kinds of devices that some backend runs on."""


def checked_token(value: SecretStr | None) -> SecretStr | None:
    """The token if it is long enough; None for an empty one, because templates can often only empty a variable."""
    token = "" if value is None else value.get_secret_value()
    if not token:
        return None
    if len(token) < SHORTEST_TOKEN or not re.fullmatch(r"[!-~]+", token):
        raise ValueError(f"a token has at least {SHORTEST_TOKEN} ASCII characters and no blank")
    return value


def checked_networks(value: str) -> str:
    """Check comma-separated addresses and networks. uvicorn would take other texts for names and trust no address."""
    for item in listed(value):
        ip_network(item)
    return ",".join(listed(value))


def existing_file(value: Path | None) -> Path | None:
    """The path. Raises ValueError if it is not a file; otherwise the start would end with a traceback."""
    if value is not None and not value.is_file():
        raise ValueError("there is no such file")
    return value


def checked_step_tokens(value: int) -> int:
    """The number of tokens. Raises ValueError if it is too small for a step."""
    if 0 < value < 128:
        raise ValueError("a step has at least 128 tokens; 0 chooses their number")
    return value


def backend_of(value: str) -> str:
    """The backend, or `auto`."""
    return AUTO if value in ("", AUTO) else spec_of(value).name


def precision_of(value: str, info: ValidationInfo) -> str:
    """Check the precision against the backend, or against all backends if that is unknown and so reported already."""
    if value in ("", AUTO) or "backend" not in info.data:
        return AUTO
    backend = info.data["backend"]
    if backend == AUTO and any(value in spec.precisions for spec in BACKENDS.values()):
        return value
    return check_precision(usual_backend(info.data["device"]) if backend == AUTO else backend, value)


def either(names: Iterable[str]) -> str:
    """The names as a choice, for a description."""
    return " or ".join(f"`{name}`" for name in names)


def listed(value: str) -> list[str]:
    """The items of a comma-separated list, without blanks and empty ones."""
    return [item.strip() for item in value.split(",") if item.strip()]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of the HTTP server that are not settings; tests use smaller ones."""

    head_bytes: int = 32 * 1024
    """Largest size of a request's path and headers."""
    client_seconds: float = 30.0
    """Time-out for receiving a body."""
    exposition_seconds: float = 1.0
    """Seconds for which an exposition of the metrics is cached, because rendering takes milliseconds."""


PRODUCTION = Limits()

BODIES = 16
"""Number of bodies of the largest size that may be held at the same time."""


class Settings(BaseSettings):
    """The settings, read once at start-up; no other module of the service reads `CERBERANK_*` variables.

    Libraries read their own variables (`OTEL_*`, `TMPDIR`), and so do the commands `server` and `rank`.
    """

    model_config = SettingsConfigDict(env_prefix="CERBERANK_", env_ignore_empty=True, frozen=True, extra="ignore")

    checkpoint: Annotated[
        Path | None, Field(description="Checkpoint folder to serve; empty serves the bundled `cerberank-mini`.")
    ] = None
    model: Annotated[
        str,
        Field(
            description="Hub id or folder of a Hugging Face cross-encoder, imported once and served (extra `import`)."
        ),
    ] = ""
    model_revision: Annotated[str, Field(description="Its branch, tag or commit on the hub; empty takes `main`.")] = ""
    store: Annotated[
        str,
        Field(
            description="Store to follow: a folder, or an fsspec URL such as `s3://bucket/models`; empty follows none."
        ),
    ] = ""
    store_poll_seconds: Annotated[float, Field(gt=0, description="Seconds between two looks at the store.")] = 2.0
    copy_seconds: Annotated[
        float,
        Field(gt=0, description="Seconds that a version may take to be copied and verified; it is tried again later."),
    ] = 300.0
    model_memory_bytes: Annotated[
        int,
        Field(ge=0, description="Memory of all loaded versions, as estimated; 0: 2 GiB, on a GPU 90 % of its memory."),
    ] = 0
    slowest_ms: Annotated[
        float,
        Field(ge=0, description="Reject a version that takes longer for 100 candidates of 48 tokens; 0 takes any."),
    ] = 0.0
    default_model: Annotated[
        str, Field(description="Model of requests that name none; empty takes the first that was ready.")
    ] = ""
    canary_percent: Annotated[
        float, Field(ge=0, le=100, description="Share of the questions that go to `canary`, where the label is set.")
    ] = 5.0
    shadow_percent: Annotated[
        float, Field(ge=0, le=100, description="Share of the questions that `shadow` is asked too while there is time.")
    ] = 10.0
    aliases: Annotated[
        str,
        Field(
            description="Further model names to answer to, comma-separated, such as `rerank-v3.5` for Cohere clients."
        ),
    ] = ""
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8000
    tls_certificate: Annotated[
        Path | None,
        AfterValidator(existing_file),
        Field(description="PEM file with the certificate chain; with it both ports speak TLS alone."),
    ] = None
    tls_key: Annotated[
        Path | None, AfterValidator(existing_file), Field(description="PEM file with the certificate's key.")
    ] = None
    keys_file: Annotated[
        Path | None,
        Field(
            description="File of API keys (`cerberank server keys`); ranking then needs one. Empty lets everybody rank."
        ),
    ] = None
    admin_token: Annotated[
        SecretStr | None,
        AfterValidator(checked_token),
        Field(description="Token of the admin port, 16 characters or more; empty does not open it."),
    ] = None
    admin_host: Annotated[str, Field(description="Address that the admin port listens on.")] = "127.0.0.1"
    admin_port: Annotated[int, Field(ge=0, le=65535, description="The admin port; 0 takes a free one.")] = 8001
    cors_origins: Annotated[
        str,
        Field(description="Web origins whose pages may call, comma-separated, or `*`; empty allows none but its own."),
    ] = ""
    allowed_hosts: Annotated[
        str,
        Field(
            description="Names in a request's `Host` that are answered, comma-separated, such as `rank.example.org` or "
            "`*.example.org`; probes and `/metrics` are answered for any. Empty answers to all."
        ),
    ] = ""
    trusted_proxies: Annotated[
        str,
        AfterValidator(checked_networks),
        Field(
            description="Addresses and networks, comma-separated, whose `X-Forwarded-For` names the client in the log; "
            "empty trusts none."
        ),
    ] = ""
    device: Annotated[str, Field(description=f"{either(DEVICES)}; decides the next two.")] = "cpu"
    backend: Annotated[
        str,
        AfterValidator(backend_of),
        Field(
            description=f"What runs the model, each with an extra of its own: {either(BACKENDS)}; `auto` takes onnx "
            "on a processor, torch on a GPU and for decoders, and `/v1/models` says why.",
        ),
    ] = AUTO
    precision: Annotated[
        str,
        AfterValidator(precision_of),
        Field(
            description=f"Number format of weights and activations: {precisions_help()}; `auto` takes fp16 on a GPU, "
            "on a processor int8 with onnx (fp32 for a model that is imported, and where there is no int8), fp32 "
            "with torch.",
        ),
    ] = AUTO
    threads: Annotated[
        int,
        Field(
            ge=0,
            description=(
                "Threads of the model; 0 takes `OMP_NUM_THREADS`, or the processors that this process may use."
            ),
        ),
    ] = 0
    encode_workers: Annotated[int, Field(ge=1, le=64, description="Threads that parse, tokenise and render.")] = 2
    step_tokens: Annotated[
        int,
        AfterValidator(checked_step_tokens),
        Field(
            ge=0,
            description="Tokens of one engine step, at least 128; 0: as measured at warm-up, so that a step takes at "
            "most a tenth of a second.",
        ),
    ] = 0
    max_candidates: Annotated[int, Field(ge=1, le=100_000, description="Most candidates of one request.")] = 10_000
    max_windows: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            description="Most windows of a long text; all texts of a question have at most as many windows as a "
            "request may have candidates.",
        ),
    ] = MOST_WINDOWS
    max_body_bytes: Annotated[int, Field(ge=1024, description="Largest request body in bytes.")] = 4 * 1024 * 1024
    max_requests: Annotated[
        int, Field(ge=1, description="Most ranking requests in progress; further ones get 503. Probes do not count.")
    ] = 512
    keep_alive_seconds: Annotated[
        float,
        Field(gt=0, description="Seconds that a connection may wait for its next request; longer than a proxy's."),
    ] = 75.0
    queue_seconds: Annotated[
        float,
        Field(
            gt=0,
            description=(
                "Longest predicted wait of a question for others, in seconds; beyond it it is refused at once with "
                "503. An idle service takes any."
            ),
        ),
    ] = 5.0
    latency_target_ms: Annotated[
        float, Field(ge=0, description="Choose each question's drop schedule to answer within this; 0 never does.")
    ] = 0.0
    calibrated_scores: Annotated[
        bool,
        Field(
            description="Give calibrated scores to clients of other services' dialects, too, where a model is "
            "calibrated; `/v1/rank` always does."
        ),
    ] = False
    token_cache_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Memory for the tokens of texts that come again; 64 MB hold 90,000 to 180,000 candidates "
            "of 50 tokens. 0 switches it off.",
        ),
    ] = 64 * 1024 * 1024
    vectors: Annotated[
        Path | None,
        Field(
            description="Folder of vectors that `data embed` computed for a first stage; empty computes all that "
            "are not cached."
        ),
    ] = None
    vector_cache_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Memory for the vectors of texts that come again, used by models with a first stage; 0 "
            "switches it off.",
        ),
    ] = 256 * 1024 * 1024
    drain_seconds: Annotated[
        float, Field(ge=0, description="After SIGTERM, how long accepted requests may still take.")
    ] = 20.0
    lame_duck_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="After SIGTERM, how long requests are still taken while readiness fails, for load balancers.",
        ),
    ] = 0.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="Log level; `info` has a line for every answer."),
    ] = "info"
    log_questions: Annotated[
        bool, Field(description="Write the question into the line of its answer; no other text is ever logged.")
    ] = False
    log_format: Annotated[
        Literal["text", "json"], Field(description="Log lines for people, or one JSON object a line.")
    ] = "text"
    traces: Annotated[
        bool,
        Field(description="Export OpenTelemetry traces (extra `otel`); where to, the `OTEL_*` variables say."),
    ] = False

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("CERBERANK_TLS_CERTIFICATE and CERBERANK_TLS_KEY need each other")
        if self.model and (self.checkpoint is not None or self.store):
            raise ValueError("CERBERANK_MODEL goes with neither CERBERANK_CHECKPOINT nor CERBERANK_STORE")
        if self.model_revision and not self.model:
            raise ValueError("CERBERANK_MODEL_REVISION needs CERBERANK_MODEL (`cerberank serve MODEL`)")
        return self

    @property
    def chosen(self) -> tuple[str | None, str | None]:
        """The backend and the precision, each None if it is `auto`."""
        backend, precision = (None if value == AUTO else value for value in (self.backend, self.precision))
        return backend, precision

    def form(self, files: Collection[str]) -> Form:
        """The backend and precision with which to run a checkpoint of these `files`.

        Raises ValueError if the backend for this checkpoint does not have the precision of the settings.
        """
        backend, precision = self.chosen
        return form_for(files, self.device, backend=backend, precision=precision)

    @property
    def max_bodies_bytes(self) -> int:
        """Memory limit of the bodies of all unanswered requests; the first 64 KB of each body do not count."""
        return BODIES * self.max_body_bytes

    @property
    def alias_names(self) -> frozenset[str]:
        """The aliases as a set."""
        return frozenset(listed(self.aliases))

    @property
    def cors_list(self) -> list[str]:
        """The origins as a list."""
        return listed(self.cors_origins)

    @property
    def host_list(self) -> list[str]:
        """The allowed hosts as a list."""
        return listed(self.allowed_hosts)
