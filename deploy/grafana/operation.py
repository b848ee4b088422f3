"""What the dashboard shows of versions, keys, processes and machines: every query once, with what it tells."""

from __future__ import annotations

from queries import HERE, VERSIONS, Panel, ratio, total

AGREE = f'{HERE}, agree="true"'
TOP_MEAN = ratio(total("cerberank_top_score_sum", VERSIONS), total("cerberank_top_score_count", VERSIONS))
TOP_SQUARES = ratio(total("cerberank_top_score_squares_total", VERSIONS), total("cerberank_top_score_count", VERSIONS))

OPERATION: dict[str, tuple[Panel, ...]] = {
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
            title="Wanted and not served",
            says="Replicas that do not serve what a label means in the store; for longer than a load, a ticket.",
            queries={
                "{{model}}@{{label}}": f"sum by (model, label) (cerberank_label_wanted_differs{{{HERE}}})",
                "store is not read": f"sum(1 - cerberank_store_reachable{{{HERE}}})",
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
    "Pushes": (
        Panel(
            title="Moves in an hour, and rejections",
            says="Labels that moved; versions that failed a check and are still asked for.",
            queries={
                "{{label}} moved": f"sum by (label) (increase(cerberank_label_flips_total{{{HERE}}}[1h]))",
                "rejected: {{model}}@{{version}} {{reason}}": f"sum by ({VERSIONS}, reason) "
                f"(cerberank_rejected_versions_total{{{HERE}}})",
            },
        ),
        Panel(
            title="Copies that failed in an hour",
            says="By cause: the store, this machine's disk, or time.",
            queries={"{{cause}}": f"sum by (cause) (increase(cerberank_copy_failures_total{{{HERE}}}[1h]))"},
        ),
        Panel(
            title="Hangs",
            says="Seconds without progress of a version's questions, and since a replica read its store. Both near 0.",
            queries={
                "{{model}}@{{version}}": f"max by ({VERSIONS}) (cerberank_stalled_seconds{{{HERE}}})",
                "store {{instance}}": f"cerberank_store_poll_age_seconds{{{HERE}}}",
            },
            unit="s",
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
    ),
    "Keys": (
        Panel(
            title="Requests by key",
            says="Let in, and rejected for their quota. The names stand in `cerberank admin keys list`.",
            queries={
                "{{key}}": total("cerberank_key_requests_total", "key"),
                "rejected (429)": f"{total('cerberank_key_exhausted_total')} or vector(0)",
            },
            unit="reqps",
        ),
        Panel(
            title="Tokens by key",
            says="Of their pairs. Empty without keys.",
            queries={"{{key}}": total("cerberank_key_tokens_total", "key")},
        ),
        Panel(
            title="Key file cannot be read",
            says="Replicas on which a revoked key still works.",
            queries={"replicas": f"sum(cerberank_keys_stale{{{HERE}}})"},
        ),
    ),
    "The processes": (
        Panel(
            title="Ready replicas",
            says="Of those that are scraped.",
            queries={"ready": f"sum(cerberank_ready{{{HERE}}})", "scraped": f"count(up{{{HERE}}})"},
        ),
        Panel(
            title="Releases",
            says="Replicas by what they run: more than one only during a roll-out.",
            queries={
                "{{version}}, Python {{python}}, {{backend}} {{precision}} on {{device}}": "sum by (version, python, "
                f"backend, precision, device) (cerberank_build_info{{{HERE}}})"
            },
        ),
        Panel(
            title="Starts in an hour",
            says="By replica. Starts that nobody asked for are crashes, memory limits or failed probes.",
            queries={"{{instance}}": f"changes(process_start_time_seconds{{{HERE}}}[1h])"},
        ),
    ),
    "Their machines": (
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
        Panel(
            title="Descriptors",
            says="Share of the allowed open files, by replica; connections take them. At 100 % nobody connects.",
            queries={"{{instance}}": f"process_open_fds{{{HERE}}} / process_max_fds{{{HERE}}}"},
            unit="percentunit",
        ),
    ),
}
