"""LangChain's CohereRerank with the service: `pip install langchain-cohere`, `cerberank serve`, then run this file."""

import os

import cohere
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

client = cohere.ClientV2(api_key="-", base_url=os.environ.get("CERBERANK_URL", "http://127.0.0.1:8000"))
reranker = CohereRerank(client=client, model="cerberank-mini", top_n=1)
documents = [Document("It was built for the fair of 1889."), Document("The Eiffel Tower is 330 metres tall.")]
best = reranker.compress_documents(documents, "How tall is the Eiffel Tower?")
print(best[0].page_content, best[0].metadata["relevance_score"])
