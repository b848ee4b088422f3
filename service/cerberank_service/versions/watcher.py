"""Follows a store: copies, tries, loads and serves the versions that its labels name, and unloads the others.

The watcher's thread polls the store and moves labels. Another thread loads versions, so that a rollback never waits for
a load. A new version does not affect requests before it has passed every check.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial

from cerberank_models.backends.device_memory import return_unused_memory
from cerberank_models.backends.processors import cgroup_memory
from cerberank_models.backends.registry import spec_of
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import CheckpointStore, Reference
from cerberank_service.engine.faults import text_of
from cerberank_service.engine.low_priority import NICENESS, LiveTraffic, at_low_priority
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import COPY_FAILURES, LABEL_FLIPS, REJECTED_VERSIONS, STORE_REACHABLE
from cerberank_service.versions.copies import Copies, GivenUpError
from cerberank_service.versions.copy_process import TRIED_WITH, Trial, memory_of
from cerberank_service.versions.failure import Cause, FailedError, Failure, failure_of
from cerberank_service.versions.lifecycle import Decision, StoredModel, decide
from cerberank_service.versions.loading import LiveVersion, Loader, bring_up
from cerberank_service.versions.memory_budget import (
    budget,
    check_room,
    counted_bytes,
    most_file_bytes,
    most_trial_bytes,
    return_freed_memory,
    spare_bytes,
)
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import State
from cerberank_service.versions.store_view import StoreView

logger = logging.getLogger(__name__)

JOIN_SECONDS = 1.0
"""Seconds to wait for an idle engine's thread to end; a thread that hangs is checked again at the next poll."""
LONGEST_BACK_OFF = 60.0
"""Longest wait, in seconds, before a failed copy is retried. The first wait is the poll interval; each failure doubles
the wait."""
MOST_DEATHS = 2
"""A version is rejected when so many processes in a row were killed while they loaded it. One may have been killed for
another reason."""
LONGEST_START = 10.0
"""Seconds for which a replica whose stable versions serve waits for a further version before it is ready."""
NOTE_SECONDS = 60.0
"""Seconds after which writing a note to the store is retried."""


