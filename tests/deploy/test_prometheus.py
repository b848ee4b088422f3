from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tools.process import installed

from cerberank_service.engine.engine import LEAST_SECONDS
from cerberank_service.telemetry.series import SECONDS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules" / "alerts.yml").read_text())["groups"][0]["rules"]

RUN_BOOK = "{{ with $externalLabels.runbook }}{{ . }}{{ else }}docs/runbook.md{{ end }}"
"""The external label that names the run book's address, and what the link says without it."""


def promtool(*arguments: str) -> None:
    result = subprocess.run(
        [installed("promtool", "prometheus"), *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_configuration_and_rules() -> None:
    """Syntax, and no rule twice."""
    promtool("check", "config", str(FOLDER / "prometheus.yml"))
    promtool("check", "rules", *map(str, sorted((FOLDER / "rules").glob("*.yml"))))


def test_each_alert_fires_in_its_fault_and_clears_after_it() -> None:
    """On scripted series, by promtool."""
    promtool("test", "rules", *map(str, sorted((FOLDER / "tests").glob("*.yml"))))


def test_the_controllers_queries_find_the_versions_that_the_page_says(tmp_path: Path) -> None:
    """One canary fails on all of its questions, one on few; a shadow agrees, one seldom does, one has few questions."""
    failing, sound = re.findall(r"```promql\n(.*?)```", (ROOT / "docs" / "versions.md").read_text(), re.DOTALL)

    def of(version: str, name: str, values: str, **labels: str) -> dict[str, str]:
        further = "".join(f', {label}="{value}"' for label, value in labels.items())
        return {"series": f'cerberank_{name}{{model="m", version="{version}"{further}}}', "values": values}

    series = [of(version, "labelled_version", "1x1500", label="canary") for version in ("fails", "works")]
    series += [of(version, "labelled_version", "1x1500", label="shadow") for version in ("agrees", "differs", "new")]
    answered = {"fails": "0x1500", "works": "0+1000x1500", "stable": "0x1500"}
    series += [of(version, "requests_total", values, complete="true") for version, values in answered.items()]
    series += [of(version, "failed_questions_total", "0+5x1500") for version in answered]
    for version, questions, flips in (("agrees", 2, "0.1"), ("differs", 2, "0.5"), ("new", 0.1, "0")):
        series.append(of(version, "shadow_questions_total", f"0+{questions}x1500"))
        series.append(of(version, "shadow_flips_total", f"0+{flips}x1500"))
        series.append(of(version, "shadow_failures_total", "0x1500"))
        series.append(of(version, "shadow_seconds_total", "0+1x1500"))
        series.append(of(version, "shadow_stable_seconds_total", "0+1x1500"))
    expected = ((failing, "fails", 50.0), (sound, "agrees", 2880.0))
    cases = [
        {
            "expr": query,
            "eval_time": "25h",
            "exp_samples": [{"labels": f'{{model="m", version="{name}"}}', "value": value}],
        }
        for query, name, value in expected
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    script = tmp_path / "queries.yml"
    script.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    promtool("test", "rules", str(script))


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
        assert alert.get("labels", {"severity": "page"})["severity"] in ("page", "ticket")


def test_the_latency_objective_is_a_bucket_of_the_histogram() -> None:
    """Between two buckets a rule could not count."""
    (bucket,) = re.findall(r'le="([\d.]+)"', (FOLDER / "rules" / "recording.yml").read_text())
    assert float(bucket) in SECONDS


def test_a_missing_replica_is_one_that_the_autoscalers_keep() -> None:
    """The number of replicas that the alert wants is the least number of deploy/kubernetes and deploy/ray."""
    rules = yaml.safe_load((FOLDER / "rules" / "recording.yml").read_text())["groups"][0]["rules"]
    (wanted,) = [rule["expr"] for rule in rules if rule["record"] == "cerberank:replicas_wanted"]
    scaler = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "base" / "autoscaler.yaml").read_text())
    assert wanted == f"vector({scaler['spec']['minReplicas']})"


def test_a_failing_canary_is_the_one_that_a_controller_takes_back() -> None:
    """The alert has the query of docs/versions.md."""
    (query, _) = re.findall(r"```promql\n(.*?)```", (ROOT / "docs" / "versions.md").read_text(), re.DOTALL)
    (expression,) = [alert["expr"] for alert in ALERTS if alert["alert"] == "CerberankCanaryOrShadowFails"]
    assert " ".join(query.split()) in " ".join(expression.split())
