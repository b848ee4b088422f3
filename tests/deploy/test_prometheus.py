from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cerberank_service.engine.watchdog import LEAST_SECONDS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules" / "alerts.yml").read_text())["groups"][0]["rules"]

RUN_BOOK = "{{ with $externalLabels.runbook }}{{ . }}{{ else }}docs/runbook.md{{ end }}"
"""The external label that names the run book's address, and what the link says without it."""


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool, of Debian's prometheus")
    result = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_configuration_and_rules() -> None:
    """Syntax, and no rule twice."""
    promtool("check", "config", str(FOLDER / "prometheus.yml"))
    promtool("check", "rules", *map(str, sorted((FOLDER / "rules").glob("*.yml"))))


@pytest.mark.slow
def test_each_alert_fires_in_its_fault_and_clears_after_it() -> None:
    """On scripted series, by promtool."""
    promtool("test", "rules", *map(str, sorted((FOLDER / "tests").glob("*.yml"))))


def test_no_alert_is_without_its_test() -> None:
    """Each alert has a test that expects it to fire, and one that expects it not to."""
    cases: dict[str, set[bool]] = {}
    scripts = [yaml.safe_load(path.read_text()) for path in sorted((FOLDER / "tests").glob("*.yml"))]
    for test in (test for script in scripts for test in script["tests"]):
        for case in test.get("alert_rule_test", []):
            cases.setdefault(case["alertname"], set()).add("exp_alerts" in case)
    assert cases == {alert["alert"]: {True, False} for alert in ALERTS}


def test_an_engine_that_is_given_up_is_above_its_alert_s_threshold() -> None:
    """From then on its queue is empty and its seconds without progress stay as they are, just above the least pause."""
    (expression,) = [alert["expr"] for alert in ALERTS if alert["alert"] == "CerberankQueueStuck"]
    assert expression == f'cerberank_stalled_seconds{{job="cerberank"}} > {LEAST_SECONDS:g}'


def test_each_alert_has_its_section_in_the_run_book() -> None:
    """And each section its alert; the annotation leads there."""
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted({alert["alert"] for alert in ALERTS})
    for alert in ALERTS:
        base, _, section = alert["annotations"]["runbook_url"].rpartition("#")
        assert (base, section) == (RUN_BOOK, alert["alert"].lower())
        assert alert["labels"]["severity"] in ("page", "ticket")
