"""Serves the one checkpoint that the settings name; used without a store."""

from __future__ import annotations

import logging
import threading

from cerberank_service.engine.faults import Fault, fault_of
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.lifecycle import Flip
from cerberank_service.versions.loading import Loader, bring_up
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)


class SingleCheckpoint:
    """Loads the checkpoint in a thread, so that the process answers probes meanwhile."""

    def __init__(self, settings: Settings, versions: VersionRegistry, metrics: Metrics, loader: Loader) -> None:
        """Nothing is loaded before `start`."""
        self._settings, self._versions, self._metrics, self._loader = settings, versions, metrics, loader
        self._thread = threading.Thread(target=self._load, name="loader", daemon=True)

    def open(self) -> None:
        """Do nothing: no file is copied."""

    def start(self) -> None:
        """Start loading."""
        self._thread.start()

    def stop(self) -> None:
        """Do nothing: the registry stops a version that becomes ready after the shutdown."""

    def _load(self) -> None:
        try:
            live = bring_up(self._loader(self._settings), self._settings, self._metrics)
        except Exception as error:  # any error: the service reports why it is not ready
            if fault_of(error) is Fault.DEVICE:
                self._versions.device_failed()
            self._versions.explain(str(error))
            logger.exception("the checkpoint could not be loaded")
        else:
            model, version = live.reference
            self._versions.loading(live.reference, 0)
            self._versions.ready(live.reference, live)
            self._versions.flip(Flip(model=model, label="stable", version=version))
            logger.info("ready: %s %s (%s)", model, version, live.checkpoint.path.name)
        self._versions.settle()
