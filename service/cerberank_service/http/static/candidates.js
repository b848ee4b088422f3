/** The candidates that a text holds: JSON, passages with blank lines between them, or one on each line. */

import { candidatesIn } from "./dom.js";

/**
 * @param {string} text
 * @param {boolean} neighbours true if the lines follow each other, so that each has those beside it as context
 * @returns {{question?: string, candidates: (string | object)[], form: string}} `question` only where JSON has one
 */
export function read(text, neighbours) {
  const trimmed = text.trim();
  if (/^[[{]/.test(trimmed)) {
    const parsed = parsedJson(trimmed);
    if (parsed) return parsed;
  }
  const passages = trimmed.split(/\n\s*\n/).map((part) => part.split("\n").map((line) => line.trim()).filter(Boolean));
  if (neighbours) {
    const beside = (lines) => lines.map((line, place) => ({ text: line, previous: lines[place - 1] ?? "", next: lines[place + 1] ?? "" }));
    return { candidates: passages.flatMap(beside), form: "consecutive sentences" };
  }
  if (passages.length > 1) return { candidates: passages.map((lines) => lines.join(" ")), form: "with blank lines between them" };
  return { candidates: passages[0], form: "one on each line" };
}

function parsedJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null; // a text that begins with a bracket
  }
  const candidates = Array.isArray(value) ? value : (value.candidates ?? value.documents ?? value.texts);
  return Array.isArray(candidates) ? { question: value.question ?? value.query, candidates, form: "from JSON" } : null;
}

/** @param {{candidates: unknown[], form: string}} read */
export const described = ({ candidates, form }) => (candidates.length ? `${candidatesIn(candidates.length)}, ${form}` : "No candidates yet");

/** The text of a candidate and the sentences beside it, as they are shown. @param {string | object} candidate */
export const shown = (candidate) => ({ text: "", previous: "", next: "", ...(typeof candidate === "string" ? { text: candidate } : candidate) });
