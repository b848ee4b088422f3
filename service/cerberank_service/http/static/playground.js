/** The playground: reads the form, asks the service, shows the answer. */

import { models, rank } from "./api.js";
import { byId, make, milliseconds, showProblem } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { resultsTable } from "./results.js";
import { timingBar } from "./timing.js";

const form = byId("ask");
const [question, candidates, ratio, example, button] = ["question", "candidates", "ratio", "example", "rank"].map(byId);
const firstRatio = byId("first-ratio");
const [neighbours, windows] = ["neighbours", "windows"].map(byId);
let exits = [];
let firstStages = 0; // 1 for a model with a first stage, which has the first ratio and is stage 0
let latest = 0;

async function describeModel() {
  const [model] = await models();
  exits = model.exits ?? [];
  firstStages = model.first_stage ? 1 : 0;
  byId("model").textContent = model.model
    ? `${model.model} ${model.version}, ${model.architecture}, ${model.precision} on ${model.backend}`
    : `The model is ${model.state}.`;
  byId("context").hidden = !model.context;
  neighbours.checked &&= Boolean(model.context);
  byId("first").hidden = firstStages === 0;
  firstRatio.value = String(firstStages ? model.drop_schedule[0] : 0);
  ratio.disabled = exits.length === 0;
  ratio.value = String(model.drop_schedule?.[firstStages] ?? 0);
  showRatios();
}

function showRatios() {
  for (const slider of [firstRatio, ratio]) {
    byId(`${slider.id}-value`).textContent = `${Math.round(100 * Number(slider.value))} %`;
  }
}

/** The schedule of the sliders; a model that drops nowhere gets none. */
function dropRatios() {
  if (firstStages + exits.length === 0) return {};
  const each = exits.map(() => Number(ratio.value));
  return { drop_ratio: firstStages ? [Number(firstRatio.value), ...each] : Number(ratio.value) };
}

/** The candidates; where the lines follow each other, each has those of its own text beside it as context. */
function entered() {
  const texts = candidates.value.split(/\n\s*\n/).map((text) => text.split("\n").map((line) => line.trim()).filter(Boolean));
  const beside = (text, place) => (neighbours.checked ? (text[place] ?? "") : "");
  return texts.flatMap((text) =>
    text.map((line, place) => ({ text: line, previous: beside(text, place - 1), next: beside(text, place + 1) })),
  );
}

async function ask() {
  const given = entered();
  if (!question.value.trim() || given.length === 0) {
    showProblem("A question and at least one candidate are needed.");
    return;
  }
  const mine = ++latest;
  button.setAttribute("aria-disabled", "true");
  try {
    if (firstStages + exits.length === 0) await describeModel();
    const reading = windows.checked ? { windows: "best" } : {};
    const answer = await rank({ question: question.value, candidates: given, return_heads: true, ...reading, ...dropRatios() });
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
    `${given.length} candidates in ${milliseconds(answer.timing_ms.total)}, ${dropped} dropped on the way; ` +
    `${answer.usage.tokens} tokens; ${answer.model} ${answer.version}.`;
  byId("timing").replaceChildren(timingBar(answer.timing_ms));
  byId("warnings").replaceChildren(...answer.warnings.map((warning) => make("li", {}, warning)));
  byId("results").replaceChildren(resultsTable(answer, given, exits, firstStages));
}

function loadExample() {
  const chosen = EXAMPLES[Number(example.value)];
  if (example.value === "" || !chosen) return;
  question.value = chosen.question;
  candidates.value = chosen.candidates.join("\n");
  ask();
}

example.append(...EXAMPLES.map(({ name }, index) => make("option", { value: String(index) }, name)));
example.addEventListener("change", loadExample);
for (const slider of [firstRatio, ratio]) {
  slider.addEventListener("input", showRatios);
  slider.addEventListener("change", () => latest > 0 && ask());
}
for (const box of [neighbours, windows]) box.addEventListener("change", () => latest > 0 && ask());
for (const field of [question, candidates]) field.addEventListener("input", () => (example.value = ""));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
});
describeModel().catch((error) => showProblem(error.message));
