from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboards" / "cerberank.json").read_text())


def test_the_dashboard_is_what_the_code_makes(tmp_path: Path) -> None:
    """The file equals what the code generates, so it was neither edited nor forgotten."""
    made = "import sys; sys.path.insert(0, sys.argv[1]); import dashboard; sys.stdout.write(dashboard.text())"
    result = subprocess.run([sys.executable, "-c", made, str(FOLDER)], capture_output=True, text=True, check=True)
    assert result.stdout == (FOLDER / "dashboards" / "cerberank.json").read_text()


def test_panels_neither_overlap_nor_leave_the_grid() -> None:
    """24 columns; ids are unique."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_graph_says_what_it_is_for() -> None:
    """A title, a description, a legend for each query, the provisioned data source."""
    (source,) = yaml.safe_load((FOLDER / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    graphs = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len(graphs) > 12
    for graph in graphs:
        assert graph["title"]
        assert graph["description"]
        for target in graph["targets"]:
            assert target["legendFormat"]
            assert target["datasource"]["uid"] == source["uid"]
