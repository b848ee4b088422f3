from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.process import installed

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILE = DEPLOY / "alertmanager" / "alertmanager.yml"
CONFIG: dict[str, Any] = yaml.safe_load(FILE.read_text())
ALERTS = {
    rule["alert"]: rule
    for rule in yaml.safe_load((DEPLOY / "prometheus" / "rules" / "alerts.yml").read_text())["groups"][0]["rules"]
}
RECORDED = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "rules" / "recording.yml").read_text())["groups"]
    for rule in group["rules"]
]
MATCHER = re.compile(r'(\w+)(=~?)"(.*)"')


def test_amtool_accepts_it() -> None:
    """By Alertmanager's own check of its configuration."""
    program = installed("amtool", "prometheus-alertmanager")
    result = subprocess.run([program, "check-config", str(FILE)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_severity_has_a_receiver() -> None:
    """A page does not go where tickets go, and every route ends at a receiver that exists."""
    receivers = {receiver["name"] for receiver in CONFIG["receivers"]}
    (pages,) = CONFIG["route"]["routes"]
    assert {CONFIG["route"]["receiver"], pages["receiver"]} == receivers == {"pages", "tickets"}
    assert pages["matchers"] == ['severity="page"']
    assert {severity for name in ALERTS for severity in severities(name)} == {"page", "ticket"}


@pytest.mark.parametrize("rule", CONFIG["inhibit_rules"], ids=lambda rule: rule["source_matchers"][0])
def test_what_is_held_back_follows_from_an_alert_that_exists(rule: dict[str, Any]) -> None:
    """By the alerts' names; a page is held back by a page alone, and both sides have the labels that must be equal."""
    (source,) = matched(rule["source_matchers"])
    targets = matched(rule["target_matchers"])
    assert targets
    assert source not in targets
    held = {severity for name in targets for severity in severities(name)}
    assert "page" not in held or severities(source) == {"page"}


def severities(name: str) -> set[str]:
    """The severity of an alert, or those of the objectives for which it fires."""
    if "labels" in ALERTS[name]:
        return {ALERTS[name]["labels"]["severity"]}
    return {rule["labels"]["severity"] for rule in RECORDED if "severity" in rule.get("labels", {})}


def matched(matchers: list[str]) -> set[str]:
    """The alerts that one matcher on their name selects."""
    (only,) = matchers
    match = MATCHER.fullmatch(only)
    assert match is not None, only
    assert match[1] == "alertname"
    pattern = match[3] if match[2] == "=~" else re.escape(match[3])
    return {name for name in ALERTS if re.fullmatch(pattern, name)}
