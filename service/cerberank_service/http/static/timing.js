/** Where an answer's time went, as one bar in parts. */

import { make, milliseconds } from "./dom.js";

const PHASES = {
  encode: "read and encode",
  queue: "queue",
  compute: "model",
  other: "the rest",
};

/** @param {{encode: number, queue: number, compute: number, total: number}} timing in milliseconds */
export function timingBar(timing) {
  const other = Math.max(0, timing.total - timing.encode - timing.queue - timing.compute);
  const parts = Object.entries({ ...timing, other }).filter(([phase]) => phase in PHASES);
  const stack = make("div", { class: "stack", "aria-hidden": "true" });
  const legend = make("ul", { "aria-label": `Latency: ${milliseconds(timing.total)} in all` });
  for (const [phase, value] of parts) {
    const part = make("span", { class: phase });
    part.style.setProperty("--share", String(value));
    stack.append(part);
    legend.append(make("li", { class: phase }, `${PHASES[phase]} ${milliseconds(value)}`));
  }
  return make("div", { class: "timing" }, stack, legend);
}
