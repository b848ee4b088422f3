/** The service's own API, as any client sees it. Paths are relative, so that a prefix does no harm. */

/** The answer to a rank request; throws an Error whose message can be shown. @param {object} request */
export async function rank(request) {
  const answer = await ask("v1/rank", { method: "POST", body: JSON.stringify(request) });
  return answer.json();
}

/** What is served. */
export async function models() {
  return (await (await ask("v1/models")).json()).models;
}

/** Sums of the series in `/metrics` over their labels, by name. @param {string[]} names */
export async function series(names) {
  const lines = (await (await ask("metrics")).text()).split("\n");
  const sum = (name) =>
    lines
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
  return Object.fromEntries(names.map((name) => [name, sum(name)]));
}

async function ask(path, options) {
  const response = await fetch(path, options).catch(() => {
    throw new Error("The service cannot be reached.");
  });
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Error(said.error?.message ?? `The service answered ${response.status}.`);
}
