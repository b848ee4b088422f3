import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: process.env.CERBERANK_URL! });
const question = { question: "How tall is it?", candidates: ["It is old.", "It is 330 metres tall."], top_k: 1 };

const { data, error } = await client.POST("/v1/rank", { body: question });
assert(data, JSON.stringify(error));
assert.equal(data.results[0]!.index, 1);
assert(data.answerable! > 0.5);

const batch = await client.POST("/v1/rank/batch", { body: { questions: [question, question] } });
for (const entry of batch.data!.answers) {
  assert("answer" in entry);
  assert.equal(entry.answer.results[0]!.index, 1);
}

const refused = await client.POST("/v1/rank", { body: { ...question, question: " " } });
assert.equal(refused.error!.error.kind, "invalid");
console.log("openapi-typescript: passed");
