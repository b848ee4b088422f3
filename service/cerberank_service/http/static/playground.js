/** The playground: reads the form, asks the service, shows the answer. */

import { models, rank } from "./api.js";
import { byId, make, milliseconds, showProblem } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { resultsTable } from "./results.js";
import { timingBar } from "./timing.js";

const form = byId("ask");
const [question, candidates, ratio, example, button] = ["question", "candidates", "ratio", "example", "rank"].map(byId);
let exits = [];
let latest = 0;

async function describeModel() {
  const [model] = await models();
  exits = model.exits ?? [];
  byId("model").textContent = model.model
    ? `${model.model} ${model.version}, ${model.architecture}, ${model.precision} on ${model.backend}`
    : `The model is ${model.state}.`;
  ratio.disabled = exits.length === 0;
  ratio.value = String(model.drop_schedule?.[0] ?? 0);
  showRatio();
}

function showRatio() {
  byId("ratio-value").textContent = `${Math.round(100 * Number(ratio.value))} %`;
}

function lines() {
  return candidates.value.split("\n").map((line) => line.trim()).filter(Boolean);
}

async function ask() {
  const texts = lines();
  if (!question.value.trim() || texts.length === 0) {
    showProblem("A question and at least one candidate are needed.");
    return;
  }
  const mine = ++latest;
  button.setAttribute("aria-disabled", "true");
  try {
    if (exits.length === 0) await describeModel();
    const drop = exits.length === 0 ? {} : { drop_ratio: Number(ratio.value) };
    const answer = await rank({ question: question.value, candidates: texts, return_heads: true, ...drop });
    if (mine === latest) show(answer, texts); // an answer that was overtaken is not shown
  } catch (error) {
    if (mine === latest) showProblem(error.message);
  } finally {
    if (mine === latest) button.removeAttribute("aria-disabled");
  }
}

function show(answer, texts) {
  showProblem();
  const dropped = answer.results.filter((result) => result.stage < exits.length).length;
  byId("summary").textContent =
    `${texts.length} candidates in ${milliseconds(answer.timing_ms.total)}, ${dropped} dropped on the way; ` +
    `${answer.usage.tokens} tokens; ${answer.model} ${answer.version}.`;
  byId("timing").replaceChildren(timingBar(answer.timing_ms));
  byId("warnings").replaceChildren(...answer.warnings.map((warning) => make("li", {}, warning)));
  byId("results").replaceChildren(resultsTable(answer, texts, exits));
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
ratio.addEventListener("input", showRatio);
ratio.addEventListener("change", () => latest > 0 && ask());
for (const field of [question, candidates]) field.addEventListener("input", () => (example.value = ""));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
});
describeModel().catch((error) => showProblem(error.message));
