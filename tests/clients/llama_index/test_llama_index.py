"""LlamaIndex's rerank packages: Cohere, Jina, NVIDIA, SiliconFlow and text-embeddings-inference."""

from __future__ import annotations

import re

import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.nvidia_rerank import NVIDIARerank
from llama_index.postprocessor.siliconflow_rerank import SiliconFlowRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

from conftest import Task

KEYED = {"api_key": "none", "model": Task.model, "top_n": 3}


def ranked(reranker: BaseNodePostprocessor, task: Task) -> list[str]:
    """The texts in the reranker's order."""
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in task.texts]
    return [node.get_content() for node in reranker.postprocess_nodes(nodes, query_str=task.question)]


def test_cohere(task: Task) -> None:
    """By Cohere's SDK."""
    assert ranked(CohereRerank(base_url=task.url, **KEYED), task) == task.ranked[:3]


def test_jina(task: Task) -> None:
    """With the path of its own, because the model's name does not begin with `jina-`."""
    assert ranked(JinaRerank(base_url=f"{task.url}/jina/v1", **KEYED), task) == task.ranked[:3]


def test_siliconflow(task: Task) -> None:
    """It always sends `max_chunks_per_doc` and `overlap_tokens`."""
    assert ranked(SiliconFlowRerank(base_url=f"{task.url}/v1/rerank", **KEYED), task) == task.ranked[:3]


def test_text_embeddings_inference(task: Task) -> None:
    """It sends the texts alone, and cuts the answer itself."""
    assert ranked(TextEmbeddingInference(base_url=task.url, top_n=3), task) == task.ranked[:3]


@pytest.mark.parametrize("options", [{}, {"truncate": "END"}])
def test_nvidia(task: Task, options: dict[str, str]) -> None:
    """It looks the model up in `/v1/models` first."""
    assert ranked(NVIDIARerank(base_url=f"{task.url}/v1", **KEYED, **options), task) == task.ranked[:3]


def test_nvidia_without_a_model_takes_the_first_of_the_list(task: Task) -> None:
    """The list of `/v1/models`, in OpenAI's shape."""
    with pytest.warns(UserWarning, match="Default model is set"):
        assert NVIDIARerank(base_url=f"{task.url}/v1", api_key="none").model == task.model


def test_a_postprocessor_of_one_s_own(task: Task) -> None:
    """examples/llama_index_postprocessor.py keeps the node that answers, with probabilities."""
    printed = task.example("llama_index_postprocessor.py")
    assert re.fullmatch(r"(.*) 0.9\d+ {'answerable': 0.9\d+}\n", printed)[1] == task.texts[1]
