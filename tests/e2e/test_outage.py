"""The counts of the proxy and the messages of Alertmanager in an outage: real services, with minutes made seconds."""

from __future__ import annotations

import re
from pathlib import Path

from tools.monitoring import WAIT_SECONDS
from tools.outage import Pace, check

ALERTS = {"CerberankProxyDown", "CerberankProxyNotCounted", "CerberankNoReplicaReady"}
SHORT = {"2m": "2s", "5m": "2s", "10m": "2s", "15m": "2s", "30m": "2s", "1h": "3s", "6h": "3s", "3d": "4s"}
"""Windows of the rules, in their order of length; a day stays one."""


def in_seconds(rules: str) -> str:
    """The rules for one replica, with short windows and few questions."""
    rules = re.sub(r">= 10\b", ">= 1", rules)
    rules = re.sub(r"(\[|offset )(\d+[mhd])\b", lambda match: match[1] + SHORT.get(match[2], match[2]), rules)
    rules = rules.replace("expr: vector(2)", "expr: vector(1)")
    return re.sub(r"for: \d+[mh]", "for: 500ms", rules)


def test_an_outage_is_counted_and_told(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Behind the proxy: the replicas, mtail and nginx end; Alertmanager sends pages and a ticket.

    `python -m tools.outage` does the same with the windows and the intervals of the configuration.
    """

    def soon(routes: str) -> str:
        return re.sub(r"(group_\w+): \d+[sm]", r"\1: 100ms", routes)

    pace = Pace(
        load_seconds=4.0, outage_seconds=4.0, page_seconds=WAIT_SECONDS, interval="250ms", rules=in_seconds, routes=soon
    )
    findings = check(tmp_path, tiny_checkpoint, pace)
    for seen, counted in findings.counts.values():
        assert counted == seen
    assert findings.counts["all is well"][0].failed == 0
    assert findings.counts["both replicas stopped"][0].answered == 0
    assert set(findings.seconds) == ALERTS
