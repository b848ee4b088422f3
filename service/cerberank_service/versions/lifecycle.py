"""What to load, unload and flip: a pure function of the store's state and the service's. No time, no threads, no files.

A label moves only to a version that is ready; what serves stays until its successor does; the version that was stable
before stays loaded for a rollback. When memory is short, the less important gives way to the more important and never
the other way round, so that decisions cannot chase each other. (After TF Serving's AvailabilityPreservingPolicy.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cerberank_models.checkpoint.store.contract import LABELS, Label, Reference
from cerberank_service.versions.state import ModelState, State, VersionState

IMPORTANCE = {"stable": 0, "canary": 1, "rollback": 2, "pinned": 3, "shadow": 4}
"""A version may take the memory of those with a larger number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredModel:
    """What the store says about a model."""

    labels: Mapping[Label, str]
    sizes: Mapping[str, int]
    """Bytes of memory that each version will take, by version; a version that is not here is not in the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flip:
    """Let a label's requests go to another version; None: the label is gone."""

    model: str
    label: Label
    version: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do now, flips first. A flip of `stable` makes the version that it leaves the previous one."""

    flips: tuple[Flip, ...] = ()
    unload: tuple[Reference, ...] = ()
    load: Reference | None = None
    """At most one at a time: a version's memory is known only when it is loaded."""
    refused: Mapping[Reference, str] = field(default_factory=dict)
    """Versions that a label asks for and that will not be loaded as things stand, with the reason."""


def decide(store: Mapping[str, StoredModel] | None, service: Mapping[str, ModelState], *, memory: int) -> Decision:
    """The next decision; `store` is None while it cannot be read, and then nothing changes.

    `memory` is the bytes that all versions together may take. Called again after each change, it ends in an empty
    decision when nothing changes any more.
    """
    if store is None:
        return Decision()
    flips = tuple(flip for model in sorted(service) for flip in _flips(model, store.get(model), service[model]))
    roles = _roles(service, flips)
    ready = [ref for ref, held in _held(service) if held.status is State.READY]
    idle = [ref for ref in ready if ref not in roles]
    load, makes_room, refused = _next_load(store, service, roles, memory)
    gone = tuple(
        Flip(model=ref.model, label=label, version=None)
        for ref in makes_room
        for label, version in _after(service[ref.model], ref.model, flips)[0].items()
        if version == ref.version
    )
    return Decision(flips=flips + gone, unload=tuple(idle + makes_room), load=load, refused=refused)


def _flips(model: str, stored: StoredModel | None, served: ModelState) -> Iterator[Flip]:
    labels = stored.labels if stored else {}
    for label in LABELS:
        target, now = labels.get(label), served.serving.get(label)
        if target is None:
            # Nobody asked for another stable version: without one every request would fail.
            if now is not None and label != "stable":
                yield Flip(model=model, label=label, version=None)
        elif target != now and target in served.versions and served.versions[target].status is State.READY:
            yield Flip(model=model, label=label, version=target)


def _after(served: ModelState, model: str, flips: tuple[Flip, ...]) -> tuple[dict[Label, str], str | None]:
    """The labels and the previous version once the flips are done."""
    serving, previous = dict(served.serving), served.previous
    for flip in flips:
        if flip.model != model:
            continue
        before = serving.pop(flip.label, None)
        if flip.version is not None:
            serving[flip.label] = flip.version
        if flip.label == "stable":
            previous = before
    return serving, previous


def _roles(service: Mapping[str, ModelState], flips: tuple[Flip, ...]) -> dict[Reference, int]:
    """The importance of every version that has a role once the flips are done; its most important role counts."""
    roles: dict[Reference, int] = {}
    for model, served in service.items():
        serving, previous = _after(served, model, flips)
        named = [(label, version) for label, version in serving.items()]
        pinned = [("pinned", version) for version in served.pinned if version in served.versions]
        for role, version in [*named, *pinned, ("rollback", previous)]:
            if version is not None:
                reference = Reference(model, version)
                roles[reference] = min(IMPORTANCE[role], roles.get(reference, len(IMPORTANCE)))
    return roles


def _next_load(
    store: Mapping[str, StoredModel], service: Mapping[str, ModelState], roles: Mapping[Reference, int], memory: int
) -> tuple[Reference | None, list[Reference], dict[Reference, str]]:
    """What to load now, or else what to unload for it first; and what will not fit."""
    refused: dict[Reference, str] = {}
    held = dict(_held(service))
    free = memory - sum(item.size for item in held.values() if item.status is not State.FAILED)
    # Their memory comes back without anything being given up for it.
    coming = sum(
        item.size
        for ref, item in held.items()
        if item.status is State.UNLOADING or (item.status is State.READY and ref not in roles)
    )
    busy = any(item.status is State.LOADING for item in held.values())
    for importance, reference, size in _asked_for(store, service, held):
        weaker = sorted(
            (ref for ref, role in roles.items() if role > importance and held[ref].status is State.READY),
            key=lambda ref: (-roles[ref], ref),
        )
        if size > free + coming + sum(held[ref].size for ref in weaker):
            refused[reference] = (
                f"needs {size} bytes of memory; {memory} are allowed, more important versions hold them"
            )
            continue
        if busy or free < size <= free + coming:
            return None, [], refused
        if size <= free:
            return reference, [], refused
        makes_room: list[Reference] = []
        while size > free + coming + sum(held[ref].size for ref in makes_room):
            makes_room.append(weaker[len(makes_room)])
        return None, makes_room, refused
    return None, [], refused


def _asked_for(
    store: Mapping[str, StoredModel], service: Mapping[str, ModelState], held: Mapping[Reference, VersionState]
) -> list[tuple[int, Reference, int]]:
    """Importance, version and size of what labels and pins ask for and is not known, most important first."""
    asked = [
        (IMPORTANCE[label], Reference(model, version))
        for model, stored in store.items()
        for label, version in stored.labels.items()
    ]
    asked += [
        (IMPORTANCE["pinned"], Reference(model, version))
        for model, served in service.items()
        for version in served.pinned
    ]
    found: dict[Reference, tuple[int, Reference, int]] = {}
    for importance, reference in sorted(asked):
        sizes = store[reference.model].sizes if reference.model in store else {}
        if reference.version in sizes and reference not in held:
            found.setdefault(reference, (importance, reference, sizes[reference.version]))
    return list(found.values())


def _held(service: Mapping[str, ModelState]) -> Iterator[tuple[Reference, VersionState]]:
    for model in sorted(service):
        for version, held in sorted(service[model].versions.items()):
            yield Reference(model, version), held
