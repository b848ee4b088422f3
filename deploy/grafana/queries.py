"""A graph of the dashboard, and the PromQL that its queries are made of."""

from __future__ import annotations

from dataclasses import dataclass

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


def ratio(above: str, below: str) -> str:
    """The PromQL of a quotient, without a value where `below` is nought."""
    return f"{above} / ({below} > 0)"


def total(counter: str, by: str = "", matchers: str = HERE) -> str:
    """The PromQL of a counter's rate over all replicas."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({counter}{{{matchers}}}{RATE}))"
