"""Follows a store: copies, verifies, loads and serves the versions that its labels name, and unloads the others.

The watcher's thread polls the store and moves labels; another thread loads versions, so that a rollback never waits for
a load. A pushed version affects nothing until it has passed every check.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path

from cerberank_models.backends.registry import spec_of
from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.contract import Reference, Store, StoreError
from cerberank_service.engine.faults import Fault, fault_of
from cerberank_service.engine.low_priority import LiveTraffic, at_low_priority
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.lifecycle import Decision, StoredModel, decide
from cerberank_service.versions.loading import Loaded, Loader, bring_up
from cerberank_service.versions.memory_budget import budget, check_room
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.rejection import Reason, reason_of
from cerberank_service.versions.state import State
from cerberank_service.versions.store_view import StoreView

logger = logging.getLogger(__name__)

JOIN_SECONDS = 1.0
"""Time to wait for an idle engine's thread to end; one that hangs is checked again at the next poll."""


class Watcher:
    """Keeps the registry in accordance with the store's labels."""

    def __init__(
        self,
        store: Store,
        versions: VersionRegistry,
        settings: Settings,
        metrics: Metrics,
        loader: Loader,
        *,
        wake: threading.Event,
        after_poll: Callable[[], None],
    ) -> None:
        """Nothing is read before `start`.

        Setting `wake` makes the watcher poll the store at once; `after_poll` is called after each poll.
        """
        self._store, self._versions, self._settings = store, versions, settings
        self._metrics, self._loader = metrics, loader
        self._view, self._spec = StoreView(store, settings), spec_of(settings.backend)
        self._live_traffic = LiveTraffic(versions.answering)
        self._copies = Path()
        self._retired: dict[Reference, float] = {}
        self._wake, self._after_poll, self._stopped = wake, after_poll, threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Start following the store. Raises OSError when the folder for local copies cannot be created."""
        self._copies = Path(tempfile.mkdtemp(prefix="cerberank-"))
        self._thread.start()

    def stop(self) -> None:
        """Stop following the store and remove the local copies; loaded versions continue to serve."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
            shutil.rmtree(self._copies, ignore_errors=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self._poll()
                self._after_poll()
            except Exception:  # the next poll may succeed; loaded versions continue to serve
                logger.exception("polling the store failed; it will be retried")
            self._wake.wait(self._settings.store_poll_seconds)

    def _poll(self) -> None:
        self._forget_retired()
        stored = self._read()
        decision = Decision()
        for _ in range(100):  # each round changes something; the bound guards against programming errors
            decision = decide(stored, self._versions.snapshot.models, memory=self._memory)
            if not (decision.flips or decision.unload or decision.load):
                break
            self._carry_out(decision, stored or {})
        self._refuse(decision.refused)
        if stored is not None:
            self._forget_failures(stored)

    @cached_property
    def _memory(self) -> int:
        """Bytes that all versions together may take. Asks a GPU, and so belongs to the watcher's thread."""
        return budget(self._settings, self._spec.device_memory(self._settings.device))

    def _read(self) -> dict[str, StoredModel] | None:
        snapshot = self._versions.snapshot.models
        pinned = [Reference(name, version) for name, model in snapshot.items() for version in model.pinned]
        try:
            stored = self._view.read(pinned)
        except (OSError, StoreError) as error:
            if self._metrics.lifecycle.reached(False):
                logger.warning("the store cannot be read, nothing changes: %s", error)
            self._versions.explain("the store cannot be read")
            return None
        self._metrics.lifecycle.reached(True)
        has_stable = any("stable" in each.labels for each in stored.values())
        self._versions.explain("" if has_stable else "no stable label")
        return stored

    def _carry_out(self, decision: Decision, stored: Mapping[str, StoredModel]) -> None:
        for flip in decision.flips:
            self._versions.flip(flip)
            self._metrics.lifecycle.flipped(flip.label)
            logger.info("label moved: %s@%s is now %s", flip.model, flip.label, flip.version or "nothing")
        for reference in decision.unload:
            self._versions.retire(reference)
            self._retired[reference] = time.monotonic()
        self._forget_retired()
        if decision.load is not None:
            model, version = decision.load
            self._versions.loading(decision.load, stored[model].sizes[version])
            threading.Thread(target=self._load, args=(decision.load,), name="loader", daemon=True).start()

    def _load(self, reference: Reference) -> None:
        started, folder = time.monotonic(), self._folder(reference)
        try:
            settings = self._settings.model_copy(update={"checkpoint": folder})
            loaded, others = self._opened(reference, settings), self._versions.snapshot.live()
            live = bring_up(loaded, settings, self._metrics, others=others, pause=self._live_traffic.wait_until_idle)
            del loaded, others
        except Exception as error:  # any error of a pushed version is reported, and the service continues
            shutil.rmtree(folder, ignore_errors=True)
            self._metrics.forget(*reference)
            if fault_of(error) is Fault.DEVICE:
                self._versions.device_failed()
            if self._is_store_fault(reference, error):
                logger.warning("%s@%s could not be copied and will be retried: %s", *reference, error)
                self._stopped.wait(self._settings.store_poll_seconds)
                self._versions.forget(reference)
            else:
                self._reject(reference, reason_of(error), str(error))
        else:
            self._versions.ready(reference, live)
            logger.info("ready: %s@%s after %.1f seconds", *reference, time.monotonic() - started)
        self._wake.set()

    def _opened(self, reference: Reference, settings: Settings) -> Loaded:
        """Copy, verify and open a version; at low priority while other versions serve."""
        pull = partial(self._pull, reference, self._folder(reference))
        if not self._versions.snapshot.live():
            pull()
            return self._open(reference, settings)
        at_low_priority(pull)
        if settings.device in self._spec.low_priority_devices:
            return at_low_priority(partial(self._open, reference, settings))
        return self._open(reference, settings)

    def _open(self, reference: Reference, settings: Settings) -> Loaded:
        """Open a version unless its device has too little free memory. Raises what the loader does, DeviceFullError."""
        known = self._versions.snapshot.version(reference)
        check_room(0 if known is None else known.size, self._spec.device_memory(settings.device))
        return self._loader(settings)

    def _folder(self, reference: Reference) -> Path:
        return self._copies / reference.model / reference.version

    def _pull(self, reference: Reference, folder: Path) -> None:
        checkpoint = self._store.pull(reference, folder)
        named = Reference(checkpoint.config.name, checkpoint.manifest.version)
        if named != reference:
            raise CheckpointError(f"it lies under {'@'.join(reference)} and calls itself {'@'.join(named)}")

    def _is_store_fault(self, reference: Reference, error: Exception) -> bool:
        """Whether the store caused the error: it could not be reached, or the version was removed meanwhile."""
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return True
        try:
            return reference.version not in self._store.versions(reference.model)
        except OSError:
            return True

    def _reject(self, reference: Reference, reason: Reason, message: str) -> None:
        message = message.replace(str(self._copies), "")  # without the path of the temporary copy
        self._metrics.lifecycle.rejected(reason.value)
        logger.error("%s@%s is rejected (%s): %s", *reference, reason.value, message)
        self._versions.failed(reference, f"{reason.value}: {message}")

    def _refuse(self, refused: Mapping[Reference, str]) -> None:
        """Record versions that do not fit beside more important ones; they are loaded when memory is free."""
        for reference, why in refused.items():
            if reference not in self._versions.snapshot.refused:
                self._metrics.lifecycle.rejected(Reason.TOO_BIG.value)
                logger.error("%s@%s is rejected (%s): %s", *reference, Reason.TOO_BIG.value, why)
        reasons = {reference: f"{Reason.TOO_BIG.value}: {why}" for reference, why in refused.items()}
        self._versions.refuse_to_load(reasons)

    def _forget_retired(self) -> None:
        """Unload retired versions whose last request is answered, or whose drain time is over."""
        for reference, since in list(self._retired.items()):
            known = self._versions.snapshot.version(reference)
            assert known is not None, "what is retired is known until it is forgotten"
            assert known.live is not None, "only what was ready is retired"
            live = known.live
            if live.leases and time.monotonic() - since < self._settings.drain_seconds:
                continue
            live.engine.stop(0.0)
            live.engine.join(JOIN_SECONDS)
            if live.engine.running:
                continue
            del self._retired[reference]
            self._versions.forget(reference)
            self._metrics.forget(*reference)
            shutil.rmtree(self._folder(reference), ignore_errors=True)
            self._live_traffic.wait_until_idle()
            del live, known
            self._live_traffic.wait_until_idle()
            logger.info("unloaded: %s@%s", *reference)
            self._wake.set()

    def _forget_failures(self, stored: Mapping[str, StoredModel]) -> None:
        """Remove failed versions that no label or pin names any more, and record when start-up is over."""
        snapshot = self._versions.snapshot.models
        busy = any(held.status is State.LOADING for model in snapshot.values() for held in model.versions.values())
        for name, model in snapshot.items():
            asked = {*(stored[name].labels.values() if name in stored else ()), *model.pinned}
            for version, held in model.versions.items():
                if held.status is State.FAILED and version not in asked:
                    self._versions.forget(Reference(name, version))
        if not busy and (snapshot or self._versions.snapshot.refused):
            self._versions.settle()
