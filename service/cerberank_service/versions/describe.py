"""The entries of `/v1/models`: the known versions with their states, labels and facts.

The entries are readable without a key, so they contain names of files without folders; the log has the full paths.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cerberank_models.calibration import Calibration
from cerberank_models.checkpoint.store.checkpoint_store import LABELS, Reference
from cerberank_models.config import DropSchedule
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.state import ModelState, Snapshot, State, VersionState, without_folders


def describe(snapshot: Snapshot, settings: Settings) -> list[dict[str, Any]]:
    """An entry for every version that is loaded, loading, refused or failed; without any, one entry without a name."""
    entries = [
        _entry(Reference(name, version), model, known, settings, snapshot)
        for name, model in sorted(snapshot.models.items())
        for version, known in sorted(model.versions.items())
    ]
    entries += [
        {
            "model": model,
            "version": version,
            "state": State.REFUSED.value,
            "reason": _named(reason, settings),
            "labels": [],
        }
        for (model, version), reason in sorted(snapshot.refused.items())
    ]
    return entries or [{"state": snapshot.state.value, "reason": _named(snapshot.reason, settings) or None}]


def list_names(snapshot: Snapshot, settings: Settings) -> dict[str, int]:
    """The names that a request may give as its model, aliases included, with their versions' creation in Unix seconds.

    A model without a ready stable version is left out.
    """
    stable = {live.reference.model: live for live in snapshot.stable() if live.engine.alive}
    created = {
        name: int(datetime.fromisoformat(live.checkpoint.manifest.created).timestamp()) for name, live in stable.items()
    }
    if snapshot.default in created:
        created = dict.fromkeys(settings.alias_names, created[snapshot.default]) | created
    return dict(sorted(created.items()))


def _entry(
    reference: Reference, model: ModelState, known: VersionState, settings: Settings, snapshot: Snapshot
) -> dict[str, Any]:
    state, wanted = known.status, snapshot.wanted.get(reference.model, {})
    if state is State.READY and known.live is not None and not known.live.engine.alive:
        state = State.FAILED
    entry = {
        "model": reference.model,
        "version": reference.version,
        "state": (State.STOPPED if snapshot.stopped else state).value,
        "reason": _named(known.reason, settings) or None,
        "labels": [label for label in LABELS if model.serving.get(label) == reference.version],
        "wanted": [label for label in LABELS if wanted.get(label) == reference.version],
        "rollback": model.previous == reference.version,
        "pinned": reference.version in model.pinned,
    }
    return entry if known.live is None else entry | _facts(known.live, settings)


def _facts(live: LiveVersion, settings: Settings) -> dict[str, Any]:
    """The fields of a loaded version."""
    config, manifest = live.checkpoint.config, live.checkpoint.manifest
    form, schedule = settings.form(manifest.files), live.schedule or config.schedule_for(1)
    return {
        "architecture": str(config.architecture),
        "stages": config.scored_stages,
        "exits": [exit_.after for exit_ in config.exits],
        "first_stage": _first_stage(live, settings),
        "drop_schedule": list(schedule.schedule),
        "lexical_ratio": schedule.lexical_ratio,
        "longer_lists": [] if live.schedule else [_dumped(longer) for longer in config.longer_lists],
        "drop_minimum": config.drop_minimum,
        "tuned_schedules": [_dumped(entry) for entry in config.tuned_schedules],
        # How to read a score.
        "score": config.score_form if live.checkpoint.calibration is None else f"calibrated from {config.score_form}",
        "calibration": _calibration(live.checkpoint.calibration),
        "max_length": config.encoding.max_length,
        "windows": config.encoding.windows,
        "question_length": config.candidate_encoding.question_limit,
        "question_part": config.candidate_encoding.question_part,
        "languages": list(config.languages),
        "context": config.encoding.segments == 3,
        "instruction": config.takes_instruction,
        "backend": form.backend,
        "backend_reason": form.reason,
        "precision": live.precision,
        "aliases": sorted(settings.alias_names),
        "metrics": manifest.metrics,
        "source": _named(manifest.source, settings),
    }


def _dumped(schedule: DropSchedule) -> dict[str, Any]:
    """The schedule with its lexical ratio, which `config.json` omits if it is 0."""
    return {**schedule.model_dump(mode="json"), "lexical_ratio": schedule.lexical_ratio}


def _calibration(calibration: Calibration | None) -> dict[str, Any] | None:
    """The calibration's questions and thresholds; None for a version that is not calibrated."""
    if calibration is None:
        return None
    data = calibration.data
    return {
        "questions": data.questions,
        "unanswered": data.unanswered,
        "unanswered_share": calibration.unanswered,
        "sets": list(data.sets),
        "format": data.precision,
        "confidence": calibration.confidence,
        "precision": [row.model_dump() for row in calibration.precision],
        "recall": [row.model_dump() for row in calibration.recall],
    }


def _first_stage(live: LiveVersion, settings: Settings) -> dict[str, Any] | None:
    """The first stage and its vectors; None for a version without one."""
    if (first := live.first_stage) is None:
        return None
    return {
        "encoder": first.config.encoder,
        "first_ranker": first.config.first_ranker is not None,
        "token_ranker": first.config.token_ranker,
        "candidate_length": first.config.encoding.document_length,
        "vectors": 0 if first.stored is None else len(first.stored),
        "without_vectors": _named(live.unused_vectors, settings) or None,
    }


def unready_reason(snapshot: Snapshot, settings: Settings) -> str:
    """The reason that no stable version serves; empty if one serves or is only being loaded."""
    if snapshot.stable():
        return ""
    down = [
        f"{name}@{version}: {known.reason}"
        for name, model in sorted(snapshot.models.items())
        for version, known in model.versions.items()
        if known.down and snapshot.wanted.get(name, {}).get("stable") == version
    ]
    down += [f"{'@'.join(reference)}: {why}" for reference, why in sorted(snapshot.refused.items())]
    return _named(snapshot.reason or "; ".join(down), settings)


def _named(text: str, settings: Settings) -> str:
    """The text with paths of files shortened to their names."""
    if settings.checkpoint is not None:
        text = text.replace(f"{settings.checkpoint.parent}/", "")
    return without_folders(text)
