// The rows of a topic as they stand, page by page, or those that a search finds; nothing
// is consumed.

import { asLine, decoded, download, encoded, labelsOf, payloadOf } from "./payloads.js";
import { ask, NoAnswer, pathOf, Refused, tell } from "./server.js";
import { make, setName, setText } from "./table.js";
import { here, say } from "./views.js";
import { bytes, count, several, time } from "./words.js";

const EVERY_MS = 2000;
const PAGE = 25;
const MOST_LOOKS = 80;
const MOST_LOOKS_FOR_MORE = 8;
const MOST_LOOKED_AT = 200_000;
const A_SECOND = 1000 * 0x10000; // between the keys of two rows
const OLDEST = "oldest";

const find = (id) => document.getElementById(id);
const section = find("messages");
const list = find("rows");
const place = find("messages-place");
const problem = find("messages-problem");
const from = find("from");
const until = find("until");
const shownAs = find("shown-as");
const earlier = find("earlier");
const later = find("later");
const wanted = { key: find("by-key"), header: find("by-header"), text: find("by-text") };

// What is shown: `start` is an id, a time in ms, or null for the oldest row; `next` is
// where the next page begins; `before` are the starts of the pages that led here.
let shown = fresh("");
let turn = 0;

function fresh(topic) {
  return { topic, start: null, rows: [], next: null, before: [], last: null, isRead: false };
}

export const messagesView = {
  element: section,
  heading: find("messages-heading"),

  open([topic], query) {
    turn += 1;
    shown = fresh(topic);
    setName(find("messages-heading"), `Messages of ${topic}`);
    for (const [name, field] of Object.entries(wanted)) field.value = query.get(name) ?? "";
    const start = query.get("from");
    from.value = local(start);
    until.value = local(query.get("until"));
    shownAs.value = query.get("as") === "hex" ? "hex" : "fitting";
    list.replaceChildren();
    for (const element of [place, find("newer")]) setText(element, "");
    problem.hidden = true;
    shown.asked = start === null && !criteria() ? undefined : startOf(start);
    return topic;
  },

  /** Reads once, and then tells whether there are newer ones: nobody's page moves away. */
  async look() {
    const mine = shown;
    if (!mine.isRead) {
      mine.isRead = true;
      await (mine.asked === undefined ? newest() : go(mine.asked, []));
      return () => EVERY_MS;
    }
    const { last } = await boundsOf(mine.topic);
    return () => {
      if (mine !== shown) return 0;
      const isNew = mine.last !== null && last !== mine.last && !criteria();
      setText(find("newer"), isNew ? "There are newer ones." : "");
      return EVERY_MS;
    };
  },
};

/** A start as an address has it: a time in ms, an id, or the word for the oldest row. */
function startOf(text) {
  if (text === null || text === OLDEST) return null;
  return /^\d{1,16}$/.test(text) ? Number(text) : text;
}

/** A time of an address as a field has it; "" for what is no time. */
function local(text) {
  if (!/^\d{1,16}$/.test(text ?? "")) return "";
  return time(Number(text)).slice(0, 19).replace(" ", "T");
}

function msOf(field) {
  const ms = new Date(field.value).getTime();
  return Number.isFinite(ms) && ms >= 0 ? ms : null;
}

/** What is searched for; null where nothing is. */
function criteria() {
  const { key, header, text } = wanted;
  const asked = {};
  if (key.value) asked.key = encoded(key.value);
  if (header.value) {
    const [name, ...value] = header.value.split("=");
    asked.header = name.trim();
    if (value.length) asked.headerValue = encoded(value.join("=").trim());
  }
  if (text.value) asked.text = text.value;
  if (msOf(until) !== null) asked.until = msOf(until);
  return Object.keys(asked).length ? asked : null;
}

function sayWhere(start) {
  const fields = Object.entries(wanted).map(([name, field]) => [name, field.value]);
  say({
    from: start ?? OLDEST,
    ...Object.fromEntries(fields),
    until: msOf(until),
    as: shownAs.value === "hex" ? "hex" : "",
  });
}

function peek(start, limit) {
  const query = new URLSearchParams({ limit });
  if (start !== null) query.set("startFrom", start);
  return ask(`${pathOf("topics", shown.topic)}/peek?${query}`);
}

function boundsOf(topic) {
  return ask(`${pathOf("topics", topic)}/bounds`);
}

/** Runs what reads; only the last one that was asked for is shown. */
async function read(look) {
  const mine = ++turn;
  section.setAttribute("aria-busy", "true");
  try {
    const found = await look(mine);
    if (mine !== turn) return;
    problem.hidden = true;
    shown = Object.assign(shown, found);
    show();
  } catch (error) {
    if (!(error instanceof NoAnswer || error instanceof Refused)) throw error;
    if (mine !== turn) return;
    setText(problem, error.message);
    problem.hidden = false;
  } finally {
    if (mine === turn) section.removeAttribute("aria-busy");
  }
}

function go(start, before) {
  return read(async (mine) => {
    const asked = criteria();
    if (asked) return found(mine, asked, start, before);
    return page(await peek(start, PAGE + 1), start, before);
  });
}

