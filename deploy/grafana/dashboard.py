"""Makes the Grafana dashboard: `python deploy/grafana/dashboard.py` writes dashboards/cerberank.json beside this file.

Every query stands in ROWS once; tests run each against a real Prometheus that scrapes the service.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent / "dashboards" / "cerberank.json"
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS, HEIGHT = 24, 8
HERE = 'job="$job"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One graph; `queries` are legend -> PromQL."""

    title: str
    says: str
    """What a reader learns, and when to worry."""
    queries: dict[str, str]
    unit: str = "short"
    stacked: bool = False


def quantile(share: float, bucket: str, matchers: str = HERE) -> str:
    """The PromQL of a quantile over all replicas."""
    return f"histogram_quantile({share}, sum by (le) (rate({bucket}_bucket{{{matchers}}}{RATE})))"


def total(counter: str, by: str = "", matchers: str = HERE) -> str:
    """The PromQL of a counter's rate over all replicas."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({counter}{{{matchers}}}{RATE}))"


PHASES = "cerberank_request_phase_seconds"
WHOLE = f'{HERE}, phase="total"'
PARTS = f'{HERE}, phase!="total"'
REFUSED = f'{HERE}, kind=~"internal|unavailable"'
INCOMPLETE = f'{HERE}, complete="false"'
AGREE = f'{HERE}, agree="true"'
VERSIONS = "model, version"
TOP_MEAN = f"{total('cerberank_top_score_sum', VERSIONS)} / {total('cerberank_top_score_count', VERSIONS)}"

ROWS: dict[str, tuple[Panel, ...]] = {
    "What users get": (
        Panel(
            title="Requests",
            says="Answers, and errors by kind. malformed, invalid and not_found are the clients' own.",
            queries={
                "answered": total("cerberank_requests_total"),
                "{{kind}}": total("cerberank_errors_total", "kind"),
            },
            unit="reqps",
        ),
        Panel(
            title="Latency",
            says="From the body's arrival to the answer. The objective: 99 % within half a second.",
            queries={f"p{100 * share:g}": quantile(share, PHASES, WHOLE) for share in (0.5, 0.95, 0.99)},
            unit="s",
        ),
        Panel(
            title="Error budget burn over an hour",
            says="1 spends the budget of 30 days in 30 days; 14.4 wakes somebody.",
            queries={"{{slo}}": f"cerberank:slo_burn:rate1h{{{HERE}}}"},
        ),
        Panel(
            title="Refused, failed or incomplete",
            says="Shares of all requests: 5xx answers, and answers whose deadline passed.",
            queries={
                "refused or failed": f"{total('cerberank_errors_total', matchers=REFUSED)} / "
                f"({total('cerberank_requests_total')} + {total('cerberank_errors_total', matchers=REFUSED)})",
                "deadline passed": f"{total('cerberank_requests_total', matchers=INCOMPLETE)} / "
                f"{total('cerberank_requests_total')}",
            },
            unit="percentunit",
        ),
    ),
    "Where the time goes": (
        Panel(
            title="Mean latency by phase",
            says="A growing queue wants replicas, a growing compute smaller questions or a larger drop ratio.",
            queries={
                "{{phase}}": f"{total(PHASES + '_sum', 'phase', PARTS)} / {total(PHASES + '_count', 'phase', PARTS)}"
            },
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Queue",
            says="Seconds of model time that wait. Autoscaling keeps this short.",
            queries={"{{instance}}": f"cerberank:queue_seconds{{{HERE}}}"},
            unit="s",
        ),
        Panel(
            title="Model busy",
            says="Share of the time in which the model runs; near 100 % a replica is full.",
            queries={"{{instance}}": total("cerberank_engine_busy_seconds_total", "instance")},
            unit="percentunit",
        ),
        Panel(
            title="In flight",
            says="Requests being handled, and the tokens of those that wait for an answer.",
            queries={
                "requests": f"sum(cerberank_requests_in_flight{{{HERE}}})",
                "queued tokens": f"sum(cerberank_queued_tokens{{{HERE}}})",
            },
        ),
    ),
    "The cascade": (
        Panel(
            title="Tokens by stage",
            says="What each stage runs; the steps between them are what the exits saved.",
            queries={"stage {{stage}}": total("cerberank_tokens_total", "stage")},
        ),
        Panel(
            title="Candidates dropped by exit",
            says="Per second; none with a drop ratio of 0.",
            queries={"exit {{stage}}": total("cerberank_dropped_candidates_total", "stage")},
        ),
        Panel(
            title="Model time for a token",
            says="By stage. It rises when batches are small, or the processor is shared.",
            queries={
                "stage {{stage}}": f"{total('cerberank_engine_busy_seconds_total', 'stage')} / "
                f"{total('cerberank_tokens_total', 'stage')}"
            },
            unit="s",
        ),
        Panel(
            title="Batch size and padding",
            says="Tokens of a batch, and padding beside each hundred tokens.",
            queries={
                "tokens a batch": f"{total('cerberank_tokens_total')} / {total('cerberank_engine_steps_total')}",
                "padding in 100": f"100 * {total('cerberank_padding_tokens_total')} / "
                f"{total('cerberank_tokens_total')}",
            },
        ),
    ),
    "Questions": (
        Panel(
            title="Candidates of a request",
            says="Large ones take turns with small ones.",
            queries={f"p{100 * share:g}": quantile(share, "cerberank_request_candidates") for share in (0.5, 0.95)},
        ),
        Panel(
            title="Truncated and duplicate candidates",
            says="Shares of all candidates. Truncated ones are scored on part of their text.",
            queries={
                "truncated": f"{total('cerberank_truncated_candidates_total')} / "
                f"{total('cerberank_request_candidates_sum')}",
                "duplicates": f"{total('cerberank_duplicate_candidates_total')} / "
                f"{total('cerberank_request_candidates_sum')}",
            },
            unit="percentunit",
        ),
        Panel(
            title="Versions",
            says="Answers by version: a roll-out and its end.",
            queries={"{{model}} {{version}}": total("cerberank_requests_total", "model, version")},
            unit="reqps",
        ),
    ),
    "Quality without labels": (
        Panel(
            title="Heads that agree",
            says="Share of questions whose heads put the same candidate first. Falling means unfamiliar texts.",
            queries={
                "{{model}} {{version}}": f"{total('cerberank_head_agreement_total', VERSIONS, AGREE)} / "
                f"{total('cerberank_head_agreement_total', VERSIONS)}"
            },
            unit="percentunit",
        ),
        Panel(
            title="Score of the first candidate",
            says="Mean and deviation. A drift without a new version means other questions, or other candidates.",
            queries={
                "mean {{version}}": TOP_MEAN,
                "deviation {{version}}": f"sqrt(clamp_min({total('cerberank_top_score_squares_total', VERSIONS)} / "
                f"{total('cerberank_top_score_count', VERSIONS)} - ({TOP_MEAN}) ^ 2, 0))",
            },
        ),
    ),
    "The processes": (
        Panel(
            title="Ready replicas",
            says="Of those that are scraped.",
            queries={"ready": f"sum(cerberank_ready{{{HERE}}})", "scraped": f"count(up{{{HERE}}})"},
        ),
        Panel(
            title="Processors used",
            says="By replica.",
            queries={"{{instance}}": total("process_cpu_seconds_total", "instance")},
        ),
        Panel(
            title="Memory",
            says="Resident, by replica. It must not grow from day to day.",
            queries={"{{instance}}": f"process_resident_memory_bytes{{{HERE}}}"},
            unit="bytes",
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana provisions it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, members in ROWS.items():
        grid = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "gridPos": grid, "panels": []})
        width = COLUMNS // len(members)
        for place, panel in enumerate(members):
            grid = {"x": place * width, "y": y + 1, "w": width, "h": HEIGHT}
            panels.append({"id": len(panels) + 1, "gridPos": grid, **graph(panel)})
        y += HEIGHT + 1
    return {
        "uid": "cerberank",
        "title": "Cerberank",
        "description": "Made by deploy/grafana/dashboard.py; changes made here are lost.",
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable()]},
        "panels": panels,
    }


def graph(panel: Panel) -> dict[str, Any]:
    """A time series panel."""
    stacking = {"mode": "normal" if panel.stacked else "none"}
    custom = {"fillOpacity": 30 if panel.stacked else 5, "stacking": stacking, "showPoints": "never"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": DATASOURCE, "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def variable() -> dict[str, Any]:
    """`$job`: which scrape job is shown."""
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": "label_values(cerberank_ready, job)", "refId": "job"},
        "current": {"text": "cerberank", "value": "cerberank"},
        "refresh": 2,
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
