"""The benchmarks' verb of the `cerberank` program."""

from __future__ import annotations

from cerberank_models.verbs import Verb

VERBS = (
    Verb(
        name="bench",
        target="cerberank_benchmarks.command:main",
        help="measure candidates per second against sentence-transformers",
        extra="dev",
        order=50,
    ),
)
