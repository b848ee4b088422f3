/** The playground: reads the form, asks the service, shows the answer. */

import { models, rank } from "./api.js";
import { byId, candidatesIn, make, milliseconds, showProblem } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { resultsTable } from "./results.js";
import { reasonOf, sentence } from "./states.js";
import { timingBar } from "./timing.js";

const form = byId("ask");
const [question, candidates, ratio, example, button] = ["question", "candidates", "ratio", "example", "rank"].map(byId);
const [lexicalRatio, firstRatio] = ["lexical-ratio", "first-ratio"].map(byId);
const [neighbours, windows, own] = ["neighbours", "windows", "default"].map(byId);
const EVERY_MS = 2000;
let exits = [];
let inWindows = "best"; // how the model combines windows
let firstStages = 0; // 1 for a model with a first stage, which has the first ratio and is stage 0
let latest = 0;
let serving = false;

/** Reads which model answers; asks again until there is one. */
async function describeModel() {
  const served = await models();
  const model = served.find(({ state }) => state === "ready") ?? served[0];
  const began = serving;
  serving = model.state === "ready";
  button.disabled = !serving;
  if (!serving) {
    byId("model").textContent = sentence(model);
    showProblem(...reasonOf(model));
    setTimeout(() => describeModel().catch((error) => showProblem(error.message)), EVERY_MS);
    return;
  }
  if (!began) showProblem();
  firstStages = model.first_stage && model.stages > 1 ? 1 : 0; // one that ranks alone drops nothing
  exits = (model.exits ?? []).slice(0, model.stages - 1 - firstStages); // an exit that is the last stage drops nothing
  byId("model").textContent = `${model.model} ${model.version}, ${model.architecture}, ${model.precision} on ${model.backend}`;
  windows.checked = model.windows !== "off";
  if (windows.checked) inWindows = model.windows;
  byId("context").hidden = !model.context;
  neighbours.checked &&= Boolean(model.context);
  byId("first").hidden = firstStages === 0;
  byId("each").hidden = exits.length === 0;
  byId("default-help").textContent = described(model);
  lexicalRatio.value = String(model.lexical_ratio ?? 0);
  firstRatio.value = String(firstStages ? model.drop_schedule[0] : 0);
  ratio.value = String(model.drop_schedule?.[firstStages] ?? 0);
  showRatios();
}

/** The default schedules in words. */
function described({ drop_schedule, lexical_ratio, longer_lists, drop_minimum: least }) {
  const longer = (longer_lists ?? []).map((list) => ` From ${list.candidates} candidates on it drops ${shares(list.lexical_ratio, list.schedule)}.`);
  const kept = least > 1 ? `, and keeps at least ${least}` : "";
  return `It drops ${shares(lexical_ratio, drop_schedule)}${kept}.${longer.join("")}`;
}

function shares(lexical, ratios) {
  const percent = (share) => `${Math.round(100 * share)} %`;
  const drops = ratios.some((each) => each > 0) ? ratios.map(percent) : [];
  if (lexical > 0) drops.unshift(`${percent(lexical)} by their words`);
  return drops.length ? `${drops.join(", then ")} of the candidates` : "none";
}

function showCount() {
  const count = entered().length;
  byId("count").textContent = count === 0 ? "No candidates yet." : `${candidatesIn(count)}.`;
}

function showRatios() {
  for (const slider of [lexicalRatio, firstRatio, ratio]) {
    byId(`${slider.id}-value`).textContent = `${Math.round(100 * Number(slider.value))} %`;
  }
}

/** The schedule of the sliders; nothing where the default is wanted, so that the service decides as for any client. */
function dropRatios() {
  if (own.checked) return {};
  const each = exits.map(() => Number(ratio.value));
  const drop_ratio = firstStages ? [Number(firstRatio.value), ...each] : Number(ratio.value);
  return { drop_ratio, lexical_ratio: Number(lexicalRatio.value) };
}

/** The candidates; where the lines follow each other, each has those of its own text beside it as context. */
function entered() {
  const texts = candidates.value.split(/\n\s*\n/).map((text) => text.split("\n").map((line) => line.trim()).filter(Boolean));
  const beside = (text, place) => (neighbours.checked ? (text[place] ?? "") : "");
  return texts.flatMap((text) =>
    text.map((line, place) => ({ text: line, previous: beside(text, place - 1), next: beside(text, place + 1) })),
  );
}

/** On a narrow screen the answer stands below the form. */
function scrollToAnswer() {
  if (!matchMedia("(max-width: 60rem)").matches) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("answer").scrollIntoView({ behavior: still ? "auto" : "smooth" });
}

async function ask() {
  if (!serving) return;
  const given = entered();
  if (!question.value.trim() || given.length === 0) {
    showProblem("A question and at least one candidate are needed.");
    return;
  }
  const mine = ++latest;
  button.setAttribute("aria-disabled", "true");
  try {
    const reading = windows.checked ? inWindows : "off";
    const answer = await rank({ question: question.value, candidates: given, return_heads: true, windows: reading, ...dropRatios() });
    if (mine === latest) show(answer, given); // an answer that was overtaken is not shown
  } catch (error) {
    if (mine === latest) showProblem(error.message);
  } finally {
    if (mine === latest) button.removeAttribute("aria-disabled");
  }
}

function show(answer, given) {
  showProblem();
  const dropped = answer.results.filter((result) => result.stage < firstStages + exits.length).length;
  byId("summary").textContent =
    `${candidatesIn(given.length)} in ${milliseconds(answer.timing_ms.total)}, ${dropped} dropped on the way; ` +
    `${answer.usage.tokens} tokens; ${answer.model} ${answer.version}.`;
  byId("answerable").hidden = answer.answerable === null;
  byId("answerable").textContent = `Is there an answer? ${(100 * (answer.answerable ?? 0)).toFixed(0)} %`;
  byId("timing").replaceChildren(timingBar(answer.timing_ms));
  byId("warnings").replaceChildren(...answer.warnings.map((warning) => make("li", {}, warning)));
  byId("results").replaceChildren(resultsTable(answer, given, exits, firstStages));
}

function loadExample() {
  const chosen = EXAMPLES[Number(example.value)];
  if (example.value === "" || !chosen) return;
  question.value = chosen.question;
  candidates.value = chosen.candidates.join("\n");
  showCount();
  ask();
}

example.append(...EXAMPLES.map(({ name }, index) => make("option", { value: String(index) }, name)));
example.addEventListener("change", loadExample);
for (const slider of [lexicalRatio, firstRatio, ratio]) {
  slider.addEventListener("input", () => {
    own.checked = false;
    showRatios();
  });
  slider.addEventListener("change", () => latest > 0 && ask());
}
for (const box of [neighbours, windows, own]) box.addEventListener("change", () => latest > 0 && ask());
for (const field of [question, candidates]) field.addEventListener("input", () => (example.value = ""));
candidates.addEventListener("input", showCount);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask().then(scrollToAnswer);
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask().then(scrollToAnswer);
});
describeModel().catch((error) => showProblem(error.message));