function page(rows, start, before) {
  return { start, before, rows: rows.slice(0, PAGE), next: rows[PAGE]?.id ?? null };
}

/** The rows that a search finds from a start on: it reads on until a page is full. */
async function found(mine, asked, start, before) {
  const rows = [];
  let next = start;
  let looked = 0;
  do {
    const limit = PAGE - rows.length;
    const body = { ...asked, limit, ...(next !== null && { startFrom: next }) };
    const part = await tell(`${pathOf("topics", shown.topic)}/search`, body);
    rows.push(...part.rows);
    looked += part.looked;
    next = part.next;
    const upTo = next === null ? "" : `, up to ${time(timeOf(next))}`;
    if (mine === turn) setText(place, `Looked at ${several(looked, "row")}${upTo}`);
  } while (next !== null && rows.length < PAGE && looked < MOST_LOOKED_AT && mine === turn);
  return { start, before, rows, next, looked };
}

/** The last rows. */
function newest() {
  return read(async () => {
    const { last } = await boundsOf(shown.topic);
    shown.last = last;
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
 * Where it has some, it looks a few times more for half a page.
 */
async function before(id, { inclusive = false } = {}) {
  const end = keyOf(id) + (inclusive ? 1n : 0n);
  let [few, many, distance, best, more] = [1, Infinity, PAGE, null, MOST_LOOKS_FOR_MORE];
  for (let look = 0; look < MOST_LOOKS; look++) {
    const start = BigInt(distance) < end ? idOf(end - BigInt(distance)) : null;
    const rows = await peek(start, PAGE + 1);
    const older = rows.filter((row) => keyOf(row.id) < end);
    if (older.length <= PAGE) {
      const next = rows[older.length]?.id ?? (inclusive ? null : id);
      if (older.length) best = { start, before: [], rows: older, next };
      if (start === null) return best ?? { start, before: [], rows: [], next };
      if (older.length > PAGE / 2) return best;
      few = distance;
    } else {
      many = distance;
    }
    if (many === Infinity) {
      distance = Math.max(distance * 8, A_SECOND);
      continue;
    }
    if (best && (more === 0 || many - few <= 1)) return best;
    if (best) more -= 1;
    // The middle by its digits: rows may be parts of a millisecond apart, or days.
    distance = Math.max(few + 1, Math.floor(Math.sqrt(few) * Math.sqrt(many)));
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
  const { rows, start, next, looked } = shown;
  list.replaceChildren(...rows.map(item));
  list.scrollTop = 0;
  const isSearch = criteria() !== null;
  earlier.disabled = isSearch ? !shown.before.length : start === null;
  later.disabled = next === null;
  setText(later, isSearch ? "Search on" : "Later");
  find("download-messages").hidden = !rows.length;
  const end = next === null ? ", the last ones" : "";
  const range = rows.length ? `, from ${time(timeOf(rows[0].id))} to ${time(timeOf(rows.at(-1).id))}${end}` : "";
  const of = isSearch ? ` of ${count(looked)} that were looked at` : "";
  const none = isSearch ? `None of ${several(looked, "row")} fits${next === null ? "" : " so far"}.` : "There are no rows here.";
  setText(place, rows.length ? `${several(rows.length, "row")}${of}${range}` : none);
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
  for (const label of labelsOf(row)) line.append(make("span", "label", label));
  const keep = make("button", "small", "Download");
  keep.type = "button";
  keep.setAttribute("aria-label", `Download the payload of ${time(timeOf(row.id))}`);
  keep.addEventListener("click", () => download(`${shown.topic}-${row.id}`, [data], "application/octet-stream"));
  line.append(keep);
  element.append(...payloadOf(data, shownAs.value));
  return element;
}

/** Goes to a start that somebody chose, and says so in the address. */
function choose(start) {
  sayWhere(start);
  return go(start, []);
}

find("oldest").addEventListener("click", () => choose(null));
find("newest").addEventListener("click", () => {
  for (const field of [from, until, ...Object.values(wanted)]) field.value = "";
  setText(find("newer"), "");
  say({ as: shownAs.value === "hex" ? "hex" : "" });
  newest();
});
earlier.addEventListener("click", async () => {
  await back();
  sayWhere(shown.start);
});
later.addEventListener("click", () => {
  const { next } = shown;
  go(next, [...shown.before, shown.start]);
  sayWhere(next);
});
shownAs.addEventListener("change", () => {
  const { query } = here();
  say({ ...Object.fromEntries(query), as: shownAs.value === "hex" ? "hex" : "" });
  show();
});
from.addEventListener("change", () => {
  if (msOf(from) !== null) choose(msOf(from));
});
find("searching").addEventListener("submit", (event) => {
  event.preventDefault();
  choose(msOf(from));
});
find("download-messages").addEventListener("click", () => {
  const lines = shown.rows.map((row) => `${asLine({ ...row, time: new Date(timeOf(row.id)).toISOString() })}\n`);
  download(`${shown.topic}.jsonl`, lines, "application/jsonl");
});
