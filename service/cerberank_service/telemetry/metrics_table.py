"""The table of all series in docs/metrics.md, printed by `python -m cerberank_service.telemetry.metrics_table`."""

from __future__ import annotations

import sys

from prometheus_client import ProcessCollector

from cerberank_service.telemetry.series import PREFIX, SCRAPED, SERIES, TOKEN_CACHE, VECTOR_CACHE


def markdown_table() -> str:
    """Name, type, labels and meaning of each series, including prometheus_client's series about the process."""
    series = (*SERIES, *SCRAPED, *TOKEN_CACHE, *VECTOR_CACHE)
    declared = [(PREFIX + each.name, each.kind, sorted(each.labels), each.help) for each in series]
    process: list[tuple[str, str, list[str], str]] = [
        (each.name, each.type, [], each.documentation) for each in ProcessCollector(registry=None).collect()
    ]
    rows = ["| series | type | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, meaning in sorted([*declared, *process]):
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{name}{'_total' if kind == 'counter' else ''}` | {kind} | {shown} | {meaning} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")
