"""A LangChain compressor with `score` and `answerable`: `pip install langchain-core`, then `cerberank serve`."""

import os
from collections.abc import Sequence
from typing import Any

import httpx
from langchain_core.documents import BaseDocumentCompressor, Document


class CerberankCompressor(BaseDocumentCompressor):
    """Keeps the documents that answer, best first; their metadata have `score` and `answerable`."""

    url: str = "http://127.0.0.1:8000"
    options: dict[str, Any]
    """Fields of /v1/rank, such as top_k; {"min_precision": 0.85} keeps nothing where no document answers."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:
        """The documents for a question, with the metadata that they came with."""
        body = {"question": query, "candidates": [each.page_content for each in documents], **self.options}
        answer = httpx.post(f"{self.url}/v1/rank", json=body, timeout=30).raise_for_status().json()
        kept = []
        for result in answer["results"]:
            document, found = documents[result["index"]], {"score": result["score"], "answerable": answer["answerable"]}
            kept.append(document.model_copy(update={"metadata": document.metadata | found}))
        return kept


if __name__ == "__main__":
    url = os.environ.get("CERBERANK_URL", "http://127.0.0.1:8000")
    compressor = CerberankCompressor(url=url, options={"min_precision": 0.85})
    texts = ["It was built for the fair of 1889.", "The Eiffel Tower is 330 metres tall.", "Bees make honey."]
    documents = [Document(text, metadata={"line": line}) for line, text in enumerate(texts)]
    for best in compressor.compress_documents(documents, "How tall is the Eiffel Tower?"):
        print(best.page_content, best.metadata)
