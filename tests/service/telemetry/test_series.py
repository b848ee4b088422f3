from __future__ import annotations

import re

from prometheus_client import CollectorRegistry

from cerberank_models.config import TunedSchedule
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import PREFIX, SCRAPED, Families

TUNED = TunedSchedule(schedule=(0.5,), cost=0.5, metrics={"map": 80.0})
CREATED, BOUND = "_created", "le"


def label_sets(registry: CollectorRegistry) -> dict[str, set[frozenset[str]]]:
    """The names of the labels that each family's samples have, but for a histogram's bounds."""
    return {
        family.name: {frozenset(sample.labels) - {BOUND} for sample in family.samples}
        for family in registry.collect()
        if not family.name.startswith("process_")
    }


def test_what_is_registered_is_what_is_declared() -> None:
    """Name, type, meaning and labels of every family are those of the table, and every declared one has children."""
    metrics = Metrics()
    metrics.for_model("m", "1", 2, tuned=[TUNED])
    metrics.for_key("k")
    metrics.lifecycle.rejected("torn", "m", "1")
    metrics.families.create_shadow("m", "1")
    for family in (metrics.families.graph_hits, metrics.families.graph_misses):
        family.labels("m", "1")
    metrics.families.vectors.labels("cache", "m", "1")
    declared = metrics.families.declared
    families = [each for each in metrics.registry.collect() if not each.name.startswith("process_")]
    assert [(each.name, each.type, each.documentation) for each in families] == [
        (PREFIX + each.name, each.kind, each.help) for each in declared
    ]
    assert label_sets(metrics.registry) == {PREFIX + each.name: {frozenset(each.labels)} for each in declared}
    assert len({each.name for each in (*declared, *SCRAPED)}) == len(declared) + len(SCRAPED)


def test_a_version_leaves_nothing_behind_and_takes_nothing_of_others() -> None:
    """Removing a version removes each child with its labels, and restores what there was before it came."""
    metrics = Metrics()
    metrics.for_model("m", "1", 2, tuned=[TUNED])

    def samples() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        found = [sample for family in metrics.registry.collect() for sample in family.samples]
        return {(sample.name, frozenset(sample.labels.items())) for sample in found}

    assert not {name for name, _ in samples() if re.match(r"cerberank_(shadow|graph|vectors)_", name)}
    before = samples()
    metrics.for_model("m", "2", 3, tuned=[TUNED])
    metrics.families.create_shadow("m", "2")
    assert samples() > before
    metrics.forget("m", "2")
    assert samples() == before


def test_creating_what_exists_keeps_its_count() -> None:
    """A second version does not set the first one's, or the process's, counters back."""
    families = Families(registry := CollectorRegistry())
    families.create(model=["m"], version=["1"])
    families.errors.labels("timeout").inc()
    families.shadow_skipped.labels("m", "1").inc()
    families.create(model=["m"], version=["1"])
    assert registry.get_sample_value("cerberank_errors_total", {"kind": "timeout"}) == 1.0
    assert registry.get_sample_value("cerberank_shadow_skipped_total", {"model": "m", "version": "1"}) == 1.0
