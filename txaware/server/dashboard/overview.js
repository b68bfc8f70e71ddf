// The first view: everything at a glance, or one part of it; asked for again and again.

import { showGlance } from "./glance.js";
import { Model } from "./model.js";
import { ask } from "./server.js";
import { showTables } from "./tables.js";
import { here, lookNow, say } from "./views.js";

const EVERY_MS = 2000;
const SOON_MS = 1000;
const TYPED_MS = 250;

const find = (id) => document.getElementById(id);
const search = find("search");
const namespace = find("namespace");
const PARTS = ["topics", "groups", "queues", "tables", "outboxes", "transactions", "producers"];
const TITLES = { groups: "Consumer groups", transactions: "Open transactions" };
let model = new Model();
let report = null;

export const overview = {
  element: find("overview"),
  heading: null,

  /** Begins anew: what was seen before another view was shown is too old to go on from. */
  open([part], query) {
    const shown = PARTS.includes(part) ? part : null;
    for (const one of this.element.children) one.hidden = shown !== null && one.id !== shown;
    find("attention").hidden = true; // until it is known what does
    this.heading = shown && find(`${shown}-heading`);
    search.value = query.get("search") ?? "";
    const chosen = query.get("namespace") ?? "";
    if (chosen && ![...namespace.options].some(({ value }) => value === chosen)) {
      namespace.add(new Option(chosen, chosen));
    }
    namespace.value = chosen;
    model = new Model();
    report = null;
    return shown ? (TITLES[shown] ?? shown[0].toUpperCase() + shown.slice(1)) : "";
  },

  async look() {
    const answer = await ask(`v1/overview?${asked()}`);
    return () => {
      report = model.take(answer);
      show();
      return report.rates[0] === null ? SOON_MS : EVERY_MS;
    };
  },
};

function asked() {
  const query = new URLSearchParams(choice());
  if (report === null) query.set("history", "true");
  return query;
}

function choice() {
  const wanted = search.value.trim();
  return { ...(wanted && { search: wanted }), ...(namespace.value && { namespace: namespace.value }) };
}

function show() {
  const isPart = overview.heading !== null;
  showGlance(report, { isPart });
  showNamespaces(report.namespaces);
  const wanted = search.value.trim().toLowerCase();
  showTables(report, {
    isAll: !wanted && !namespace.value,
    has(name, ...names) {
      const [, of = "default"] = name.split(":").reverse();
      if (namespace.value && of !== namespace.value) return false;
      return names.some((one) => one.toLowerCase().includes(wanted));
    },
  });
}

function showNamespaces(names) {
  const there = [...namespace.options].slice(1).map((option) => option.value);
  if (names.join() === there.join()) return;
  const chosen = namespace.value;
  const known = chosen && !names.includes(chosen) ? [...names, chosen] : names;
  const options = known.map((name) => new Option(name, name, false, name === chosen));
  namespace.replaceChildren(namespace.options[0], ...options);
}

/** Shows what was chosen: here, or in the first view where another one is shown. */
function choose() {
  if (overview.element.hidden) {
    const query = new URLSearchParams(choice());
    location.hash = query.size ? `#/?${query}` : "#/";
    return false;
  }
  const { names } = here();
  if (names.length < 2) say(choice());
  if (report) show();
  return true;
}

let typing;
search.addEventListener("input", () => {
  if (!choose()) return;
  clearTimeout(typing);
  typing = setTimeout(lookNow, TYPED_MS);
});
namespace.addEventListener("change", () => {
  if (choose()) lookNow();
});
document.addEventListener("keydown", (event) => {
  const isElsewhere = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || isElsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
});
