"""Other services' wires, each translated to the one call and back."""

from cerberank_service.dialects import cohere, tei
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.native import NATIVE

DIALECTS: tuple[Dialect, ...] = (NATIVE, cohere.V2, cohere.V1, tei.RERANK)

__all__ = ["DIALECTS", "NATIVE", "Dialect"]
