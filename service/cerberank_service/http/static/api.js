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

/** Sums of the series in `/metrics` over their labels, by name; null if a proxy refuses this path. @param {string[]} names */
export async function series(names) {
  const response = await ask("metrics").catch((error) => {
    if (![401, 403, 404].includes(error.status)) throw error;
    return null;
  });
  if (response === null) return null;
  const lines = (await response.text()).split("\n");
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
  const message = said.error?.message ?? `The service answered ${response.status}.`;
  throw Object.assign(new Error(message), { status: response.status });
}
