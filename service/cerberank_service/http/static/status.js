/** The status page: what is served and how busy it is, asked anew every two seconds. */

import { models, series } from "./api.js";
import { byId, make, showProblem } from "./dom.js";
import { reasonOf, sentence } from "./states.js";

const EVERY_MS = 2000;
const NOW = {
  cerberank_requests_in_flight: "Requests in flight",
  cerberank_queued_tokens: "Tokens queued",
  cerberank_requests_total: "Answered",
  cerberank_errors_total: "Errors",
  cerberank_tokens_total: "Tokens run, all stages",
  cerberank_dropped_candidates_total: "Candidates dropped",
};

function fact(value) {
  if (Array.isArray(value)) return value.map(fact).join(", ") || "none";
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, item]) => `${name} ${fact(item)}`).join("; ") || "none";
  }
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function modelFacts(model) {
  const known = Object.entries(model).filter(([, value]) => value !== null);
  return make(
    "dl",
    { class: "facts" },
    ...known.flatMap(([name, value]) => [
      make("dt", {}, name.replaceAll("_", " ")),
      make("dd", name === "state" ? { class: value } : {}, fact(value)),
    ]),
  );
}

/** Replaces only what changed, so that a screen reader is not told the same again. */
function update(element, children) {
  const fresh = make("div", {}, ...children);
  if (fresh.innerHTML !== element.innerHTML) element.replaceChildren(...fresh.childNodes);
}

async function refresh() {
  try {
    const [served, now] = await Promise.all([models(), series(Object.keys(NOW))]);
    const state = served.map(sentence).join(" ");
    if (byId("state").textContent !== state) byId("state").textContent = state;
    update(byId("models"), served.map(modelFacts));
    const tiles = Object.entries(NOW).flatMap(([name, title]) => [
      make("dt", {}, title),
      make("dd", { id: name }, now[name].toLocaleString("en")),
    ]);
    update(byId("now"), pairs(tiles));
    showProblem(...served.filter(({ state }) => state !== "ready").flatMap(reasonOf));
  } catch (error) {
    showProblem(error.message);
  } finally {
    setTimeout(refresh, EVERY_MS);
  }
}

function pairs(tiles) {
  return tiles.flatMap((tile, place) => (place % 2 === 0 ? [make("div", {}, tile, tiles[place + 1])] : []));
}

refresh();
