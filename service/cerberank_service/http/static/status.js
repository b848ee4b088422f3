/** The status page: what is served and how busy it is, asked anew every two seconds. */

import { models, samples } from "./api.js";
import { byId, languagesOf, make, milliseconds, showProblem } from "./dom.js";
import { reasonOf, sentence } from "./states.js";

const EVERY_MS = 2000;
const LATENCY = "cerberank_request_phase_seconds_bucket";
const ERRORS = "cerberank_errors_total";
const ANSWERED = "cerberank_requests_total";

/** Titles of the entries of `/v1/models`, in the order of the page; other entries come after them under their names. */
const TITLES = {
  state: "State",
  reason: "Reason",
  labels: "Labels served",
  wanted: "Labels not served yet",
  rollback: "A rollback returns to it",
  pinned: "Loaded by hand",
  architecture: "Architecture",
  exits: "Exits after layers",
  first_stage: "First stage",
  score: "Score",
  max_length: "Tokens of a pair",
  question_length: "Tokens of a question",
  question_part: "Part read of a longer question",
  languages: "Languages",
  windows: "Reads long texts in windows",
  context: "Reads context",
  instruction: "Reads an instruction",
  backend: "Backend",
  backend_reason: "Why this backend",
  precision: "Precision",
  aliases: "Other names",
  metrics: "Measured before the push",
  source: "Source",
};
const FIRST = ["state", "reason", "labels", "wanted", "languages", "aliases"]; // the other entries are folded
const SHOWN_OTHERWISE = [
  "model", "version", "stages", "drop_schedule", "lexical_ratio", "longer_lists", "drop_minimum", "tuned_schedules", "calibration",
];

const percent = (share) => `${(100 * share).toLocaleString("en", { maximumFractionDigits: 0 })}\u00a0%`;
const rounded = (number) => number.toLocaleString("en", { maximumFractionDigits: 2, useGrouping: false });
const ratios = (schedule, lexical) => [...(lexical > 0 ? [`${percent(lexical)} by words`] : []), ...schedule.map(percent)].join(", then ");

function fact(value) {
  if (Array.isArray(value)) return value.map(fact).join(", ") || "none";
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, item]) => `${name.replaceAll("_", " ")} ${fact(item)}`).join("; ") || "none";
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? rounded(value) : String(value);
}

/** `B5 3H1` in words. @param {string} name */
function architecture(name) {
  if (name === "B0 0H0") return "question and candidates are read apart; the first stage ranks alone";
  const [, body, heads, layers] = /^B(\d+) (\d+)H(\d+)$/.exec(name) ?? [];
  const count = (number, noun) => `${number} ${noun}${number === "1" ? "" : "s"}`;
  return body ? `${name}: ${count(body, "shared layer")}, ${count(heads, "head")} of ${count(layers, "layer")}` : name;
}

/** @param {object} entry an entry of `/v1/models`, whose `wanted` has all labels by which the store names the version */
function modelCard(entry) {
  const missing = (entry.wanted ?? []).filter((label) => !entry.labels.includes(label));
  const filled = (value) => (Object.keys(value ?? {}).length ? value : null);
  const [aliases, metrics] = [filled(entry.aliases), filled(entry.metrics)];
  const model = { ...entry, aliases, metrics, wanted: missing.length ? missing : null, languages: languagesOf(entry.languages) || null };
  const rest = Object.keys(model).filter((name) => !(name in TITLES) && !SHOWN_OTHERWISE.includes(name));
  const known = [...Object.keys(TITLES), ...rest].filter((name) => ![undefined, null].includes(model[name]));
  const row = (name) => [
    make("dt", {}, TITLES[name] ?? name.replaceAll("_", " ")),
    make("dd", name === "state" ? { class: model.state } : {}, name === "architecture" ? architecture(model[name]) : fact(model[name])),
  ];
  const dropped = drops(model) ? [make("dt", {}, "Dropped by default"), make("dd", {}, defaultDrops(model))] : [];
  const folded = known.filter((name) => !FIRST.includes(name)).flatMap(row);
  return make(
    "article",
    {},
    make("h3", {}, `${model.model} ${model.version ?? ""}`),
    make("dl", { class: "facts" }, ...known.filter((name) => FIRST.includes(name)).flatMap(row)),
    make(
      "details",
      {},
      make("summary", {}, "Network, schedules and thresholds"),
      make("dl", { class: "facts" }, ...folded, ...dropped),
      schedules(model.tuned_schedules ?? []),
      thresholds(model.calibration),
    ),
  );
}

function drops({ drop_schedule, lexical_ratio, longer_lists }) {
  return Boolean(drop_schedule?.length || lexical_ratio || longer_lists?.length);
}

