"""The admin port's app, by which an operator changes one replica. Every request needs the admin token.

To change all replicas, move a label in the store: see `versions.labels`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Annotated, Any, Self

from fastapi import FastAPI, Path, Request
from pydantic import BaseModel, ConfigDict, model_validator

from cerberank_models import __version__
from cerberank_models.checkpoint.store.checkpoint_store import NAME, Label, Reference, Version
from cerberank_models.config import DropSchedule
from cerberank_models.request import Few, Ratio
from cerberank_service.access.access import bearer, digest, same
from cerberank_service.errors import ErrorBody, Kind, ServiceError
from cerberank_service.http.connections import AnswersHead, Guard
from cerberank_service.http.error_responses import ErrorResponses
from cerberank_service.http.openapi import describe_errors, with_components
from cerberank_service.service import Service
from cerberank_service.versions.describe import describe
from cerberank_service.versions.labels import Labels
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)

Name = Annotated[str, Path(pattern=f"^{NAME.pattern}$")]
Models = dict[str, Any]


class Change(BaseModel):
    """A request body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LabelMove(Change):
    """The version that a label moves to; with `only_from`, the move fails (409) unless the label names that version."""

    version: Version
    only_from: Version | None = None


class ScheduleChange(Change):
    """One drop ratio for every exit, a list with one per exit, or null for the checkpoint's own schedule.

    The lexical layer drops the share `lexical_ratio`. With null for the schedule it must be 0.
    """

    drop_schedule: Ratio | Annotated[list[Ratio], Few] | None
    lexical_ratio: Ratio = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.drop_schedule is None and self.lexical_ratio:
            raise ValueError("lexical_ratio needs a drop_schedule beside it")
        return self


def _without_token(token: bytes, request: Request) -> ServiceError | None:
    """The error of a request without the token whose digest is `token`, on any path."""
    secret = bearer(request.scope["headers"])
    if secret is not None and same(digest(secret), token):
        return None
    logger.warning("the admin port refused a request without its token")
    return ServiceError(Kind.UNAUTHORIZED, "this port needs the admin token: Authorization: Bearer TOKEN")


def create_admin(service: Service) -> FastAPI:
    """The admin app of a service. Raises ValueError without a token."""
    secret = service.settings.admin_token
    if secret is None:
        raise ValueError("the admin port needs a token")
    app = FastAPI(
        title="Cerberank admin",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=describe_errors(ErrorBody),
    )
    errors = ErrorResponses(service)
    errors.handle(app)
    token = digest(secret.get_secret_value().encode())
    app.add_middleware(Guard, refusal=partial(_without_token, token), errors=errors)
    app.add_middleware(AnswersHead)
    _add_models(app, service)
    _add_labels(app, service.labels)
    _add_replica(app, service.versions)
    with_components(app, [], [ErrorBody])
    return app


def _add_models(app: FastAPI, service: Service) -> None:
    versions, labels = service.versions, service.labels

    def shown(model: str | None = None) -> Models:
        snapshot = versions.snapshot
        entries = [entry for entry in describe(snapshot, service.settings) if model in {None, entry.get("model")}]
        return {"state": snapshot.state.value, "models": entries}

    @app.get("/v1/models", summary="Show the versions in service and in the store")
    def models() -> Models:
        try:
            return {**shown(), "store": labels.stored()}
        except ServiceError as error:  # the loaded versions are known without the store
            return {**shown(), "store": None, "store_error": error.message}

    @app.post("/v1/models/{model}/versions/{version}/load", status_code=202, summary="Load and keep a version")
    def load(model: Name, version: Name) -> Models:
        reference = Reference(model, version)
        labels.check(reference)
        versions.pin(reference)
        logger.info("operator: load %s@%s", *reference)
        service.poll.set()
        return shown(model)

    @app.post("/v1/models/{model}/versions/{version}/unload", status_code=202, summary="Unload a version")
    def unload(model: Name, version: Name) -> Models:
        reference = Reference(model, version)
        versions.unpin(reference)
        logger.info("operator: unload %s@%s", *reference)
        service.poll.set()
        return shown(model)

    @app.put("/v1/models/{model}/versions/{version}/drop-schedule", summary="Set a version's default drop ratios")
    def drop_schedule(model: Name, version: Name, change: ScheduleChange) -> Models:
        live = versions.find(model, version, serving=False)  # the version may be a label
        try:
            policy = live.checkpoint.config.drop_policy(change.drop_schedule, lexical=change.lexical_ratio)
        except ValueError as error:
            raise ServiceError(Kind.INVALID, f"drop_schedule: {error}") from error
        own = change.drop_schedule is None
        live.schedule = None if own else DropSchedule(schedule=policy.ratios, lexical_ratio=policy.lexical)
        logger.info("operator: %s@%s drops %s", *live.reference, "by its own schedule" if own else policy)
        return shown(model)


def _add_labels(app: FastAPI, labels: Labels) -> None:
    @app.put("/v1/models/{model}/labels/{label}", summary="Move a label to a version")
    def move(model: Name, label: Label, change: LabelMove) -> dict[str, str | None]:
        before = labels.move(model, label, change.version, only_from=change.only_from)
        return _moved(model, label, before, change.version)

    @app.delete("/v1/models/{model}/labels/{label}", summary="Remove a label")
    def remove(model: Name, label: Label) -> dict[str, str | None]:
        return _moved(model, label, labels.move(model, label, None), None)

    @app.post("/v1/models/{model}/rollback", summary="Move stable back to the previous version")
    def rollback(model: Name) -> dict[str, str | None]:
        return _moved(model, "stable", *labels.rollback(model))


def _add_replica(app: FastAPI, versions: VersionRegistry) -> None:
    @app.post("/v1/drain", summary="Refuse new questions and become not ready")
    def drain() -> dict[str, str]:
        versions.drain(True)
        logger.warning("operator: drain")
        return {"state": versions.snapshot.state.value}

    @app.post("/v1/resume", summary="Accept questions again")
    def resume() -> dict[str, str]:
        versions.drain(False)
        logger.info("operator: resume")
        return {"state": versions.snapshot.state.value}


def _moved(model: str, label: str, before: str | None, after: str | None) -> dict[str, str | None]:
    logger.info("operator: %s@%s from %s to %s", model, label, before or "nothing", after or "nothing")
    return {"model": model, "label": label, "before": before, "version": after}
