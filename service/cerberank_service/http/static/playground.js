/** The playground: reads the form, asks the service, shows the answer. */

import { models, rank } from "./api.js";
import { described, read, shown } from "./candidates.js";
import { byId, candidatesIn, languagesOf, make, milliseconds, showProblem } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { resultsTable } from "./results.js";
import { reasonOf, sentence } from "./states.js";
import { timingBar } from "./timing.js";

const form = byId("ask");
const [question, candidates, ratio, example, button] = ["question", "candidates", "ratio", "example", "rank"].map(byId);
const [lexicalRatio, firstRatio] = ["lexical-ratio", "first-ratio"].map(byId);
const [neighbours, windows, own, precision] = ["neighbours", "windows", "default", "precision"].map(byId);
const EVERY_MS = 2000;
const LONGEST_LINK = 8000; // characters of the form that the page's address holds
let exits = [];
let ownWindows = "best"; // how the model reads long texts
let firstStages = 0; // 1 for a model with a first stage, which has the first ratio and is stage 0
let latest = 0;
let serving = false;

/** Reads which model answers; asks again until there is one. Ranks what the form holds as soon as there is. */
async function describeModel() {
  const served = await models();
  const model = served.find(({ state }) => state === "ready") ?? served[0];
  serving = model.state === "ready";
  button.disabled = !serving;
  if (!serving) {
    byId("model").textContent = sentence(model);
    showProblem(...reasonOf(model));
    setTimeout(() => describeModel().catch((error) => showProblem(error.message)), EVERY_MS);
    return;
  }
  showProblem();
  firstStages = model.first_stage && model.stages > 1 ? 1 : 0; // one that ranks alone drops nothing
  exits = (model.exits ?? []).slice(0, model.stages - 1 - firstStages); // an exit that is the last stage drops nothing
  const languages = languagesOf(model.languages);
  byId("model").textContent = `${model.model} ${model.version}${languages && `, for ${languages}`}`;
  ownWindows = model.windows;
  windows.checked = ownWindows !== "off";
  byId("context").hidden = !model.context;
  neighbours.checked &&= Boolean(model.context);
  const wanted = (model.calibration?.precision ?? []).map((row) => row.wanted);
  byId("shown").hidden = wanted.length === 0;
  precision.append(...wanted.map((share) => make("option", { value: String(share) }, `for a precision of ${Math.round(100 * share)} %`)));
  byId("default-help").textContent = inWords(model);
  lexicalRatio.value = String(model.lexical_ratio ?? 0);
  firstRatio.value = String(firstStages ? model.drop_schedule[0] : 0);
  ratio.value = String(model.drop_schedule?.[firstStages] ?? 0);
  showRatios();
  if (question.value && candidates.value) ask();
}

