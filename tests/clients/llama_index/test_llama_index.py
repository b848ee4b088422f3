"""LlamaIndex's rerank packages: Cohere, Jina, NVIDIA, SiliconFlow and text-embeddings-inference."""

from __future__ import annotations

import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.nvidia_rerank import NVIDIARerank
from llama_index.postprocessor.siliconflow_rerank import SiliconFlowRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference


def ranked(reranker: BaseNodePostprocessor, question: str, texts: list[str]) -> list[int]:
    """The places of the texts in the reranker's order."""
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in texts]
    found = reranker.postprocess_nodes(nodes, query_str=question)
    return [texts.index(node.get_content()) for node in found]


@pytest.mark.parametrize("top_n", [2, 4])
def test_every_reranker_gives_the_order(
    url: str, question: str, texts: list[str], model: str, order: list[int], top_n: int
) -> None:
    """With the base URL that each of them asks for."""
    rerankers: list[BaseNodePostprocessor] = [
        CohereRerank(base_url=url, api_key="none", model=model, top_n=top_n),
        JinaRerank(base_url=f"{url}/jina/v1", api_key="none", model=model, top_n=top_n),
        NVIDIARerank(base_url=f"{url}/v1", api_key="none", model=model, top_n=top_n),
        TextEmbeddingInference(base_url=url, top_n=top_n),
    ]
    for reranker in rerankers:
        assert ranked(reranker, question, texts) == order[:top_n], reranker.class_name()


def test_siliconflow(url: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """It always sends `max_chunks_per_doc` and `overlap_tokens`."""
    reranker = SiliconFlowRerank(base_url=f"{url}/v1/rerank", api_key="none", model=model, top_n=3)
    assert ranked(reranker, question, texts) == order[:3]


def test_nvidia_finds_the_model_in_the_list(url: str, model: str) -> None:
    """Without a model it takes the first that `/v1/models` lists."""
    with pytest.warns(UserWarning, match="Default model is set"):
        assert NVIDIARerank(base_url=f"{url}/v1", api_key="none").model == model
