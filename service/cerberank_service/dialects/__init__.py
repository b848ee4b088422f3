"""Dialects: the wire formats of the service, one in each file."""

from cerberank_service.dialects import cohere, jina, nim, sagemaker, tei, vllm, vllm_score, voyage, weaviate
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.native import NATIVE

DIALECTS: tuple[Dialect, ...] = (
    NATIVE,
    cohere.V2,
    cohere.V1,
    jina.RERANK,
    voyage.RERANK,
    tei.RERANK,
    weaviate.RERANK,
    vllm.INFINITY,
    vllm.RERANK,
    vllm_score.SCORE,
    nim.RANKING,
    *sagemaker.INVOCATIONS,
)
"""All dialects. On a shared path the first one that matches the body is used, or the path's first if none matches."""

__all__ = ["DIALECTS", "NATIVE", "Dialect"]
