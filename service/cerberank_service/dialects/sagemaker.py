"""SageMaker's `POST /invocations`: takes the body of any other dialect, which is recognised by its fields.

A SageMaker endpoint has this one path for all clients, so each client sends the body of the API that it knows. A body
without the fields of another dialect is read as the native one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cerberank_service.dialects import cohere, jina, nim, open_inference, tei, vllm, vllm_score, voyage
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.native import NATIVE

PATHS = ("/invocations",)


@dataclass(frozen=True, slots=True)
class Has:
    """True for a body that has at least one field of `names`, and for which `also`, if it is set, is true."""

    names: frozenset[str]
    also: Callable[[Mapping[str, Any]], bool] | None = None

    def __call__(self, fields: Mapping[str, Any]) -> bool:
        """Fulfil `Dialect.matches`."""
        return not self.names.isdisjoint(fields) and (self.also is None or self.also(fields))


def _claimed(dialect: Dialect, *names: str, also: Callable[[Mapping[str, Any]], bool] | None = None) -> Dialect:
    return replace(dialect, paths=PATHS, matches=Has(frozenset(names), also))


INVOCATIONS: tuple[Dialect, ...] = (
    replace(NATIVE, paths=PATHS),
    _claimed(nim.RANKING, "passages"),
    _claimed(tei.RERANK, "texts"),
    _claimed(open_inference.INFER, "inputs"),
    _claimed(vllm_score.SCORE, *(name for pair in vllm_score.PAIRS for name in pair if name != "documents")),
    _claimed(jina.RERANK, "documents", also=jina.RERANK.matches),
    _claimed(voyage.RERANK, "documents", also=voyage.RERANK.matches),
    _claimed(vllm.INFINITY, "documents", also=vllm.INFINITY.matches),
    _claimed(cohere.V2, "max_tokens_per_doc", "priority", also=Has(frozenset({"documents"}))),
    _claimed(cohere.V1, "documents"),
)
"""The native dialect, then those that are recognised by fields, in the order in which they are tried."""