function defaultDrops({ drop_schedule, lexical_ratio, longer_lists, drop_minimum }) {
  const kept = drop_minimum > 1 ? `; at least ${drop_minimum} candidates stay` : "";
  const longer = (longer_lists ?? []).map((list) => `; from ${list.candidates} on ${ratios(list.schedule, list.lexical_ratio) || "none"}`);
  return `${ratios(drop_schedule, lexical_ratio) || "none"} of the candidates${longer.join("")}${kept}`;
}

function table(caption, titles, rows) {
  if (!rows.length) return null;
  return make(
    "table",
    {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))))),
  );
}

function schedules(tuned) {
  const figure = (metrics, name) => (name in metrics ? rounded(metrics[name]) : "");
  return table(
    "Schedules that were tuned for latency targets",
    ["Dropped", "Cost", "MAP", "P@1"],
    tuned.map(({ schedule, lexical_ratio, cost, metrics }) => [
      ratios(schedule, lexical_ratio), percent(cost), figure(metrics, "map"), figure(metrics, "p@1"),
    ]),
  );
}

/** For each wanted precision: from which score a first result is shown, and how many right ones remain. */
function thresholds(calibration) {
  return table(
    calibration && `First scores that keep a precision, measured on ${calibration.questions} questions, ${calibration.unanswered} of them without an answer`,
    ["min_precision", "Score at least", "Precision", "Recall", "Precision if all have an answer"],
    (calibration?.precision ?? []).map(({ wanted, threshold, precision, recall, precision_answered }) => [
      rounded(wanted), rounded(threshold), rounded(precision), rounded(recall), rounded(precision_answered),
    ]),
  );
}

/** Replaces only what changed, so that a screen reader is not told the same again; what was unfolded stays so. */
function update(element, children) {
  const fresh = make("div", {}, ...children);
  const before = element.querySelectorAll("details");
  for (const [place, each] of fresh.querySelectorAll("details").entries()) each.open = before[place]?.open ?? false;
  if (fresh.innerHTML !== element.innerHTML) element.replaceChildren(...fresh.childNodes);
}

let figures = true; // until the path of the figures is refused

async function refresh() {
  try {
    const [served, now] = await Promise.all([models(), figures ? samples() : null]);
    const state = served.map(sentence).join(" ");
    if (byId("state").textContent !== state) byId("state").textContent = state;
    update(byId("models"), served.map(modelCard));
    update(byId("now"), now ? tiles(now) : []);
    figures = now !== null;
    byId("without-figures").hidden = figures;
    showProblem(...served.filter(({ state }) => state !== "ready").flatMap(reasonOf));
  } catch (error) {
    showProblem(error.message);
  } finally {
    setTimeout(refresh, EVERY_MS);
  }
}

/** The figures since the start of this process. @param {Awaited<ReturnType<typeof samples>>} now */
function tiles(now) {
  const of = (name) => now.filter((sample) => sample.name === name);
  const sum = (name) => of(name).reduce((total, { value }) => total + value, 0);
  const number = (name) => sum(name).toLocaleString("en");
  const latency = of(LATENCY).filter(({ labels }) => labels.phase === "total");
  const kinds = of(ERRORS).filter(({ value }) => value > 0).sort((left, right) => right.value - left.value);
  const errors = kinds.map(({ labels, value }) => `${labels.kind.replaceAll("_", " ")} ${value.toLocaleString("en")}`).join(", ");
  const tile = (title, content, id, note = null) =>
    make("div", {}, make("dt", {}, title), make("dd", { id }, content), note && make("dd", { class: "help" }, note));
  return [
    tile("Half answered within", within(latency, 0.5), "median"),
    tile("95 % answered within", within(latency, 0.95), "p95"),
    tile("Answered", number(ANSWERED), ANSWERED),
    tile("Errors", number(ERRORS), ERRORS, errors || null),
    tile("In progress", number("cerberank_requests_in_flight"), "in-flight"),
    tile("Up for", duration(Date.now() / 1000 - sum("process_start_time_seconds")), "uptime"),
  ];
}

/** The bound of the first bucket that holds a share of the answers. @param {{labels: {le: string}, value: number}[]} buckets cumulative */
function within(buckets, share) {
  const counts = new Map();
  for (const { labels, value } of buckets) {
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  const bounds = [...counts.keys()].sort((left, right) => left - right);
  const all = counts.get(Infinity) ?? 0;
  if (all === 0) return "–";
  const bound = bounds.find((each) => counts.get(each) >= share * all);
  return bound === Infinity ? `over ${milliseconds(1000 * bounds.at(-2))}` : milliseconds(1000 * bound);
}

/** @param {number} seconds */
function duration(seconds) {
  if (seconds < 3600) return `${Math.max(1, Math.floor(seconds / 60))} min`;
  return seconds < 48 * 3600 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

refresh();
