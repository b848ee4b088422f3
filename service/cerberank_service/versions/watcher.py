"""Follows a store: what its labels name is copied, verified, loaded and served; what they leave is given back.

The watcher's thread looks at the store and moves labels; another one loads, so that a rollback never waits for a load.
Nothing that a push can contain changes what serves before it has passed every check.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cerberank_models.backends.registry import spec_of
from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.contract import Reference, Store, StoreError
from cerberank_service.engine.low_priority import Leisure, at_low_priority
from cerberank_service.memory import return_freed_memory
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.lifecycle import Decision, StoredModel, decide
from cerberank_service.versions.loading import Loaded, Loader, bring_up
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.rejection import Reason, reason_of
from cerberank_service.versions.state import State
from cerberank_service.versions.store_view import StoreView

logger = logging.getLogger(__name__)

JOIN_SECONDS = 1.0
"""For an engine to end that has nothing to do; one that hangs is looked at again later."""


class Watcher:
    """Keeps the registry as the store's labels have it."""

    def __init__(
        self,
        store: Store,
        versions: VersionRegistry,
        settings: Settings,
        metrics: Metrics,
        loader: Loader,
        *,
        wake: threading.Event,
        after_turn: Callable[[], None],
    ) -> None:
        """Nothing is read before `start`.

        Whoever sets `wake` lets the watcher look at once; `after_turn` is called when nothing is left to be done.
        """
        self._store, self._versions, self._settings = store, versions, settings
        self._metrics, self._loader = metrics, loader
        self._view = StoreView(store, settings)
        self._leisure = Leisure(versions.answering)
        self._copies = Path()
        self._retired: dict[Reference, float] = {}
        self._wake, self._after_turn, self._stopped = wake, after_turn, threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin to follow the store. Raises OSError when there is no place for copies."""
        self._copies = Path(tempfile.mkdtemp(prefix="cerberank-"))
        self._thread.start()

    def stop(self) -> None:
        """Follow no longer, and remove the local copies; what serves is not touched."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
            shutil.rmtree(self._copies, ignore_errors=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self._turn()
                self._after_turn()
            except Exception:  # the next turn may fare better, and what serves goes on meanwhile
                logger.exception("following the store failed; it is tried again")
            self._wake.wait(self._settings.store_poll_seconds)

    def _turn(self) -> None:
        self._forget_retired()
        stored = self._read()
        decision = Decision()
        for _ in range(100):  # each round changes something; the bound is for mistakes
            decision = decide(stored, self._versions.snapshot.models, memory=self._settings.model_memory_bytes)
            if not (decision.flips or decision.unload or decision.load):
                break
            self._obey(decision, stored or {})
        self._refuse(decision.refused)
        if stored is not None:
            self._tidy(stored)

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

    def _obey(self, decision: Decision, stored: Mapping[str, StoredModel]) -> None:
        for flip in decision.flips:
            self._versions.flip(flip)
            self._metrics.lifecycle.flipped(flip.label)
            logger.info("%s@%s now means %s", flip.model, flip.label, flip.version or "nothing")
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
            live = bring_up(loaded, settings, self._metrics, others=others, pause=self._leisure.wait)
            del loaded, others
        except Exception as error:  # whatever a push contains, the service goes on and says why
            shutil.rmtree(folder, ignore_errors=True)
            self._metrics.forget(*reference)
            if self._store_is_to_blame(reference, error):
                logger.warning("%s@%s could not be copied, it is tried again: %s", *reference, error)
                self._stopped.wait(self._settings.store_poll_seconds)
                self._versions.forget(reference)
            else:
                self._reject(reference, reason_of(error), str(error))
        else:
            self._versions.ready(reference, live)
            logger.info("ready: %s@%s after %.1f seconds", *reference, time.monotonic() - started)
        self._wake.set()

    def _opened(self, reference: Reference, settings: Settings) -> Loaded:
        """Copied, verified and opened, standing back while anything is served."""
        pull = partial(self._pull, reference, self._folder(reference))
        if not self._versions.snapshot.live():
            pull()
            return self._loader(settings)
        at_low_priority(pull)
        if settings.device in spec_of(settings.backend).low_priority_devices:
            return at_low_priority(partial(self._loader, settings))
        return self._loader(settings)

    def _folder(self, reference: Reference) -> Path:
        return self._copies / reference.model / reference.version

    def _pull(self, reference: Reference, folder: Path) -> None:
        checkpoint = self._store.pull(reference, folder)
        named = Reference(checkpoint.config.name, checkpoint.manifest.version)
        if named != reference:
            raise CheckpointError(f"it lies under {'@'.join(reference)} and calls itself {'@'.join(named)}")

    def _store_is_to_blame(self, reference: Reference, error: Exception) -> bool:
        """Whether the version may be sound: the store was not there, or has lost it meanwhile."""
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return True
        try:
            return reference.version not in self._store.versions(reference.model)
        except OSError:
            return True

    def _reject(self, reference: Reference, reason: Reason, message: str) -> None:
        message = message.replace(str(self._copies), "")  # where a copy lay for a moment helps nobody
        self._metrics.lifecycle.rejected(reason.value)
        logger.error("%s@%s is rejected (%s): %s", *reference, reason.value, message)
        self._versions.failed(reference, f"{reason.value}: {message}")

    def _refuse(self, refused: Mapping[Reference, str]) -> None:
        """Those that do not fit beside what is more important; they are loaded when there is room."""
        for reference, why in refused.items():
            if reference not in self._versions.snapshot.refused:
                self._metrics.lifecycle.rejected(Reason.TOO_BIG.value)
                logger.error("%s@%s is rejected (%s): %s", *reference, Reason.TOO_BIG.value, why)
        reasons = {reference: f"{Reason.TOO_BIG.value}: {why}" for reference, why in refused.items()}
        self._versions.refuse_to_load(reasons)

    def _forget_retired(self) -> None:
        """Give back the memory of versions whose last request is answered, or has had the drain time."""
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
            self._leisure.wait()
            del live, known
            self._leisure.wait()
            return_freed_memory()
            logger.info("unloaded: %s@%s", *reference)
            self._wake.set()

    def _tidy(self, stored: Mapping[str, StoredModel]) -> None:
        """Forget failures that nobody asks for any more; say when the start is over."""
        snapshot = self._versions.snapshot.models
        busy = any(held.status is State.LOADING for model in snapshot.values() for held in model.versions.values())
        for name, model in snapshot.items():
            asked = {*(stored[name].labels.values() if name in stored else ()), *model.pinned}
            for version, held in model.versions.items():
                if held.status is State.FAILED and version not in asked:
                    self._versions.forget(Reference(name, version))
        if not busy and (snapshot or self._versions.snapshot.refused):
            self._versions.settle()
