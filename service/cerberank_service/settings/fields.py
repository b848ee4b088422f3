"""All settings of the service; each is an environment variable `CERBERANK_<NAME>`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cerberank_models.backends.processors import usable_processors
from cerberank_models.backends.registry import (
    BACKENDS,
    Form,
    check_precision,
    form_for,
    precisions_help,
    spec_of,
    usual_backend,
)

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


LARGE_MACHINE = 16
"""Processors above which two threads cannot read for as many questions as the model answers."""
BODIES = 16
"""Number of bodies of the largest size that may be held at the same time."""


class Settings(BaseSettings):
    """The settings, read once at start-up; no other module of the service reads `CERBERANK_*` variables.

    Libraries read their own variables (`OTEL_*`, `TMPDIR`), and so do the commands `server` and `rank`.
    """

    model_config = SettingsConfigDict(env_prefix="CERBERANK_", env_ignore_empty=True, frozen=True, extra="ignore")

    checkpoint: Annotated[
        Path | None,
        Field(
            description="Checkpoint folder to serve; ignored if a store is set. Empty serves the bundled "
            "`cerberank-mini`."
        ),
    ] = None
    model: Annotated[
        str,
        Field(
            description="Hub id or folder of a Hugging Face cross-encoder to import once and serve (extra `import`); "
            "`OWNER/NAME@REVISION` for a branch, tag or commit. Not together with a checkpoint or a store."
        ),
    ] = ""
    store: Annotated[
        str,
        Field(
            description="Store whose labelled versions are served: a folder, or an fsspec URL such as "
            "`s3://bucket/models`. Empty: a single checkpoint is served."
        ),
    ] = ""
    store_poll_seconds: Annotated[
        float, Field(gt=0, description="Interval in seconds at which the store is read for changes.")
    ] = 2.0
    copy_seconds: Annotated[
        float,
        Field(
            gt=0,
            description="Time limit in seconds for copying and verifying a version, and again for trying it; half of "
            "it limits the processor time of the trial.",
        ),
    ] = 300.0
    model_memory_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Memory limit for all loaded versions together, by their estimated sizes; 0: 2 GiB, or on a "
            "GPU 90 % of its memory.",
        ),
    ] = 0
    slowest_ms: Annotated[
        float,
        Field(
            ge=0,
            description="Reject a version that needs more milliseconds than this for 100 candidates of 48 tokens, "
            "as measured at warm-up without drops; 0 accepts any speed.",
        ),
    ] = 0.0
    default_model: Annotated[
        str, Field(description="Model for requests that do not name one; empty: the model that was ready first.")
    ] = ""
    canary_percent: Annotated[
        float,
        Field(
            ge=0, le=100, description="Percentage of the questions that the version with the label `canary` answers."
        ),
    ] = 5.0
    shadow_percent: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="Percentage of the questions that are also sent to the version with the label `shadow`; "
            "none are sent while the service is busy.",
        ),
    ] = 10.0
    aliases: Annotated[
        str,
        Field(
            description="Further names of the default model, comma-separated, such as `rerank-v3.5` for Cohere clients."
        ),
    ] = ""
    host: Annotated[str, Field(description="Address that the public port listens on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="The public port; 0 takes a free port.")] = 8000
    tls_certificate: Annotated[
        Path | None,
        Field(
            description="PEM file with the certificate chain; the public port and the admin port then accept TLS only."
        ),
    ] = None
    tls_key: Annotated[Path | None, Field(description="PEM file with the certificate's key.")] = None
    keys_file: Annotated[
        Path | None,
        Field(
            description="File of API keys (`cerberank admin keys`); ranking then needs one. Empty: everybody may rank."
        ),
    ] = None
    admin_token: Annotated[
        SecretStr | None,
        AfterValidator(checked_token),
        Field(description="Token of the admin port, 16 characters or more; empty: the admin port is closed."),
    ] = None
    admin_port: Annotated[int, Field(ge=0, le=65535, description="The admin port; 0 takes a free port.")] = 8001
    cors_origins: Annotated[
        str,
        Field(
            description="Web origins whose pages may call the service, comma-separated, or `*`; empty allows only "
            "the service's own pages."
        ),
    ] = ""
    allowed_hosts: Annotated[
        str,
        Field(
            description="Accepted host names in the header `Host`, comma-separated, such as `rank.example.org` or "
            "`*.example.org`; requests for other names get 400, except probes and `/metrics`. Empty accepts any name."
        ),
    ] = ""
    trusted_proxies: Annotated[
        str,
        AfterValidator(checked_networks),
        Field(
            description="Addresses and networks of proxies, comma-separated. The log takes the client's address from "
            "their `X-Forwarded-For`; empty trusts no proxy."
        ),
    ] = ""
    device: Annotated[
        str,
        Field(
            description=f"{either(DEVICES)} (`cuda:1` is the second GPU); determines which backend and precision "
            "`auto` takes."
        ),
    ] = "cpu"
    backend: Annotated[
        str,
        AfterValidator(backend_of),
        Field(
            description=f"Library that runs the model: {either(BACKENDS)}, each installed by an extra. `auto` takes "
            "onnx on a processor, and torch on a GPU and for decoders; `/v1/models` shows the choice and its reason.",
        ),
    ] = AUTO
    precision: Annotated[
        str,
        AfterValidator(precision_of),
        Field(
            description=f"Number format of weights and activations: {precisions_help()}. `auto` takes fp16 on a "
            "GPU. On a processor it takes int8 with onnx, or fp32 for an imported model and a checkpoint without "
            "int8; with torch it takes fp32.",
        ),
    ] = AUTO
    threads: Annotated[
        int,
        Field(
            ge=0,
            description=(
                "Threads that compute the model; 0: `OMP_NUM_THREADS`, or else one for each processor that this "
                "process may use."
            ),
        ),
    ] = 0
    step_tokens: Annotated[
        int,
        AfterValidator(checked_step_tokens),
        Field(
            ge=0,
            description="Most tokens that the model computes in one step, at least 128; deadlines and new questions "
            "wait for the end of a step. 0: chosen at warm-up, so that a step takes at most a tenth of a second.",
        ),
    ] = 0
    max_candidates: Annotated[
        int, Field(ge=1, le=100_000, description="Most candidates of one request, over all its questions.")
    ] = 10_000
    max_body_bytes: Annotated[int, Field(ge=1024, description="Largest request body in bytes.")] = 4 * 1024 * 1024
    max_requests: Annotated[
        int, Field(ge=1, description="Most ranking requests in progress; further ones get 503. Probes are not counted.")
    ] = 512
    keep_alive_seconds: Annotated[
        float,
        Field(
            gt=0,
            description="Seconds after which an idle connection is closed; must be longer than the proxy's.",
        ),
    ] = 75.0
    queue_seconds: Annotated[
        float,
        Field(
            gt=0,
            description=(
                "Most work, in seconds, that may be before a question when it comes. With more before it, it is "
                "rejected at once with 503; an idle service rejects none. An accepted question takes at most about "
                "twice this time and twice its own. A body waits at most this time to be read."
            ),
        ),
    ] = 8.0
    latency_target_ms: Annotated[
        float,
        Field(
            ge=0,
            description="Latency target in milliseconds: for each question the service chooses the most accurate "
            "tuned drop schedule that is predicted to meet it; 0: no target.",
        ),
    ] = 0.0
    calibrated_scores: Annotated[
        bool,
        Field(
            description="Return calibrated scores also in the APIs of other services (Cohere and others) if the "
            "model is calibrated; `/v1/rank` always returns them."
        ),
    ] = False
    unanswered_share: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Share of your questions that no candidate answers, by which the log-odds of `answerable` of "
            "calibrated models move; empty: the share of their calibration questions, half of them for the bundled "
            "model.",
        ),
    ] = None
    token_cache_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Size in bytes of the cache of tokenised texts; 64 MB hold 90,000 to 180,000 candidates of "
            "50 tokens. 0 switches the cache off.",
        ),
    ] = 64 * 1024 * 1024
    vectors: Annotated[
        Path | None,
        Field(
            description="Folder of vectors that `cerberank data embed` computed for a model with a first stage; "
            "empty: vectors that are not cached are computed."
        ),
    ] = None
    vector_cache_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Size in bytes of the cache of texts' vectors, for models with a first stage; 0 switches "
            "the cache off.",
        ),
    ] = 256 * 1024 * 1024
    drain_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="Time limit in seconds for answering accepted requests after SIGTERM; it begins when the "
            "lame-duck time is over.",
        ),
    ] = 20.0
    lame_duck_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="Seconds after SIGTERM in which the service still accepts requests while `/health/ready` "
            "fails, so that load balancers stop sending requests before the port closes.",
        ),
    ] = 0.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="Log level; with `info` every answer has a line."),
    ] = "info"
    log_questions: Annotated[
        bool,
        Field(description="Log the question in the line of its answer; no other text of a request is ever logged."),
    ] = False
    log_format: Annotated[
        Literal["text", "json"], Field(description="`text` for people, or `json`: one JSON object per line.")
    ] = "text"
    traces: Annotated[
        bool,
        Field(description="Export OpenTelemetry traces (extra `otel`) to the place that the `OTEL_*` variables name."),
    ] = False

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("CERBERANK_TLS_CERTIFICATE and CERBERANK_TLS_KEY need each other")
        if self.model and (self.checkpoint is not None or self.store):
            raise ValueError("CERBERANK_MODEL goes with neither CERBERANK_CHECKPOINT nor CERBERANK_STORE")
        return self

    @property
    def encode_workers(self) -> int:
        """The number of threads that parse, tokenise and write answers; one more reads no body of over 32 KB.

        On a processor they take a small part of the model's own cores; a GPU leaves all cores to them.
        """
        processors = usable_processors()
        if self.device == "cpu":
            return 2 if processors <= LARGE_MACHINE else 4
        return max(2, min(8, processors))

    @property
    def source(self) -> tuple[str, str | None]:
        """The model to import and its revision; a folder may have any name."""
        name, _, revision = self.model.rpartition("@")
        return (name, revision) if name and not Path(self.model).exists() else (self.model, None)

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
        """The aliases as a set, with the id of an imported model on the hub."""
        name, _ = self.source
        return frozenset([*listed(self.aliases), *([name] if name and not Path(name).exists() else [])])

    @property
    def cors_list(self) -> list[str]:
        """The origins as a list."""
        return listed(self.cors_origins)

    @property
    def host_list(self) -> list[str]:
        """The allowed hosts as a list, in lower case."""
        return listed(self.allowed_hosts.lower())
