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

/** Shows a problem, or hides it when there is none. @param {string} [message] */
export function showProblem(message = "") {
  byId("problem").textContent = message;
  byId("problem").hidden = message === "";
}

/** A number with as many digits as matter. @param {number} value */
export const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
