"""Makes the Grafana dashboard: `python deploy/grafana/dashboard.py` writes dashboards/cerberank.json beside this file.

What it shows stands in `traffic.py` and `operation.py`; tests run each query against a real Prometheus that scrapes the
service.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from operation import OPERATION
from queries import HERE, Panel
from traffic import TRAFFIC

OUTPUT = Path(__file__).parent / "dashboards" / "cerberank.json"
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS, HEIGHT = 24, 8


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana provisions it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, members in (TRAFFIC | OPERATION).items():
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
        "annotations": {"list": [label_moves()]},
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
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend,
                "exemplar": "_bucket" in query,
            }
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


def label_moves() -> dict[str, Any]:
    """A mark in every graph where a label begins to mean a version on some replica; a replica more is not a move."""
    now = f"sum by (model, label, version) (cerberank_labelled_version{{{HERE}}})"
    before = f"sum by (model, label, version) (cerberank_labelled_version{{{HERE}}} offset 1m)"
    return {
        "name": "Label moves",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "orange",
        "expr": f"{now} unless {before}",
        "step": "60s",
        "titleFormat": "{{model}}@{{label}} = {{version}}",
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
