"""The table of all series in docs/metrics.md, printed by `python -m cerberank_service.telemetry.metrics_table`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from cerberank_models.config import TunedSchedule
from cerberank_service.telemetry.lifecycle_metrics import LabelCollector
from cerberank_service.telemetry.metrics import Metrics

BOUNDS = "le"
"""The label that every histogram has."""


def markdown_table() -> str:
    """Name, type, labels and meaning of each family, as an app with one version has them."""
    rows = ["| series | type | labels | meaning |", "|---|---|---|---|"]
    for family in _families():
        labels = {label for sample in family.samples for label in sample.labels} - {BOUNDS}
        name = family.name + ("_total" if family.type == "counter" else "")
        shown = ", ".join(f"`{label}`" for label in sorted(labels))
        rows.append(f"| `{name}` | {family.type} | {shown} | {family.documentation} |")
    return "\n".join(rows)


def _families() -> Iterator[Metric]:
    metrics = Metrics()
    tuned = TunedSchedule(schedule=(0.5,), cost=0.5, metrics={"map": 0.0})
    metrics.for_model("model", "version", 2, tuned=[tuned])
    metrics.for_key("key")
    metrics.registry.register(LabelCollector(lambda: [("model", "stable", "version")]))
    return iter(sorted(metrics.registry.collect(), key=lambda family: str(family.name)))


if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")
