"""Decides which versions to load and unload and which labels to move, from the states of the store and the service.

- A label moves only to a version that is ready, and a serving version stays until its successor is ready.
- The previous stable version stays loaded for a rollback.
- While no version serves as stable, the version that last served as stable stands in for the one that `stable` names.
  It is loaded first if there is room for both: the other one may be bad, and to find that out may take minutes.
- A version that is being loaded is given up for a while if a more important one is to be loaded.
- When memory is short, less important versions are unloaded to make room for more important ones, never the reverse,
  so that decisions cannot alternate. (This follows TF Serving's AvailabilityPreservingPolicy.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cerberank_models.checkpoint.store.checkpoint_store import LABELS, Label, Reference
from cerberank_service.versions.state import ModelState, State, VersionState

IMPORTANCE = {"stable": 0, "canary": 1, "rollback": 2, "pinned": 3, "shadow": 4}
"""Importance of a version by its role; 0 is the most important. A version may replace versions with larger numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredModel:
    """A model in the store."""

    labels: Mapping[Label, str]
    sizes: Mapping[str, int]
    """Estimated memory of each version in bytes; a version without an entry is not in the store."""
    served: tuple[str, ...] = ()
    """Versions that served as stable in any replica, latest first; empty while this replica has a stable version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flip:
    """A label's move to another version, which routes its requests there; None removes the label."""

    model: str
    label: Label
    version: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The next actions, beginning with the flips. A flip of `stable` makes the old stable version the previous one."""

    flips: tuple[Flip, ...] = ()
    unload: tuple[Reference, ...] = ()
    load: Reference | None = None
    """The version to load. Versions are loaded one at a time, because their real memory is known only afterwards."""
    overtaken: Reference | None = None
    """The version that is being loaded while a more important one waits."""
    refused: Mapping[Reference, str] = field(default_factory=dict)
    """Versions that a label or pin names but that do not fit into memory, with the reason."""


class WantedVersion(NamedTuple):
    """A version that is to be loaded, or is already."""

    importance: int
    reference: Reference
    size: int


def decide(store: Mapping[str, StoredModel] | None, service: Mapping[str, ModelState], *, memory: int) -> Decision:
    """The next decision. It is empty while the store cannot be read (`store` is None).

    `memory` is the limit, in bytes, for all versions together. If each decision is carried out before the next call,
    the decisions eventually become empty.
    """
    if store is None:
        return Decision()
    # Labels move first, so that what has no role any more is known.
    flips = tuple(flip for model in sorted(service) for flip in _flips(model, store.get(model), service[model]))
    roles = _roles(service, flips)
    ready = [ref for ref, held in _held(service) if held.status is State.READY]
    idle = [ref for ref in ready if ref not in roles]
    wanted = _wanted_versions(store, service, memory)
    load, makes_room, refused = _next_load(wanted, service, roles, memory)
    # A version that makes room loses its labels before it is unloaded.
    gone = tuple(
        Flip(model=ref.model, label=label, version=None)
        for ref in makes_room
        for label, version in _after(service[ref.model], ref.model, flips).serving.items()
        if version == ref.version
    )
    return Decision(
        flips=flips + gone,
        unload=tuple(idle + makes_room),
        load=load,
        overtaken=_overtaken([version for version in wanted if version.reference not in refused], service),
        refused=refused,
    )


def _flips(model: str, stored: StoredModel | None, served: ModelState) -> Iterator[Flip]:
    labels = stored.labels if stored else {}
    for label in LABELS:
        target, now = labels.get(label), served.serving.get(label)
        if target is None:
            # `stable` is kept when its label is removed: without a stable version every request would fail.
            if now is not None and label != "stable":
                yield Flip(model=model, label=label, version=None)
        elif target != now and served.is_ready(target):
            yield Flip(model=model, label=label, version=target)
        elif label == "stable" and now is None and stored is not None:
            yield from (
                Flip(model=model, label=label, version=last)
                for last in _last(stored, served)[:1]
                if served.is_ready(last)
            )


def _last(stored: StoredModel, served: ModelState) -> list[str]:
    """Versions that can stand in for the stable one, best first; empty while a stable version serves."""
    if "stable" in served.serving or "stable" not in stored.labels:
        return []
    down = {version for version, known in served.versions.items() if known.down}
    return [version for version in stored.served if version in stored.sizes and version not in down]


def _after(served: ModelState, model: str, flips: tuple[Flip, ...]) -> ModelState:
    """The model after the flips."""
    for flip in flips:
        if flip.model == model:
            served = served.moved(flip.label, flip.version)
    return served


def _roles(service: Mapping[str, ModelState], flips: tuple[Flip, ...]) -> dict[Reference, int]:
    """The importance of every version that has a role after the flips, by its most important role."""
    roles: dict[Reference, int] = {}
    for model, served in service.items():
        after = _after(served, model, flips)
        pinned = [("pinned", version) for version in served.pinned if version in served.versions]
        for role, version in [*after.serving.items(), *pinned, ("rollback", after.previous)]:
            if version is not None:
                reference = Reference(model, version)
                roles[reference] = min(IMPORTANCE[role], roles.get(reference, len(IMPORTANCE)))
    return roles


def _overtaken(wanted: list[WantedVersion], service: Mapping[str, ModelState]) -> Reference | None:
    """The version that is being loaded, if a more important version of `wanted` is not loaded yet."""
    held = dict(_held(service))
    for loading in wanted:
        if loading.reference in held and held[loading.reference].status is State.LOADING:
            waiting = [
                other for other in wanted if other.reference not in held and other.importance < loading.importance
            ]
            return loading.reference if waiting else None
    return None


def _next_load(
    wanted: list[WantedVersion], service: Mapping[str, ModelState], roles: Mapping[Reference, int], memory: int
) -> tuple[Reference | None, list[Reference], dict[Reference, str]]:
    """The version to load now, the versions to unload first, and the versions that do not fit."""
    refused: dict[Reference, str] = {}
    held = dict(_held(service))
    free = memory - sum(item.size for item in held.values() if not item.down)
    # Memory that will be freed by versions that are unloading or have no role any more.
    coming = sum(
        item.size
        for ref, item in held.items()
        if item.status is State.UNLOADING or (item.status is State.READY and ref not in roles)
    )
    busy = any(item.status is State.LOADING for item in held.values())
    for importance, reference, size in wanted:
        if reference in held:
            continue
        # Only less important versions may be unloaded for it, the least important first.
        weaker = sorted(
            (ref for ref, role in roles.items() if role > importance and held[ref].status is State.READY),
            key=lambda ref: (-roles[ref], ref),
        )
        if size > free + coming + sum(held[ref].size for ref in weaker):
            refused[reference] = (
                f"needs {size} bytes of memory; CERBERANK_MODEL_MEMORY_BYTES allows {memory}, and no less important "
                "version holds enough of them"
            )
            continue
        # One version is loaded at a time, and only into memory that is free already.
        if busy or free < size <= free + coming:
            return None, [], refused
        if size <= free:
            return reference, [], refused
        makes_room: list[Reference] = []
        while size > free + coming + sum(held[ref].size for ref in makes_room):
            makes_room.append(weaker[len(makes_room)])
        return None, makes_room, refused
    return None, [], refused


def _wanted_versions(
    store: Mapping[str, StoredModel], service: Mapping[str, ModelState], memory: int
) -> list[WantedVersion]:
    """The versions of the store that labels and pins name, or that can stand in for a stable one.

    The most important version is first. A stand-in comes before the stable version if both fit into `memory`.
    """
    wanted = [
        (IMPORTANCE[label], 1, Reference(model, version))
        for model, stored in store.items()
        for label, version in stored.labels.items()
    ]
    for model, stored in store.items():
        for version in _last(stored, service.get(model, ModelState()))[:1]:
            both = stored.sizes[version] + stored.sizes.get(stored.labels["stable"], 0)
            wanted.append((IMPORTANCE["stable"], 0 if both <= memory else 2, Reference(model, version)))
    wanted += [
        (IMPORTANCE["pinned"], 1, Reference(model, version))
        for model, served in service.items()
        for version in served.pinned
    ]
    by_importance: dict[Reference, WantedVersion] = {}
    for importance, _, reference in sorted(wanted):
        sizes = store[reference.model].sizes if reference.model in store else {}
        if reference.version in sizes:
            by_importance.setdefault(reference, WantedVersion(importance, reference, sizes[reference.version]))
    return list(by_importance.values())


def _held(service: Mapping[str, ModelState]) -> Iterator[tuple[Reference, VersionState]]:
    for model in sorted(service):
        for version, held in sorted(service[model].versions.items()):
            yield Reference(model, version), held
