"""What the dashboard shows: every query stands here once, with what it tells.

Shares are undefined, and drawn as a gap, while nothing is counted.
"""

from __future__ import annotations

from queries import HERE, Panel, quantile, ratio, total

PHASES = "cerberank_request_phase_seconds"
WHOLE = f'{HERE}, phase="total"'
PARTS = f'{HERE}, phase!="total"'
REFUSED = f'{HERE}, kind=~"internal|unavailable"'
INCOMPLETE = f'{HERE}, complete="false"'
AGREE = f'{HERE}, agree="true"'
VERSIONS = "model, version"
TOP_MEAN = ratio(total("cerberank_top_score_sum", VERSIONS), total("cerberank_top_score_count", VERSIONS))
TOP_SQUARES = ratio(total("cerberank_top_score_squares_total", VERSIONS), total("cerberank_top_score_count", VERSIONS))

ROWS: dict[str, tuple[Panel, ...]] = {
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
            says="From the body's arrival to the answer. The objective: 99 % within half a second.",
            queries={f"p{100 * share:g}": quantile(share, PHASES, WHOLE) for share in (0.5, 0.95, 0.99)},
            unit="s",
        ),
        Panel(
            title="Error budget burn over an hour",
            says="1 spends the budget of 30 days in 30 days; 14.4 wakes somebody.",
            queries={"{{slo}}": f"cerberank:slo_burn:rate1h{{{HERE}}}"},
        ),
        Panel(
            title="Refused, failed or incomplete",
            says="Shares of all requests: 5xx answers, and answers whose deadline passed.",
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
            title="Mean latency by phase",
            says="A growing queue wants replicas, a growing compute smaller questions or a larger drop ratio.",
            queries={
                "{{phase}}": ratio(total(PHASES + "_sum", "phase", PARTS), total(PHASES + "_count", "phase", PARTS))
            },
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Queue",
            says="Seconds of model time that wait. Autoscaling keeps this short.",
            queries={"{{instance}}": f"cerberank_queued_seconds{{{HERE}}}"},
            unit="s",
        ),
        Panel(
            title="Model busy",
            says="Share of the time in which the model runs; near 100 % a replica is full.",
            queries={"{{instance}}": total("cerberank_engine_busy_seconds_total", "instance")},
            unit="percentunit",
        ),
        Panel(
            title="In flight",
            says="Requests being handled, and the tokens of those that wait for an answer.",
            queries={
                "requests": f"sum(cerberank_requests_in_flight{{{HERE}}})",
                "queued tokens": f"sum(cerberank_queued_tokens{{{HERE}}})",
            },
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
            says="Per second; none with a drop ratio of 0.",
            queries={"exit {{stage}}": total("cerberank_dropped_candidates_total", "stage")},
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
        Panel(
            title="Batch size and padding",
            says="Tokens of a batch, and padding beside each hundred tokens.",
            queries={
                "tokens a batch": ratio(total("cerberank_tokens_total"), total("cerberank_engine_steps_total")),
                "padding in 100": "100 * "
                + ratio(total("cerberank_padding_tokens_total"), total("cerberank_tokens_total")),
            },
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
    "Versions": (
        Panel(
            title="Answers by version",
            says="A roll-out and its end. What each label means stands beside it.",
            queries={"{{model}}@{{version}}": total("cerberank_requests_total", VERSIONS)},
            unit="reqps",
        ),
        Panel(
            title="Labels",
            says="Replicas on which a label means a version. Two versions under one label for long: a replica lags.",
            queries={
                "{{model}} {{label}} = {{version}}": f"sum by (model, label, version) "
                f"(cerberank_labelled_version{{{HERE}}})"
            },
        ),
        Panel(
            title="Moves and rejections in an hour",
            says="Labels that moved, versions that failed a check and do not serve, and replicas that see the store.",
            queries={
                "{{label}} moved": f"sum by (label) (increase(cerberank_label_flips_total{{{HERE}}}[1h]))",
                "rejected: {{reason}}": f"sum by (reason) (increase(cerberank_rejected_versions_total{{{HERE}}}[1h]))",
                "store is read": f"sum(cerberank_store_reachable{{{HERE}}})",
            },
        ),
        Panel(
            title="Shadow against stable",
            says="Mirrored questions: share with another first candidate, mean rank-biased overlap, ratio of compute.",
            queries={
                f"{name} {{{{version}}}}": ratio(
                    total(f"cerberank_shadow_{above}_total", VERSIONS),
                    total(f"cerberank_shadow_{below}_total", VERSIONS),
                )
                for name, above, below in (
                    ("flips", "flips", "questions"),
                    ("overlap", "overlap", "questions"),
                    ("compute", "seconds", "stable_seconds"),
                )
            },
        ),
    ),
    "Quality without labels": (
        Panel(
            title="Heads that agree",
            says="Share of questions whose heads put the same candidate first. Falling means unfamiliar texts.",
            queries={
                "{{model}} {{version}}": ratio(
                    total("cerberank_head_agreement_total", VERSIONS, AGREE),
                    total("cerberank_head_agreement_total", VERSIONS),
                )
            },
            unit="percentunit",
        ),
        Panel(
            title="Score of the first candidate",
            says="Mean and deviation. A drift without a new version means other questions, or other candidates.",
            queries={
                "mean {{version}}": TOP_MEAN,
                "deviation {{version}}": f"sqrt(clamp_min({TOP_SQUARES} - ({TOP_MEAN}) ^ 2, 0))",
            },
        ),
    ),
    "A GPU": (
        Panel(
            title="GPU memory",
            says="In use by all processes, and all of it. Empty without a GPU. Near the top, versions no longer fit.",
            queries={
                "{{instance}} used": f"cerberank_device_memory_used_bytes{{{HERE}}}",
                "{{instance}} total": f"cerberank_device_memory_total_bytes{{{HERE}}}",
            },
            unit="bytes",
        ),
        Panel(
            title="GPU busy",
            says="Share of the time with a kernel running. Low under load: the host does not feed it.",
            queries={"{{instance}}": f"cerberank_device_utilisation_ratio{{{HERE}}}"},
            unit="percentunit",
        ),
        Panel(
            title="Runs as CUDA graphs",
            says="Share of the stages' runs that a captured graph had room for. Empty where none was captured.",
            queries={
                "{{version}}": ratio(
                    total("cerberank_graph_hits_total", VERSIONS),
                    f"({total('cerberank_graph_hits_total', VERSIONS)}"
                    f" + {total('cerberank_graph_misses_total', VERSIONS)})",
                )
            },
            unit="percentunit",
        ),
        Panel(
            title="Memory ran out",
            says="Batches in an hour that were tried again in halves, and the tokens that a step may hold.",
            queries={
                "{{version}}": f"sum by ({VERSIONS}) (increase(cerberank_out_of_memory_total{{{HERE}}}[1h]))",
                "tokens of a step": f"min(cerberank_step_tokens{{{HERE}}})",
            },
        ),
    ),
    "The processes": (
        Panel(
            title="Ready replicas",
            says="Of those that are scraped.",
            queries={"ready": f"sum(cerberank_ready{{{HERE}}})", "scraped": f"count(up{{{HERE}}})"},
        ),
        Panel(
            title="Processors used",
            says="By replica.",
            queries={"{{instance}}": total("process_cpu_seconds_total", "instance")},
        ),
        Panel(
            title="Memory",
            says="Resident, by replica. It must not grow from day to day.",
            queries={"{{instance}}": f"process_resident_memory_bytes{{{HERE}}}"},
            unit="bytes",
        ),
    ),
}
