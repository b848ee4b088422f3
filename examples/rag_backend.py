"""A backend for retrieval-augmented generation (RAG): a search, the service, and a language model.

It needs `cerberank serve`, a file with a text on each line, and a server with OpenAI's chat interface, such as Ollama:

    export TEXTS=texts.txt LLM=http://127.0.0.1:11434/v1 LLM_MODEL=llama3.2
    uvicorn rag_backend:app --app-dir examples --port 9000
    curl 'http://127.0.0.1:9000/ask?question=How+tall+is+the+Eiffel+Tower?'
"""

import os
import re
from pathlib import Path
from typing import Any

import httpx
from cerberank import Client
from fastapi import FastAPI

texts = Path(os.environ["TEXTS"]).read_text(encoding="utf-8").splitlines()
reranker = Client(os.environ.get("CERBERANK_URL", "http://127.0.0.1:8000"))
app = FastAPI()
PRECISION = 0.85
"""The share of right first texts that is wanted: a question whose first text is less certain is not answered."""


def words(text: str) -> set[str]:
    """The words of a text, without case."""
    return set(re.findall(r"\w+", text.lower()))


@app.get("/ask")
def ask(question: str) -> dict[str, Any]:
    """An answer with its sources; null if no text is likely enough to answer the question."""
    matches = sorted(texts, key=lambda text: len(words(text) & words(question)), reverse=True)[:200]  # your search
    results = reranker.rank(question, matches, top_k=5, min_precision=PRECISION)
    if not results:
        return {"answer": None, "sources": []}
    sources = [result.text for result in results]
    prompt = "Answer from these texts alone:\n" + "\n".join(f"- {text}" for text in sources) + f"\n\n{question}"
    body = {"model": os.environ["LLM_MODEL"], "messages": [{"role": "user", "content": prompt}]}
    said = httpx.post(f"{os.environ['LLM']}/chat/completions", json=body, timeout=60).raise_for_status().json()
    return {"answer": said["choices"][0]["message"]["content"], "sources": sources}
