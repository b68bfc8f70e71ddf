// Asks the server: a token where there is one, a time limit, exact whole numbers.

const TIME_LIMIT_MS = 15_000;
const TOKEN = "txaware-token";

/** What the server refused, in its own words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Nobody answered. */
export class NoAnswer extends Error {}

let aheadMs = 0;

/** The time as the server has it, as far as its answers say: to the second. */
export function serverNow() {
  return Date.now() + aheadMs;
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** The answer to a request, parsed; paths are relative to the page, `body` is JSON. */
export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, text;
  try {
    response = await fetch(path, {
      method,
      headers,
      body,
      cache: "no-store",
      signal: AbortSignal.timeout(TIME_LIMIT_MS),
    });
    text = await response.text();
    const byServer = Date.parse(response.headers.get("Date") ?? "") - Date.now();
    aheadMs = Math.abs(byServer) > 2000 ? byServer : 0;
  } catch (error) {
    throw new NoAnswer(
      error.name === "TimeoutError"
        ? `no answer in ${TIME_LIMIT_MS / 1000} s`
        : "the server cannot be reached",
    );
  }
  if (response.ok) return text ? parse(text) : null;
  throw new Refused(response.status, sentence(text) ?? `the answer was ${response.status}`);
}

function sentence(text) {
  try {
    return JSON.parse(text).message;
  } catch {
    return undefined;
  }
}

// Transactions are whole numbers above 2^53, which a JavaScript number cannot hold:
// those of 16 digits and more become text. Strings are matched first, and left alone.
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export function parse(json) {
  const exact = json.replace(TOKENS, (token) => (/^-?\d{16,}$/.test(token) ? `"${token}"` : token));
  return JSON.parse(exact);
}

/** The path of a topic, queue or table that is named `name` or `namespace:name`. */
export function pathOf(kind, full) {
  const [name, namespace = "default"] = full.split(":").reverse();
  return `v1/namespaces/${encodeURIComponent(namespace)}/${kind}/${encodeURIComponent(name)}`;
}

/** What a caller may not do with these, by the right, in the server's words. */
export async function refusals(names) {
  return (await ask(`v1/rights?${new URLSearchParams(names)}`)).refused;
}

/** Sends a value as JSON; the answer, parsed. */
export function tell(path, value, method = "POST") {
  return ask(path, { method, body: JSON.stringify(value) });
}
