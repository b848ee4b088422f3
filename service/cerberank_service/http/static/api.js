/** The service's own API, as any client sees it. Paths are relative, so that a prefix does no harm. */

/** The answer to a rank request; throws an Error whose message can be shown. @param {object} request @param {string} key "" for none */
export async function rank(request, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await ask("v1/rank", { method: "POST", body: JSON.stringify(request), headers });
  return answer.json();
}

/** What is served. */
export async function models() {
  return (await (await ask("v1/models")).json()).models;
}

/**
 * The samples in `/metrics`; null if a proxy refuses this path.
 * @returns {Promise<{name: string, labels: Record<string, string>, value: number}[] | null>}
 */
export async function samples() {
  const response = await ask("metrics").catch((error) => {
    if (![401, 403, 404].includes(error.status)) throw error;
    return null;
  });
  if (response === null) return null;
  return [...(await response.text()).matchAll(/^(\w+)(?:{(.*)})? (\S+)$/gm)].map(([, name, labels = "", value]) => ({
    name,
    labels: Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, each]) => [key, each])),
    value: Number(value),
  }));
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
