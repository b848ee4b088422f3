// A LangChain.js compressor with `score` and `answerable`: `npm install @langchain/core`, `cerberank serve`,
// `node langchain_js.mjs`.

import { Document } from "@langchain/core/documents";
import { BaseDocumentCompressor } from "@langchain/core/retrievers/document_compressors";

class CerberankCompressor extends BaseDocumentCompressor {
  // `options` are fields of /v1/rank, such as top_k; min_precision keeps nothing where no document answers.
  constructor({ url = "http://127.0.0.1:8000", ...options } = {}) {
    super();
    Object.assign(this, { url, options });
  }

  async compressDocuments(documents, question) {
    const body = { question, candidates: documents.map((each) => each.pageContent), ...this.options };
    const response = await fetch(`${this.url}/v1/rank`, { method: "POST", body: JSON.stringify(body) });
    if (!response.ok) throw new Error((await response.json()).error.message);
    const { results, answerable } = await response.json();
    return results.map(({ index, score }) => {
      const { id, pageContent, metadata } = documents[index];
      return new Document({ id, pageContent, metadata: { ...metadata, score, answerable } });
    });
  }
}

const texts = ["It was built for the fair of 1889.", "The Eiffel Tower is 330 metres tall.", "Bees make honey."];
const documents = texts.map((pageContent, line) => new Document({ pageContent, metadata: { line } }));
const compressor = new CerberankCompressor({ url: process.env.CERBERANK_URL, min_precision: 0.85 });
for (const best of await compressor.compressDocuments(documents, "How tall is the Eiffel Tower?")) {
  console.log(best.pageContent, best.metadata);
}
