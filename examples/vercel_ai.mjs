// Vercel's AI SDK with the service: `npm install ai @ai-sdk/cohere`, `cerberank serve`, `node vercel_ai.mjs`.
// Calibrated scores are probabilities, and a header says how likely any document answers.

import { createCohere } from "@ai-sdk/cohere";
import { rerank } from "ai";

const url = process.env.CERBERANK_URL ?? "http://127.0.0.1:8000";
const cerberank = createCohere({ baseURL: `${url}/v2`, apiKey: "-", headers: { "X-Calibrated-Scores": "true" } });

const { ranking, response } = await rerank({
  model: cerberank.reranking("cerberank-mini"),
  query: "How tall is the Eiffel Tower?",
  documents: ["It was built for the fair of 1889.", "The Eiffel Tower is 330 metres tall.", "Bees make honey."],
  topN: 1,
});
console.log(ranking[0].document, { score: ranking[0].score, answerable: Number(response.headers["x-answerable"]) });
