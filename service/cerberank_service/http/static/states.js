/** The states of a version in words, as both pages say them. */

import { make } from "./dom.js";

const STATES = {
  loading: "is being loaded",
  ready: "is ready",
  draining: "is drained: it takes no new questions",
  unloading: "answers its last requests",
  refused: "is not loaded for lack of memory",
  failed: "cannot serve and is not tried again",
  retrying: "could not be loaded and is tried again",
  stopped: "has stopped",
};

/** @param {{model?: string, version?: string, state: string}} model an entry of `/v1/models` */
export function sentence({ model, version, state }) {
  return `${model === undefined ? "The model" : `${model} ${version}`} ${STATES[state] ?? `is ${state}`}.`;
}

const REMEDIES = {
  refused: "Unload another version, or give the service more memory. ",
  failed: "Push another version, or name another checkpoint. ",
};

/** The reason of a model that cannot answer, what to do, and where to read more; nothing while it is only loading. */
export function reasonOf(model) {
  if (!model.reason && !REMEDIES[model.state]) return [];
  const reason = model.reason ? `${model.reason}. ` : "";
  const link = make("a", { href: "v1/models" }, "All versions and their reasons");
  return [`${sentence(model)} ${reason}${REMEDIES[model.state] ?? ""}`, link, "."];
}
