"""A graph of the dashboard, and the PromQL that its queries are made of."""

from __future__ import annotations

from dataclasses import dataclass

HERE = 'job="$job"'
RATE = "[$__rate_interval]"
VERSIONS = "model, version"
"""The labels that a graph by version groups by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One graph; `queries` are legend -> PromQL."""

    title: str
    says: str
    """What a reader learns, and when to worry."""
    queries: dict[str, str]
    unit: str = "short"
    stacked: bool = False


def quantile(share: float, bucket: str, matchers: str = HERE, by: str = "") -> str:
    """The PromQL of a quantile over all replicas, or for each value of the labels in `by`.

    Where nothing was counted there is no value, instead of one that is not a number.
    """
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({bucket}_bucket{{{matchers}}}{RATE}))) >= 0"


def ratio(above: str, below: str) -> str:
    """The PromQL of a quotient, without a value where `below` is nought."""
    return f"{above} / ({below} > 0)"


def total(counter: str, by: str = "", matchers: str = HERE) -> str:
    """The PromQL of a counter's rate over all replicas."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({counter}{{{matchers}}}{RATE}))"
