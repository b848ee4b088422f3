/**
 * An answer as a table: best first, one group of rows for each stage that candidates reached.
 *
 * Roles are given, because a phone's layout takes them from the elements.
 */

import { candidatesIn, make } from "./dom.js";

const LONG = 400; // characters of a candidate that are shown whole
const MOST = { last: 8, dropped: 2 }; // rows of the last stage, and of a group of dropped candidates, that are not folded
const LEAST = 3; // of which those with scores of nearly 0 are folded too
const LOW = 0.005;
const APART = 0.02; // heads have columns if their scores of any candidate differ by so much

/**
 * @param {object} answer of `/v1/rank` with heads
 * @param {{text: string, previous: string, next: string}[]} given the candidates as they were sent
 * @param {number[]} exits the layer after which each exit stands
 * @param {number} firstStages 1 where stage 0 compares vectors and the exits follow it, else 0
 */
export function resultsTable(answer, given, exits, firstStages) {
  const scored = answer.results.map((result) => result.heads ?? []).filter((scores) => scores.length > 1);
  const differ = scored.some((scores) => Math.max(...scores) - Math.min(...scores) >= APART);
  const heads = differ ? Math.max(...scored.map((scores) => scores.length)) : 0;
  const names = ["Place", "Candidate", "Score", ...Array.from({ length: heads }, (_, head) => `Head ${head + 1}`)];
  const table = make("table", { role: "table", "aria-label": "Candidates, best first" });
  const columns = names.map((name) => make("th", { scope: "col", role: "columnheader" }, name));
  table.append(make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...columns)));
  const places = answer.results.map((result, place) => ({ ...result, place: place + 1 }));
  const stages = [...new Set(places.map((result) => result.stage))].sort((left, right) => right - left);
  for (const stage of stages) {
    const reached = places.filter((result) => result.stage === stage);
    const lexical = reached.some((result) => result.lexical_score !== undefined);
    const spanning = { scope: "rowgroup", role: "rowheader", colspan: String(names.length) };
    const title = make("tr", { role: "row" }, make("th", spanning, lexical ? lexicalTitle(reached.length) : groupTitle(stage - firstStages, reached.length, exits)));
    const rows = reached.map((result) => row(result, given[result.index], names));
    const behind = Math.max(LEAST, reached.findLastIndex((result) => result.score >= LOW) + 1);
    const begin = Math.min(behind, stage === firstStages + exits.length ? MOST.last : MOST.dropped);
    table.append(make("tbody", { role: "rowgroup" }, title, ...folded(rows, begin, names.length)));
  }
  return table;
}

function lexicalTitle(count) {
  return `Dropped by the lexical layer: ${candidatesIn(count)}, with BM25 scores of the words in common with the question`;
}

/** The rows, of which those from `begin` on are shown by a button if they are more than one. */
function folded(rows, begin, columns) {
  const rest = rows.slice(begin);
  if (rest.length < 2) return rows;
  for (const each of rest) each.hidden = true;
  const button = make("button", { type: "button", class: "more" }, `Show ${rest.length} more`);
  const cell = make("td", { role: "cell", colspan: String(columns) }, button);
  const last = make("tr", { role: "row" }, cell);
  button.addEventListener("click", () => {
    for (const each of rest) each.hidden = false;
    last.remove();
  });
  return [...rows, last];
}

/** `stage` counts the exits from 0; -1 is a first stage. */
function groupTitle(stage, count, exits) {
  const candidates = candidatesIn(count);
  if (stage === -1) return `Dropped by the first stage: ${candidates}, with the scores of their vectors`;
  if (stage === exits.length) return `Scored by the last stage: ${candidates}`;
  return `Dropped at exit ${stage + 1}, after layer ${exits[stage]}: ${candidates}, with that exit's scores`;
}

function row(result, { text, previous, next }, names) {
  const [before, after] = [previous, next].map((beside) => beside && make("span", { class: "beside" }, beside));
  const cut = result.truncated ? make("span", { class: "cut" }, "(not read to its end)") : null;
  const cells = [
    make("td", { class: "place", role: "cell" }, String(result.place)),
    make("td", { class: "text", role: "cell" }, before, ...shortened(text, result.window), after, cut),
    make("td", { class: "score", role: "cell", "data-name": "Score" }, result.score === null ? without(result) : bar(result.score)),
  ];
  const heads = names.slice(3);
  if (heads.length > 0 && result.heads === undefined) {
    const spanning = { class: "head", role: "cell", colspan: String(heads.length), "aria-colspan": String(heads.length) };
    cells.push(make("td", { ...spanning, "data-name": "Heads" }, make("span", { class: "cut" }, "not reached")));
  } else {
    const headCell = (name, head) => make("td", { class: "head", role: "cell", "data-name": name }, bar(result.heads[head]));
    cells.push(...heads.map(headCell));
  }
  return make("tr", { role: "row", class: result.place === 1 && result.score >= 0.5 ? "best" : "" }, ...cells);
}

/** A long text begins with its window, or with its first lines; a button shows all of it. */
function shortened(text, window) {
  if (text.length <= LONG) return marked(text, window);
  const part = window === undefined ? [text] : [window.start > 0 ? "… " : "", make("mark", {}, Array.from(text).slice(window.start, window.end).join("")), " …"];
  const shown = make("span", { class: "clamped" }, ...part);
  const button = make("button", { type: "button", class: "more", "aria-expanded": "false" }, "Show the whole text");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Show less" : "Show the whole text";
    shown.className = open ? "" : "clamped";
    shown.replaceChildren(...(open ? marked(text, window) : part));
  });
  return [shown, button];
}

/** The text with its window marked; spans count code points, of which a string's length counts some twice. */
function marked(text, window) {
  if (window === undefined) return [text];
  const points = Array.from(text);
  const part = (start, end) => points.slice(start, end).join("");
  return [part(0, window.start), make("mark", {}, part(window.start, window.end)), part(window.end)];
}

/** A candidate that no stage has scored has the lexical layer's score, or none after a deadline. */
function without({ lexical_score: lexical }) {
  return make("div", { class: "bar" }, make("b", {}, lexical === undefined ? "none" : lexical.toFixed(2)));
}

function bar(share) {
  const fill = make("i", { "aria-hidden": "true" });
  fill.style.setProperty("--share", `${100 * share}%`);
  return make("div", { class: "bar" }, make("b", {}, `${(100 * share).toFixed(1)} %`), fill);
}
