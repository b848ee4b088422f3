"""Serves the single checkpoint that the settings name; used if there is no store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.checkpoint_cache import ModelImportError, imported_checkpoint, needed_precisions
from cerberank_models.convert.source import SourceError, find_source
from cerberank_service.settings import Settings
from cerberank_service.telemetry.logs import FIELDS
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.failure import Cause, failure_of
from cerberank_service.versions.lifecycle import Flip
from cerberank_service.versions.loading import Loader, bring_up
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)

CALIBRATED = "`cerberank import --int8-texts QUESTIONS.jsonl`"


class UnusableError(RuntimeError):
    """The checkpoint cannot be served; the message says why, and which settings name another checkpoint."""

    def __init__(self, message: str, exit_code: int) -> None:
        """The process ends with `exit_code`: 1 if a restart may help (out of memory, failed device), otherwise 2."""
        super().__init__(message)
        self.exit_code = exit_code


class SingleCheckpoint:
    """Loads the checkpoint in a thread, so that the process answers probes in the meantime."""

    def __init__(self, settings: Settings, versions: VersionRegistry, metrics: Metrics, loader: Loader) -> None:
        """Load nothing before `start`."""
        self._settings = settings
        self._versions = versions
        self._metrics = metrics
        self._loader = loader
        self._unusable: Callable[[Exception], None] | None = None
        self._thread = threading.Thread(target=self._load, name="loader", daemon=True)

    def open(self, unusable: Callable[[Exception], None]) -> None:
        """Set the function to call if the checkpoint cannot be served, which is not retried. Call before `start`."""
        self._unusable = unusable

    def start(self) -> None:
        """Start loading."""
        self._thread.start()

    def stop(self) -> None:
        """Do nothing, because the registry stops a version that becomes ready after the shutdown."""

    def _load(self) -> None:
        try:
            checkpoint = read_checkpoint(self._place())
            live = bring_up(self._loader(checkpoint, self._settings), self._settings, self._metrics)
        except BaseException as error:  # including panics of libraries: the service reports every error
            self._fail(error)
        else:
            model, version = live.reference
            self._versions.loading(live.reference, 0)
            self._versions.ready(live.reference, live)
            self._versions.flip(Flip(model=model, label="stable", version=version))
            form = self._settings.form(live.checkpoint.manifest.files)
            fields = {"precision": live.precision, "backend": form.backend, "reason": form.reason}
            logger.info("ready: %s %s answers questions", model, version, extra={FIELDS: fields})
        self._versions.set_started_up()

    def _place(self) -> Path:
        """The folder of the checkpoint. A model is imported first, and the registry has a reason to wait meanwhile."""
        settings = self._settings
        if not settings.model:
            return settings.checkpoint or BUNDLED
        source = find_source(*settings.source)
        backend, precision = settings.chosen
        precisions = needed_precisions(source, settings.device, backend=backend, precision=precision)
        place = imported_checkpoint(source, precisions, report=self._report)
        self._versions.set_reason("")
        logger.info("%s is loaded from %s", source.place, place)
        if precisions == ("int8",):
            logger.warning(
                "int8 ranges were measured on the golden texts alone; %s gives scores nearer to fp32", CALIBRATED
            )
        elif precisions == ("fp32",) and settings.device == "cpu":
            logger.info("int8 takes half of the time of fp32, or less: %s", CALIBRATED)
        return place

    def _report(self, progress: str) -> None:
        self._versions.set_reason(progress)
        logger.info(progress)

    def _fail(self, error: BaseException) -> None:
        failure = failure_of(error)
        if failure.device_failed:
            self._versions.device_failed()
        self._versions.set_reason(failure.message)
        # The messages of these errors need no traceback; they are printed when the process ends.
        plain = failure.cause is not Cause.UNUSABLE or isinstance(
            error, ValueError | OSError | ImportError | ModelImportError
        )
        if self._unusable is None or not plain:
            logger.error("the checkpoint could not be loaded: %s", failure.message, exc_info=error)
        if self._unusable is None:
            return
        # The program names the extra that provides a module; errors of an import name the model and a remedy.
        if isinstance(error, ModuleNotFoundError | SourceError | ModelImportError):
            self._unusable(error)
            return
        source = self._settings.model or self._settings.checkpoint or f"the bundled checkpoint {BUNDLED}"
        passing = failure.is_passing or failure.device_failed or failure.cause is Cause.TOO_BIG
        remedy = (
            "CERBERANK_CHECKPOINT (the folder of a checkpoint), CERBERANK_STORE (a store) or a MODEL (a cross-encoder "
            "of Hugging Face) names another one"
        )
        self._unusable(UnusableError(f"{source} cannot be served: {failure.message}; {remedy}", 1 if passing else 2))