/** The default schedules in words. */
function inWords({ drop_schedule, lexical_ratio, longer_lists, drop_minimum: least }) {
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

const entered = () => read(candidates.value, neighbours.checked);

function showCount() {
  byId("count").textContent = described(entered());
}

/** The sliders, which only have an effect where the default has none. */
function showRatios() {
  byId("lexical").hidden = own.checked;
  byId("first").hidden = own.checked || firstStages === 0;
  byId("each").hidden = own.checked || exits.length === 0;
  for (const slider of [lexicalRatio, firstRatio, ratio]) {
    byId(`${slider.id}-value`).textContent = `${Math.round(100 * Number(slider.value))} %`;
  }
}

/** The body of the request. What the model decides by itself is left out, as by any client. */
function body() {
  const { candidates: given } = entered();
  const request = { question: question.value, candidates: given, return_heads: true };
  if (windows.checked !== (ownWindows !== "off")) request.windows = windows.checked ? "best" : "off";
  if (precision.value) request.min_precision = Number(precision.value);
  if (!own.checked) {
    const each = exits.map(() => Number(ratio.value));
    request.drop_ratio = firstStages ? [Number(firstRatio.value), ...each] : Number(ratio.value);
    request.lexical_ratio = Number(lexicalRatio.value);
  }
  return request;
}

/** On a narrow screen the answer stands below the form. */
function scrollToAnswer() {
  if (!matchMedia("(max-width: 60rem)").matches) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("answer").scrollIntoView({ behavior: still ? "auto" : "smooth" });
}

async function ask() {
  if (!serving) return;
  const request = body();
  if (!request.question.trim() || request.candidates.length === 0) {
    showProblem("A question and at least one candidate are needed.");
    return;
  }
  const mine = ++latest;
  button.setAttribute("aria-disabled", "true");
  try {
    const answer = await rank(request, byId("key").value.trim());
    if (mine === latest) show(answer, request); // an answer that was overtaken is not shown
  } catch (error) {
    if (mine === latest) showProblem(error.message);
    if (error.status === 401) byId("keyed").hidden = false;
  } finally {
    if (mine === latest) button.removeAttribute("aria-disabled");
  }
}

function show(answer, request) {
  showProblem();
  keep();
  const last = firstStages + exits.length;
  const dropped = answer.results.filter((result) => result.stage < last).length;
  const left = request.min_precision ? `${answer.results.length} shown` : `${dropped} dropped on the way`;
  byId("summary").textContent = `${candidatesIn(request.candidates.length)} in ${milliseconds(answer.timing_ms.total)}, ${left}.`;
  byId("answerable").hidden = answer.answerable === null;
  byId("answerable").textContent = `Is there an answer? ${(100 * (answer.answerable ?? 0)).toFixed(0)} %`;
  byId("timing").replaceChildren(timingBar(answer.timing_ms));
  byId("warnings").replaceChildren(...answer.warnings.map((warning) => make("li", {}, warning)));
  const table = resultsTable(answer, request.candidates.map(shown), exits, firstStages);
  byId("results").replaceChildren(answer.results.length ? table : make("p", {}, "No score reaches the threshold: nothing is shown."));
  byId("request").hidden = false;
  const quoted = JSON.stringify(request, null, 2).replaceAll("'", "'\\''");
  const keyed = byId("keyed").hidden ? "" : " -H 'Authorization: Bearer KEY'";
  byId("curl").textContent = `curl -s ${new URL("v1/rank", location.href.split("#")[0])}${keyed} -d '${quoted}'`;
}

/** The page's address holds the form, so that a reload or a link shows the same; addresses after # are not sent. */
function keep() {
  const state = encodeURIComponent(JSON.stringify([question.value, candidates.value]));
  history.replaceState(null, "", state.length > LONGEST_LINK ? location.pathname : `#${state}`);
}

/** Fills the form from the page's address; false if that holds nothing. */
function restore() {
  try {
    [question.value, candidates.value] = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return true;
  } catch {
    return false;
  }
}

function loadExample() {
  const chosen = EXAMPLES[Number(example.value)];
  if (example.value === "" || !chosen) return;
  question.value = chosen.question;
  candidates.value = chosen.candidates.join("\n");
  showCount();
}

/** JSON with a question fills that field too. */
function takeQuestion() {
  const { question: given } = entered();
  if (typeof given === "string") question.value = given;
  showCount();
}

example.append(...EXAMPLES.map(({ name }, index) => make("option", { value: String(index) }, name)));
if (!restore()) {
  example.value = "0";
  loadExample();
}
showCount();
byId("texts").open = !matchMedia("(max-width: 60rem)").matches; // the first screen of a phone has the ranking
example.addEventListener("change", () => {
  loadExample();
  ask().then(scrollToAnswer);
});
for (const slider of [lexicalRatio, firstRatio, ratio]) {
  slider.addEventListener("input", showRatios);
  slider.addEventListener("change", ask);
}
own.addEventListener("change", showRatios);
neighbours.addEventListener("change", showCount);
for (const box of [neighbours, windows, own, precision]) box.addEventListener("change", ask);
for (const field of [question, candidates]) field.addEventListener("input", () => (example.value = ""));
candidates.addEventListener("input", takeQuestion);
byId("copy").hidden = !navigator.clipboard; // which browsers give to https and this machine alone
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("curl").textContent);
  byId("copy").textContent = "Copied";
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask().then(scrollToAnswer);
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask().then(scrollToAnswer);
});
describeModel().catch((error) => showProblem(error.message));
