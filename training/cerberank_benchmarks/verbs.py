"""The benchmarks' verb of the `cerberank` program."""

from __future__ import annotations

from cerberank_models.verbs import Verb

VERBS = (
    Verb(
        name="bench",
        target="cerberank_benchmarks.entry:main",
        help="measure candidates per second against sentence-transformers; `bench gpu`: a GPU",
        extra="dev",
        order=50,
    ),
)
