"""A LlamaIndex postprocessor with `score` and `answerable`: `pip install llama-index-core`, then `cerberank serve`."""

import os
from typing import Any

import httpx
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class CerberankPostprocessor(BaseNodePostprocessor):
    """Keeps the nodes that answer, best first; `score` is the probability, and metadata have `answerable`."""

    url: str = "http://127.0.0.1:8000"
    options: dict[str, Any]
    """Fields of /v1/rank, such as top_k; {"min_precision": 0.85} keeps nothing where no node answers."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        question = query_bundle.query_str if query_bundle else ""
        body = {"question": question, "candidates": [each.get_content() for each in nodes], **self.options}
        answer = httpx.post(f"{self.url}/v1/rank", json=body, timeout=30).raise_for_status().json()
        kept = []
        for result in answer["results"]:
            node = nodes[result["index"]].node
            changes = {
                "metadata": node.metadata | {"answerable": answer["answerable"]},
                "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, "answerable"],  # not for prompts
            }
            kept.append(NodeWithScore(node=node.model_copy(update=changes), score=result["score"]))
        return kept


if __name__ == "__main__":
    url = os.environ.get("CERBERANK_URL", "http://127.0.0.1:8000")
    postprocessor = CerberankPostprocessor(url=url, options={"min_precision": 0.85})
    texts = ["It was built for the fair of 1889.", "The Eiffel Tower is 330 metres tall.", "Bees make honey."]
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in texts]
    for best in postprocessor.postprocess_nodes(nodes, query_str="How tall is the Eiffel Tower?"):
        print(best.get_content(), best.score, best.metadata)
