// The rows of a table, as a fresh snapshot sees them; nothing is changed here.

import { brief, decoded, download, encoded, payloadOf, textOf } from "./payloads.js";
import { pathOf, refusals, tell } from "./server.js";
import { make, setText } from "./table.js";
import { here, lookNow, say } from "./views.js";
import { several } from "./words.js";

const EVERY_MS = 5000;
const PAGE = 50;

const find = (id) => document.getElementById(id);
const list = find("table-rows");
const prefix = find("prefix");
let shown = { name: "", from: null, before: [], page: null, refused: null };

export const rowsView = {
  element: find("rows-view"),
  heading: find("rows-heading"),

  open([name], query) {
    const from = query.get("from");
    const goesOn = name === shown.name && (query.get("prefix") ?? "") === prefix.value;
    shown = { name, from, before: goesOn ? shown.before : [], page: null, refused: null };
    prefix.value = query.get("prefix") ?? "";
    setText(find("rows-heading"), `Table ${name}`);
    list.replaceChildren();
    setText(find("rows-place"), "");
    return name;
  },

  async look() {
    const mine = shown;
    mine.refused ??= (await refusals({ table: mine.name })).read ?? "";
    const asked = { prefix: encoded(prefix.value), limit: PAGE };
    if (mine.from !== null) asked.start = mine.from;
    const page = mine.refused ? { rows: [], next: null } : await tell(`${pathOf("tables", mine.name)}/scan`, asked);
    return () => {
      if (mine === shown) show(page);
      return EVERY_MS;
    };
  },
};

function show(page) {
  const isSame = JSON.stringify(page) === JSON.stringify(shown.page);
  shown.page = page;
  setText(find("rows-problem"), shown.refused ? `Rows are not shown: ${shown.refused}.` : "").hidden = !shown.refused;
  find("rows-earlier").disabled = shown.from === null;
  find("rows-later").disabled = page.next === null;
  find("download-rows").hidden = !page.rows.length;
  const last = page.next === null ? ", the last ones" : "";
  const none = prefix.value ? "No key begins so." : "There are no rows here.";
  setText(find("rows-place"), page.rows.length ? `${several(page.rows.length, "row")}${last}` : shown.refused ? "" : none);
  if (!isSame) list.replaceChildren(...page.rows.map(item));
}

function item([key, value]) {
  const element = make("li");
  element.append(make("p", "what key", brief(key)), ...payloadOf(decoded(value)));
  return element;
}

function go(from, before) {
  shown = { ...shown, from, before };
  say({ prefix: prefix.value, from });
  lookNow();
}

find("rows-earlier").addEventListener("click", () => go(shown.before.at(-1) ?? null, shown.before.slice(0, -1)));
find("rows-later").addEventListener("click", () => go(shown.page.next, [...shown.before, shown.from]));
prefix.addEventListener("change", () => go(null, []));
find("download-rows").addEventListener("click", () => {
  const value = (base64) => textOf(decoded(base64)) ?? { base64 };
  const lines = shown.page.rows.map(([key, row]) => `${JSON.stringify({ key: value(key), value: value(row) })}\n`);
  download(`${here().names[1]}.jsonl`, lines, "application/jsonl");
});
