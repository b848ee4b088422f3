// The vendors' packages for JavaScript, cohere-ai and voyageai, and the examples with Vercel's AI SDK and LangChain.js.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";
import { CohereClient, CohereClientV2 } from "cohere-ai";
import { VoyageAIClient } from "voyageai";

const url = process.env.CERBERANK_URL;
const model = "cerberank-mini";
const query = "How tall is the Eiffel Tower?";
const documents = [
  "It was built for the fair of 1889.",
  "The Eiffel Tower is 330 metres tall.",
  "Paris is the capital of France.",
  "Bees make honey.",
];

const native = await fetch(`${url}/v1/rank`, {
  method: "POST",
  body: JSON.stringify({ question: query, candidates: documents }),
});
const order = (await native.json()).results.map((result) => result.index);
assert.equal(order[0], 1);

const clients = {
  "cohere-ai, v2": async () => {
    const client = new CohereClientV2({ token: "none", environment: url });
    const answer = await client.rerank({ model, query, documents, topN: 3 });
    return answer.results.map((result) => result.index);
  },
  "cohere-ai, v1 with documents": async () => {
    const client = new CohereClient({ token: "none", environment: url });
    const answer = await client.rerank({ model, query, documents, topN: 3, returnDocuments: true });
    assert.equal(answer.results[0].document.text, documents[1]);
    return answer.results.map((result) => result.index);
  },
  "voyageai": async () => {
    const client = new VoyageAIClient({ apiKey: "none", environment: `${url}/voyage/v1` });
    const answer = await client.rerank({ model, query, documents, topK: 3, truncation: true });
    return answer.data.map((result) => result.index);
  },
  "voyageai without options": async () => {
    const client = new VoyageAIClient({ apiKey: "none", environment: `${url}/voyage/v1` });
    const answer = await client.rerank({ model, query, documents });
    return answer.data.map((result) => result.index).slice(0, 3);
  },
};

for (const [name, ask] of Object.entries(clients)) {
  assert.deepEqual(await ask(), order.slice(0, 3), name);
  console.log(`${name}: passed`);
}

for (const example of ["langchain_js.mjs", "vercel_ai.mjs"]) {
  const program = `${import.meta.dirname}/${example}`; // Node looks for packages beside it
  copyFileSync(`../../../examples/${example}`, program);
  const printed = execFileSync(process.execPath, [program], { encoding: "utf8" });
  assert(printed.startsWith(`${documents[1]} {`), printed);
  assert.match(printed, /score: 0\.9\d+, answerable: 0\.9/);
  console.log(`${example}: passed`);
}
