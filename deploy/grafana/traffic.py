"""What the dashboard shows of requests: every query stands here once, with what it tells.

Shares are undefined, and drawn as a gap, while nothing is counted.
"""

from __future__ import annotations

from queries import HERE, VERSIONS, Panel, quantile, ratio, total

PHASES = "cerberank_request_phase_seconds"
WHOLE = f'{HERE}, phase="total"'
PARTS = f'{HERE}, phase!="total"'
REFUSED = f'{HERE}, kind=~"internal|unavailable"'
INCOMPLETE = f'{HERE}, complete="false"'

PROXY = 'job="$job-proxy"'
FIRING = 'ALERTS{alertstate="firing", alertname=~"Cerberank.+"}'

TRAFFIC: dict[str, tuple[Panel, ...]] = {
    "Alerts and the proxy": (
        Panel(
            title="Firing alerts",
            says="By name. Each has a section in the run book.",
            queries={"{{alertname}}": f"sum by (alertname) ({FIRING}) or vector(0)"},
        ),
        Panel(
            title="What clients got",
            says="POSTs by the proxy's log, each counted once: the availability objective. Empty without mtail.",
            queries={
                "answered": total("cerberank_proxy_answered_total", matchers=PROXY),
                "failed": total("cerberank_proxy_failed_total", matchers=PROXY),
            },
            unit="reqps",
        ),
    ),
    "What users get": (
        Panel(
            title="Requests",
            says="Answers, and errors by kind. malformed, invalid and not_found are the clients' own.",
            queries={
                "answered": total("cerberank_requests_total"),
                "{{kind}}": total("cerberank_errors_total", "kind"),
            },
            unit="reqps",
        ),
        Panel(
            title="Latency",
            says="From the body's arrival to the answer. The objective stands in the recording rules.",
            queries={f"p{100 * share:g}": quantile(share, PHASES, WHOLE) for share in (0.5, 0.95, 0.99)},
            unit="s",
        ),
        Panel(
            title="Error budget burn over an hour",
            says="1 spends the budget of 30 days in 30 days; 14.4, with ten failures or more, fires an alert.",
            queries={"{{slo}}": f"cerberank:slo_burn:rate1h{{{HERE}}}"},
        ),
        Panel(
            title="Refused, failed or incomplete",
            says="Shares of what reached the replicas, a retry counted again: 5xx, and answers whose deadline passed.",
            queries={
                "refused or failed": ratio(
                    total("cerberank_errors_total", matchers=REFUSED),
                    f"({total('cerberank_requests_total')} + {total('cerberank_errors_total', matchers=REFUSED)})",
                ),
                "deadline passed": ratio(
                    total("cerberank_requests_total", matchers=INCOMPLETE), total("cerberank_requests_total")
                ),
            },
            unit="percentunit",
        ),
    ),
    "Where the time goes": (
        Panel(
            title="Latency by phase",
            says="p95 of each. A growing queue wants replicas, growing compute smaller questions or more drops.",
            queries={"{{phase}}": quantile(0.95, PHASES, PARTS, "phase")},
            unit="s",
        ),
        Panel(
            title="Latency by version",
            says="p99. A roll-out is marked where a label moves; a slower version rises beside the one before.",
            queries={"{{model}}@{{version}}": quantile(0.99, PHASES, WHOLE, VERSIONS)},
            unit="s",
        ),
        Panel(
            title="Latency by replica",
            says="p99. One replica above the others: its machine is shared, or slower.",
            queries={"{{instance}}": quantile(0.99, PHASES, WHOLE, "instance")},
            unit="s",
        ),
        Panel(
            title="Queue",
            says="Seconds of model time that a replica expects for what it has accepted; what does not fit is refused.",
            queries={"{{instance}}": f"cerberank_queued_seconds{{{HERE}}}"},
            unit="s",
        ),
    ),
    "Load": (
        Panel(
            title="Model busy",
            says="Share of the time in which the model runs; near 100 % a replica is full.",
            queries={"{{instance}}": total("cerberank_engine_busy_seconds_total", "instance")},
            unit="percentunit",
        ),
        Panel(
            title="Requests in flight",
            says="Being handled, by replica.",
            queries={"{{instance}}": f"cerberank_requests_in_flight{{{HERE}}}"},
        ),
        Panel(
            title="Queued tokens",
            says="Of accepted requests without an answer. A level line without any answer: the engine hangs.",
            queries={"{{instance}}": f"cerberank_queued_tokens{{{HERE}}}"},
        ),
        Panel(
            title="Clients that hung up",
            says="Questions that were dropped because nobody waited any more. Many: their time-outs are too short.",
            queries={"{{model}}@{{version}}": total("cerberank_cancelled_requests_total", VERSIONS)},
            unit="reqps",
        ),
    ),
    "Overload": (
        Panel(
            title="Offered compute",
            says="Seconds of compute that questions ask for each second, as predicted; a replica can do one a second.",
            queries={"{{outcome}}": total("cerberank_offered_seconds_total", "outcome")},
            stacked=True,
        ),
        Panel(
            title="Offered to each replica",
            says="The same by replica, refused questions included: what autoscaling keeps at its target.",
            queries={"{{instance}}": total("cerberank_offered_seconds_total", "instance")},
            unit="percentunit",
        ),
        Panel(
            title="Refusals",
            says="By reason, each try counted. queue, deadline, memory and connections are overload.",
            queries={"{{reason}}": total("cerberank_refused_requests_total", "reason")},
            unit="reqps",
        ),
    ),
    "The cascade": (
        Panel(
            title="Tokens by stage",
            says="What each stage runs; the steps between them are what the exits saved.",
            queries={"stage {{stage}}": total("cerberank_tokens_total", "stage")},
        ),
        Panel(
            title="Candidates dropped by exit",
            says="Per second, and by the lexical layer before the first stage; none with a drop ratio of 0.",
            queries={
                "exit {{stage}}": total("cerberank_dropped_candidates_total", "stage"),
                "lexical layer": total("cerberank_lexical_dropped_candidates_total"),
            },
        ),
        Panel(
            title="Model time for a token",
            says="By stage. It rises when batches are small, or the processor is shared.",
            queries={
                "stage {{stage}}": ratio(
                    total("cerberank_engine_busy_seconds_total", "stage"), total("cerberank_tokens_total", "stage")
                )
            },
            unit="s",
        ),
    ),
    "Steps": (
        Panel(
            title="Tokens of a step",
            says="What steps hold in the mean, and may hold: halved when memory runs out, raised again later.",
            queries={
                "mean": ratio(total("cerberank_tokens_total"), total("cerberank_engine_steps_total")),
                "limit {{instance}}": f"cerberank_step_tokens{{{HERE}}}",
            },
        ),
        Panel(
            title="Padding",
            says="Tokens that are run for nothing beside the real ones.",
            queries={"padding": ratio(total("cerberank_padding_tokens_total"), total("cerberank_tokens_total"))},
            unit="percentunit",
        ),
        Panel(
            title="Waiting states",
            says="Memory of hidden states between steps, by version.",
            queries={"{{model}}@{{version}}": f"sum by ({VERSIONS}) (cerberank_state_bytes{{{HERE}}})"},
            unit="bytes",
        ),
        Panel(
            title="Memory ran out",
            says="Steps in an hour that were tried again in halves.",
            queries={"{{version}}": f"sum by ({VERSIONS}) (increase(cerberank_out_of_memory_total{{{HERE}}}[1h]))"},
        ),
    ),
    "Questions": (
        Panel(
            title="Candidates of a request",
            says="Large ones take turns with small ones.",
            queries={f"p{100 * share:g}": quantile(share, "cerberank_request_candidates") for share in (0.5, 0.95)},
        ),
        Panel(
            title="Truncated and duplicate candidates",
            says="Shares of all candidates. Truncated ones are scored on part of their text.",
            queries={
                "truncated": ratio(
                    total("cerberank_truncated_candidates_total"), total("cerberank_request_candidates_sum")
                ),
                "duplicates": ratio(
                    total("cerberank_duplicate_candidates_total"), total("cerberank_request_candidates_sum")
                ),
            },
            unit="percentunit",
        ),
        Panel(
            title="Cached tokens",
            says="Share of texts that need not be tokenised, because their tokens are cached; 0 if none comes again.",
            queries={
                "cached": ratio(
                    total("cerberank_token_cache_hits_total"),
                    f"({total('cerberank_token_cache_hits_total')} + {total('cerberank_token_cache_misses_total')})",
                )
            },
            unit="percentunit",
        ),
        Panel(
            title="Wasted work",
            says="Tokens that ran for nobody (errors, clients that hung up), or again because memory was short.",
            queries={
                "for nobody": ratio(total("cerberank_wasted_tokens_total"), total("cerberank_tokens_total")),
                "again": ratio(total("cerberank_recomputed_tokens_total"), total("cerberank_tokens_total")),
            },
            unit="percentunit",
        ),
    ),
}
