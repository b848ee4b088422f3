"""LiteLLM's rerank() with the service: `pip install litellm`, `cerberank serve`, then run this file."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # LiteLLM asks GitHub for prices otherwise

import litellm

documents = ["It was built for the fair of 1889.", "The Eiffel Tower is 330 metres tall."]
answer = litellm.rerank(
    model="cohere/cerberank-mini",
    query="How tall is the Eiffel Tower?",
    documents=documents,
    top_n=1,
    api_base=os.environ.get("CERBERANK_URL", "http://127.0.0.1:8000"),
    api_key="-",
)
best = answer.results[0]
print(documents[best["index"]], best["relevance_score"])