class Watcher:
    """Adapts the versions in the registry to the store's labels."""

    def __init__(
        self,
        store: CheckpointStore,
        versions: VersionRegistry,
        settings: Settings,
        metrics: Metrics,
        loader: Loader,
        *,
        wake: threading.Event,
    ) -> None:
        """Read nothing before `start`. Setting `wake` causes an immediate poll."""
        self._store = store
        self._versions = versions
        self._settings = settings
        self._metrics = metrics
        self._loader = loader
        self._view = StoreView(store, settings)
        self._spec = spec_of(settings.form(()).backend)
        self._live_traffic = LiveTraffic(versions.answering)
        self._copies = Copies(settings.store, settings.copy_seconds)
        # The versions that labels or pins name, and the one that is being loaded.
        self._wanted: set[Reference] = set()
        self._overtaken: Reference | None = None
        """The version that is being loaded while a more important one waits (`Decision.overtaken`)."""
        self._load_began = 0.0
        # Versions that failed.
        self._failed_tries: dict[Reference, int] = {}
        """The number of times in a row that a version failed and is retried."""
        self._retry_at: dict[Reference, float] = {}
        """The time, on the monotonic clock like all times here, at which a version is retried."""
        self._killed: dict[Reference, str] = {}
        """The message of the last failure in which a process was killed while it loaded the version."""
        self._deadly: set[Reference] = set()
        """Versions that were rejected because processes were killed while they loaded them."""
        # Versions that leave: the times at which they were retired.
        self._retired: dict[Reference, float] = {}
        # The store.
        self._noted_served: dict[str, str] = {}
        """The version of each model that this replica has noted in the store as serving."""
        self._note_after = 0.0
        """The time before which no note is written, because the last one failed."""
        self._poll_ended = time.monotonic()
        self._store_reached = True
        self._wake = wake
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def open(self) -> None:
        """Create the folder for local copies; `start` also does this. Raises OSError when that is impossible."""
        self._copies.open()

    def start(self) -> None:
        """Start following the store. Raises as `open` does."""
        self._copies.open()
        self._thread.start()

    def stop(self) -> None:
        """Stop following the store and remove the local copies; loaded versions continue to serve."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
            self._copies.close()

    @property
    def poll_age(self) -> float:
        """Seconds since a poll of the store ended, whether it succeeded or failed; it grows while one hangs."""
        return time.monotonic() - self._poll_ended

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self._poll()
            except BaseException:  # panics of libraries do not derive from Exception; the next poll may succeed
                logger.exception("polling the store failed; it will be retried")
            self._poll_ended = time.monotonic()
            self._wake.wait(self._settings.store_poll_seconds)

    def _poll(self) -> None:
        self._forget_retired()
        self._begin_due_retries()
        stored = self._read()
        decision = Decision()
        for _ in range(100):  # each round changes something; the bound guards against programming errors
            decision = decide(stored, self._versions.snapshot.models, memory=self._memory)
            self._overtaken = decision.overtaken
            if not (decision.flips or decision.unload or decision.load):
                break
            self._carry_out(decision, stored or {})
        self._refuse(decision.refused)
        if stored is not None:
            self._forget_failures()
            self._check_started_up(stored)
            self._note_served(stored)

    @cached_property
    def _memory(self) -> int:
        """The limit, in bytes, for all versions together. Only the watcher's thread reads it, as it queries a GPU."""
        return budget(self._settings, self._spec.device_memory(self._settings.device))

    def _read(self) -> dict[str, StoredModel] | None:
        snapshot = self._versions.snapshot.models
        pinned = [Reference(name, version) for name, model in snapshot.items() for version in model.pinned]
        try:
            stored = self._view.read(pinned, {name for name, model in snapshot.items() if "stable" in model.serving})
        except Exception as error:  # libraries of stores raise their own types
            if self._reach_changed(reached=False):
                logger.warning("the store cannot be read, nothing changes: %s", text_of(error))
            missing = isinstance(error, FileNotFoundError)
            why = f"the store cannot be read: {self._copies.without_paths(text_of(error))}"
            self._versions.set_reason("the store does not exist" if missing else why)
            return None
        if self._reach_changed(reached=True):
            logger.info("the store can be read again")
        reason = "" if any("stable" in each.labels for each in stored.values()) else "no stable label in the store"
        if reason:
            reason = "; ".join([reason, *map(self._copies.without_paths, self._view.problems)])
        if reason and reason != self._versions.snapshot.reason:
            logger.warning("nothing to serve: %s", reason)
        self._versions.set_reason(reason)
        self._versions.set_wanted({model: each.labels for model, each in stored.items()})
        named = {Reference(m, v) for m, model in stored.items() for v in (*model.labels.values(), *model.served)}
        self._wanted = named.union(pinned)
        return stored

    def _reach_changed(self, *, reached: bool) -> bool:
        """Record whether the store could be read; returns True if this has changed."""
        changed = reached != self._store_reached
        self._store_reached = reached
        self._metrics[STORE_REACHABLE].set(reached)
        return changed

    def _carry_out(self, decision: Decision, stored: Mapping[str, StoredModel]) -> None:
        for flip in decision.flips:
            self._versions.flip(flip)
            self._metrics[LABEL_FLIPS].labels(flip.label).inc()
            wanted = stored[flip.model].labels.get(flip.label) if flip.model in stored else None
            if flip.version is None or wanted == flip.version or wanted is None:
                logger.info("label moved: %s@%s is now %s", flip.model, flip.label, flip.version or "nothing")
            else:
                why = self._why_not(Reference(flip.model, wanted))
                logger.warning("%s@%s stands in for %s, which %s", flip.model, flip.version, wanted, why)
        for reference in decision.unload:
            self._versions.retire(reference)
            self._retired[reference] = time.monotonic()
        self._forget_retired()
        if decision.load is not None:
            model, version = decision.load
            held, self._load_began = self._versions.snapshot.held_bytes, time.monotonic()
            self._versions.loading(decision.load, stored[model].sizes[version])
            args = (decision.load, self._memory, self._memory - held)
            try:
                threading.Thread(target=self._load, args=args, name="loader", daemon=True).start()
            except RuntimeError as error:  # the system cannot start another thread now
                self._plan_retry(decision.load, failure_of(error))

    def _why_not(self, wanted: Reference) -> str:
        """Why a version that a label names does not serve, for the log."""
        state = self._versions.snapshot.version(wanted)
        if state is None:
            return "does not fit into memory" if wanted in self._versions.snapshot.refused else "is not loaded yet"
        return "was rejected" if state.status is State.FAILED else "is not loaded yet"

    def _load(self, reference: Reference, memory: int, room: int) -> None:
        """Load a version; `memory` is the limit of all versions together, and `room` the free part."""
        started, killed = time.monotonic(), False
        try:
            self._note_load(reference)
            logger.info("loading %s@%s: it is copied and tried first", *reference)
            self._copy(reference, memory, room)
            live = self._opened(reference)
        except GivenUpError:
            self._copies.drop(reference)
            self._versions.forget(reference)
            cause = "a more important version waits" if reference in self._wanted else "nothing names it now"
            logger.info("%s@%s is not loaded any further: %s", *reference, cause)
        except BaseException as error:  # panics of tokenizers are not Exceptions; other versions must still load
            self._copies.drop(reference)
            self._metrics.forget(*reference)
            failure = self._reported(reference, failure_of(error))
            killed = failure.killed
            if failure.device_failed:
                self._versions.device_failed()
            if failure.is_passing:
                self._plan_retry(reference, failure)
            else:
                self._reject(reference, failure.cause, failure.message)
        else:
            self._copies.drop(reference)  # the open version is in memory and does not need its files
            self._failed_tries.pop(reference, None)
            self._versions.ready(reference, live)
            seconds, form = time.monotonic() - started, self._settings.form(live.checkpoint.manifest.files)
            chosen = (form.backend, live.precision, form.reason)
            logger.info("ready: %s@%s after %.1f seconds, %s in %s: %s", *reference, seconds, *chosen)
        if not killed and reference not in self._deadly:
            self._copies.end(reference)
        return_unused_memory(self._settings.device)  # of a failed load, or of steps larger than the chosen one
        self._wake.set()

    def _note_load(self, reference: Reference) -> None:
        """Note that a load begins, unless processes have died of it.

        Raises FailedError: as killed if the service has died of it, so that it is loaded after the version that can
        stand in for it, and as unusable after MOST_DEATHS. The notes of a rejected version stay, because the processes
        that start later would die of it again, but if it is asked for again, it is loaded.
        """
        deaths = self._copies.deaths(reference)
        if reference in self._deadly:
            self._deadly.remove(reference)
        elif deaths >= MOST_DEATHS:
            self._deadly.add(reference)
            last = self._killed.get(reference, "the service's process was killed")
            why = f"{deaths} processes in a row were killed while they loaded it; the last time {last}"
            raise FailedError(Cause.UNUSABLE, why)
        elif deaths and reference not in self._failed_tries:
            message = "the service's process was killed while it was loaded"
            raise FailedError(Cause.PROCESS, message, killed=True)
        self._copies.begin(reference)

    def _copy(self, reference: Reference, memory: int, room: int) -> None:
        """Copy, verify and try a version, in a process that has low priority while other versions serve.

        A trial that was killed before, perhaps because the machine was too busy for it, has the usual priority.
        """
        serving = bool(self._versions.snapshot.live())
        low = serving and self._copies.deaths(reference) < MOST_DEATHS
        size = self._known_size(reference)
        options = self._settings.model_dump(include=set(TRIED_WITH))
        trial = Trial(
            # One thread beside live traffic: more would take the processor time that a container is allowed.
            settings={**options, "threads": 1} if serving else options,
            most_bytes=most_file_bytes(size, memory),
            processor_seconds=math.ceil(self._settings.copy_seconds / 2),
        )
        measured = self._copies.fetch(
            reference,
            niceness=NICENESS if low else 0,
            given_up=lambda: self._stopped.is_set() or reference not in self._wanted or reference == self._overtaken,
            trial=trial,
            most_memory=most_trial_bytes(self._settings, size, room),
            spare_memory=spare_bytes(cgroup_memory(), memory_of(os.getpid())),
        )
        if (counted := counted_bytes(self._settings, size, measured)) != size:
            logger.warning("%s@%s takes %d bytes of memory; by its files %d were expected", *reference, counted, size)
            self._versions.loading(reference, counted)

    def _opened(self, reference: Reference) -> LiveVersion:
        """Open the copy of a version, at low priority while other versions serve, and bring it up.

        Raises DeviceFullError if the device has too little free memory, and the errors of the loader and of `bring_up`.
        """
        settings, serving = self._settings, bool(self._versions.snapshot.live())
        checkpoint = read_checkpoint(self._copies.folder(reference), verified=True)
        check_room(self._known_size(reference), self._spec.device_memory(settings.device))
        open_it = partial(self._loader, checkpoint, settings)
        # By its own files: a store may hold versions for several backends.
        spec = spec_of(settings.form(checkpoint.manifest.files).backend)
        loaded = at_low_priority(open_it) if serving and settings.device in spec.low_priority_devices else open_it()
        others = self._versions.snapshot.live()
        return bring_up(loaded, settings, self._metrics, others=others, pause=self._live_traffic.wait_until_idle)

    def _known_size(self, reference: Reference) -> int:
        state = self._versions.snapshot.version(reference)
        return 0 if state is None else state.size

    def _reported(self, reference: Reference, failure: Failure) -> Failure:
        """The failure of a load, with its message as operators read it, which is remembered if a process was killed.

        The message has no paths of this machine. If the store does not have the version any more, that is the cause.
        """
        failure = replace(failure, message=self._copies.without_paths(failure.message))
        if failure.killed:
            self._killed[reference] = failure.message
        # `versions` leaves out a malformed version whose `manifest.json` is not a file.
        if failure.is_passing or failure.cause is Cause.MALFORMED:
            return failure
        try:
            is_in_store = reference.version in self._store.versions(reference.model)
        except Exception:  # libraries of stores raise their own types
            is_in_store = False
        if is_in_store:
            return failure
        message = "the store does not have it any more, or cannot be reached"
        return replace(failure, cause=Cause.STORE, message=message)

    def _plan_retry(self, reference: Reference, failure: Failure) -> None:
        tries = self._failed_tries[reference] = self._failed_tries.get(reference, 0) + 1
        wait = min(LONGEST_BACK_OFF, self._settings.store_poll_seconds * 2.0 ** min(tries - 1, 10))
        cause, message = failure.cause.value, failure.message
        self._metrics[COPY_FAILURES].labels(cause).inc()
        logger.warning("%s@%s could not be copied or tried (%s), again in %.1f s: %s", *reference, cause, wait, message)
        self._versions.retrying(reference, f"{cause}: {message}; it will be copied again in {wait:.0f} s")
        self._retry_at[reference] = time.monotonic() + wait

    def _begin_due_retries(self) -> None:
        """Forget versions whose retry is due, so that they are loaded like new versions."""
        for reference, due in list(self._retry_at.items()):
            if time.monotonic() >= due:
                del self._retry_at[reference]
                state = self._versions.snapshot.version(reference)
                if state is not None and state.status is State.RETRYING:
                    self._versions.forget(reference)

    def _note_served(self, stored: Mapping[str, StoredModel]) -> None:
        """Record in the store which versions serve as stable, for replicas that start later."""
        if time.monotonic() < self._note_after:
            return
        for name, model in self._versions.snapshot.models.items():
            serving = model.serving.get("stable")
            wanted = stored[name].labels.get("stable") if name in stored else None
            if serving is None or serving != wanted or self._noted_served.get(name) == serving:
                continue
            try:
                self._store.note_served(Reference(name, serving))
                self._noted_served[name] = serving
            except Exception as error:  # libraries of file systems raise their own types
                self._note_after = time.monotonic() + NOTE_SECONDS
                why = "a replica that starts while a bad version is stable will not know what to serve instead"
                logger.warning("the store cannot be told that %s@%s serves; %s: %r", name, serving, why, error)

    def _reject(self, reference: Reference, cause: Cause, message: str) -> None:
        self._metrics[REJECTED_VERSIONS].labels(cause.value, *reference).inc()
        logger.error("%s@%s is rejected (%s): %s", *reference, cause.value, message)
        self._versions.failed(reference, f"{cause.value}: {message}")

    def _refuse(self, refused: Mapping[Reference, str]) -> None:
        """Record versions that do not fit beside more important ones; they are loaded once memory is free."""
        for reference in self._versions.snapshot.refused.keys() - refused.keys():
            self._metrics.forget_rejections(*reference)
        for reference, why in refused.items():
            if reference not in self._versions.snapshot.refused:
                self._metrics[REJECTED_VERSIONS].labels(Cause.TOO_BIG.value, *reference).inc()
                logger.error("%s@%s is rejected (%s): %s", *reference, Cause.TOO_BIG.value, why)
        reasons = {reference: f"{Cause.TOO_BIG.value}: {why}" for reference, why in refused.items()}
        self._versions.refuse_to_load(reasons)

    def _forget_retired(self) -> None:
        """Unload retired versions whose last request has been answered or whose drain time is over."""
        for reference, since in list(self._retired.items()):
            state = self._versions.snapshot.version(reference)
            assert state is not None and state.live is not None, "what is retired was ready, and is known"  # noqa: PT018
            live = state.live
            if live.leases and time.monotonic() - since < self._settings.drain_seconds:
                continue
            live.engine.stop(0.0)
            live.engine.join(JOIN_SECONDS)
            if live.engine.running:
                continue
            del self._retired[reference]
            self._versions.forget(reference)
            self._metrics.forget(*reference)
            self._live_traffic.wait_until_idle()
            del live, state
            self._live_traffic.wait_until_idle()
            return_freed_memory(self._settings.device)
            logger.info("unloaded: %s@%s", *reference)
            self._wake.set()

    def _forget_failures(self) -> None:
        """Forget failed versions that no label or pin names any more."""
        snapshot = self._versions.snapshot.models
        for reference in self._failed_tries.keys() - self._wanted:
            self._failed_tries.pop(reference, None)
            self._killed.pop(reference, None)
        for name, model in snapshot.items():
            for version, held in model.versions.items():
                if held.down and Reference(name, version) not in self._wanted:
                    self._versions.forget(Reference(name, version))
                    self._metrics.forget_rejections(name, version)

    def _check_started_up(self, stored: Mapping[str, StoredModel]) -> None:
        """Record that start-up is over: nothing more is being loaded, or it takes long and stable versions serve.

        A version may be tried for minutes. Where another one stands in for it, or where it is a canary, it keeps the
        replica from being ready for LONGEST_START seconds only.
        """
        snapshot = self._versions.snapshot
        statuses = [state.status for model in snapshot.models.values() for state in model.versions.values()]
        named = [name for name, model in stored.items() if "stable" in model.labels]
        serve = bool(named) and all("stable" in snapshot.model(name).serving for name in named)
        long = time.monotonic() - self._load_began >= LONGEST_START
        if (serve and long) or (State.LOADING not in statuses and (statuses or snapshot.refused)):
            self._versions.set_started_up()
