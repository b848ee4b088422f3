"""Makes prometheus-operator/prometheus-rule.yaml from the files of deploy/prometheus/rules.

Run it by `python deploy/kubernetes/prometheus_rule.py` after a change of the rules; a test says when it was not run.
"""

from __future__ import annotations

from pathlib import Path

import yaml

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus" / "rules"
OUTPUT = HERE / "prometheus-operator" / "prometheus-rule.yaml"


def text() -> str:
    """The file's content."""
    groups = [group for path in sorted(RULES.glob("*.yml")) for group in yaml.safe_load(path.read_text())["groups"]]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "cerberank"},
        "spec": {"groups": groups},
    }
    head = "# Made by deploy/kubernetes/prometheus_rule.py; changes made here are lost.\n"
    return head + yaml.safe_dump(rule, sort_keys=False, width=120)


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
