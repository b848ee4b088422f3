/** Small helpers to build elements; texts are never read as HTML. */

/**
 * An element with attributes and children; a child is a node or a text, and null is left out.
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string | null)} children
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The element of this page with an id. @param {string} id */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Shows a problem, or hides it when there is none. @param {...(Node | string)} parts */
export function showProblem(...parts) {
  byId("problem").replaceChildren(...parts);
  byId("problem").hidden = parts.length === 0;
}

/** @param {number} count */
export const candidatesIn = (count) => (count === 1 ? "1 candidate" : `${count} candidates`);

/** A number with as many digits as matter. @param {number} value */
export const milliseconds = (value) =>
  value < 1000 ? `${value < 10 ? value.toFixed(1) : Math.round(value)} ms` : `${Number((value / 1000).toPrecision(3))} s`;

/** Languages by their codes. @param {string[] | null} codes */
export const languagesOf = (codes) => (codes ?? []).map((code) => new Intl.DisplayNames("en", { type: "language" }).of(code)).join(", ");
