// Shows the rows of a topic as they stand, page by page, and consumes nothing.

import { ask, topicPath } from "./server.js";
import { make, setName, setText } from "./table.js";
import { bytes, several, time } from "./words.js";

const PAGE = 25;
const SHOWN_BYTES = 2000;
const MOST_LOOKS = 80;
const A_SECOND = 1000 * 0x10000; // between the keys of two rows

const dialog = document.getElementById("messages");
const heading = document.getElementById("messages-heading");
const list = document.getElementById("rows");
const place = document.getElementById("messages-place");
const problem = document.getElementById("messages-problem");
const from = document.getElementById("from");
const shownAs = document.getElementById("shown-as");
const earlier = document.getElementById("earlier");
const later = document.getElementById("later");

// What is shown: `start` is an id, a time in ms, or null for the oldest row; `next` is
// where the next page begins; `before` are the starts of the pages that led here.
let shown = { topic: "", start: null, rows: [], next: null, before: [] };
let turn = 0;

/** Opens the dialog at a start, by default at the newest rows. */
export function showMessages(topic, { start } = {}) {
  shown = { topic, start: null, rows: [], next: null, before: [] };
  setName(heading, `Messages of ${topic}`);
  from.value = "";
  list.replaceChildren();
  setText(place, "");
  dialog.showModal();
  if (start === undefined) newest();
  else go(start, []);
}

async function peek(start, limit) {
  const query = new URLSearchParams({ limit });
  if (start !== null) query.set("startFrom", start);
  return ask(`${topicPath(shown.topic)}/peek?${query}`);
}

/** Runs what reads; only the last one that was asked for is shown. */
async function read(find) {
  const mine = ++turn;
  dialog.setAttribute("aria-busy", "true");
  try {
    const found = await find();
    if (mine !== turn) return;
    problem.hidden = true;
    shown = { ...shown, ...found };
    show();
  } catch (error) {
    if (mine !== turn) return;
    setText(problem, error.message);
    problem.hidden = false;
  } finally {
    if (mine === turn) dialog.removeAttribute("aria-busy");
  }
}

function go(start, before) {
  return read(async () => page(await peek(start, PAGE + 1), start, before));
}

function page(rows, start, before) {
  return { start, before, rows: rows.slice(0, PAGE), next: rows[PAGE]?.id ?? null };
}

/** The last rows. */
function newest() {
  return read(async () => {
    const { last } = await ask(`${topicPath(shown.topic)}/bounds`);
    return last === null ? first() : before(last, { inclusive: true });
  });
}

async function first() {
  return page(await peek(null, PAGE + 1), null, []);
}

/** The page before the one that is shown. */
function back() {
  const starts = shown.before;
  if (starts.length) return go(starts.at(-1), starts.slice(0, -1));
  return read(() => (shown.rows.length ? before(shown.rows[0].id) : first()));
}

/**
 * The rows before an id. They can only be read forwards, so it begins some distance
 * before it: further away while it finds nothing, nearer where there is more than a page.
 */
async function before(id, { inclusive = false } = {}) {
  const end = keyOf(id) + (inclusive ? 1n : 0n);
  let [few, many, distance, best] = [0, Infinity, PAGE, null];
  for (let look = 0; look < MOST_LOOKS; look++) {
    const start = BigInt(distance) < end ? idOf(end - BigInt(distance)) : null;
    const rows = await peek(start, PAGE + 1);
    const older = rows.filter((row) => keyOf(row.id) < end);
    if (older.length <= PAGE) {
      const next = rows[older.length]?.id ?? (inclusive ? null : id);
      if (older.length) best = { start, before: [], rows: older, next };
      if (start === null) return best ?? { start };
      if (older.length > PAGE / 2) return best;
      few = distance;
    } else {
      many = distance;
    }
    if (best && many < Infinity) return best;
    distance = many < Infinity ? Math.floor((few + many) / 2) : Math.max(distance * 8, A_SECOND);
  }
  return first();
}

function timeOf(id) {
  return parseInt(id.slice(0, 16), 16);
}

// Time and sequence as one number: that is the order of rows.
function keyOf(id) {
  return BigInt(`0x${id.slice(0, 20)}`);
}

function idOf(key) {
  return key.toString(16).padStart(20, "0").padEnd(40, "0");
}

function show() {
  const { rows, start, next } = shown;
  list.replaceChildren(...rows.map(item));
  list.scrollTop = 0;
  earlier.disabled = start === null;
  later.disabled = next === null;
  setText(
    place,
    rows.length
      ? `${several(rows.length, "row")}, from ${time(timeOf(rows[0].id))}` +
          ` to ${time(timeOf(rows.at(-1).id))}${next === null ? ", the last ones" : ""}`
      : "There are no rows here.",
  );
}

function item(row) {
  const element = make("li", row.state.replace(" ", "-"));
  const line = make("p", "row soft");
  line.append(make("time", "", time(timeOf(row.id))));
  line.append(make("span", "badge", row.state));
  if (row.pointer !== null) line.append(make("span", "pointer", `transaction ${row.pointer}`));
  element.append(line);
  if (row.payload === null) {
    line.append(make("span", "", "a reference to stored payloads"));
    return element;
  }
  const data = decoded(row.payload);
  line.append(make("span", "", bytes(data.length)));
  for (const label of labels(row)) line.append(make("span", "label", label));
  const shownText = make("pre", "payload", payload(data.subarray(0, SHOWN_BYTES)));
  element.append(shownText);
  if (data.length > SHOWN_BYTES) {
    const more = make("button", "", `Show all ${bytes(data.length)}`);
    more.type = "button";
    more.addEventListener("click", () => {
      shownText.textContent = payload(data);
      shownText.tabIndex = -1;
      shownText.focus();
      more.remove();
    });
    element.append(more);
  }
  return element;
}

function decoded(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** Key and headers; a server of the version before tells of none. */
function labels(row) {
  const short = (base64) => payload(decoded(base64).subarray(0, SHOWN_BYTES));
  const headers = Object.entries(row.headers ?? {});
  return [
    ...((row.key ?? null) === null ? [] : [`key ${short(row.key)}`]),
    ...headers.map(([name, value]) => `${name}: ${short(value)}`),
  ];
}

const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;

/** As text where it is text, cut within a letter or not; else as hex. */
function payload(data) {
  if (shownAs.value === "fitting") {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: true });
      if (!CONTROL.test(text)) return text;
    } catch {
      // It is no text.
    }
  }
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

document.getElementById("oldest").addEventListener("click", () => go(null, []));
document.getElementById("newest").addEventListener("click", newest);
earlier.addEventListener("click", back);
later.addEventListener("click", () => go(shown.next, [...shown.before, shown.start]));
shownAs.addEventListener("change", show);
from.addEventListener("change", () => {
  const ms = new Date(from.value).getTime();
  if (Number.isFinite(ms) && ms >= 0) go(ms, []);
});
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => turn++);
