from __future__ import annotations

import json
import re
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


def test_a_graph_has_one_unit() -> None:
    """Requests and tokens, or shares and counts, do not stand on one axis; a queue's seconds are in seconds."""
    for panel in (panel for panel in DASHBOARD["panels"] if panel["type"] != "row"):
        queries = " ".join(target["expr"] for target in panel["targets"])
        counted = {"tokens" for _ in re.findall(r"queued_tokens|key_tokens", queries)}
        counted |= {"requests" for _ in re.findall(r"requests_in_flight|key_requests|requests_total", queries)}
        assert len(counted) < 2, panel["title"]


def test_what_an_operator_asks_first_has_a_graph() -> None:
    """Latency by version and by replica, phases as quantiles, releases, starts, descriptors, keys, load, refusals."""
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    for labels in ("le, model, version", "le, instance", "le, phase"):
        assert any("histogram_quantile" in query and f"by ({labels})" in query for query in queries), labels
    wanted = {"build_info", "process_start_time_seconds", "process_open_fds"}
    wanted |= {"key_requests", "cancelled_requests", "step_tokens"}
    wanted |= {"offered_seconds", "refused_requests"}
    assert {name for name in wanted if not any(name in query for query in queries)} == set()
    assert not [query for query in queries if "request_phase_seconds_sum" in query]


def test_a_moved_label_is_marked() -> None:
    """In every graph, with what the label means from then on."""
    (marks,) = DASHBOARD["annotations"]["list"]
    assert marks["enable"]
    assert "cerberank_labelled_version" in marks["expr"]
    assert marks["titleFormat"] == "{{model}}@{{label}} = {{version}}"
