// One queue: what waits, what is in work, by whom and until when, what is delayed, and
// what died of what. It is emptied, paused and repaired here, once somebody said so.

import { askFirst } from "./asking.js";
import { Chart } from "./charts.js";
import { Levels } from "./model.js";
import { asLine, decoded, download, labelsOf, payloadOf } from "./payloads.js";
import { ask, pathOf, refusals, serverNow, tell } from "./server.js";
import { child, link, make, setText } from "./table.js";
import { address, lookNow } from "./views.js";
import * as words from "./words.js";

const EVERY_MS = 2000;
const FIRST = 25;
const MOST = 1000;
const STATES = { waiting: "Waiting", in_work: "In work", delayed: "Delayed", dead: "Dead" };
const NONE = {
  waiting: "Nothing waits.",
  in_work: "Nothing is in work.",
  delayed: "Nothing is delayed.",
  dead: "No dead letter waits.",
};

const find = (id) => document.getElementById(id);
const section = find("queue");
const list = find("items");
const more = find("more-items");
const waiting = new Chart(["behind"]);
find("queue-waiting").append(waiting.element);
let shown = fresh("", "waiting");

function fresh(name, state) {
  const levels = { depth: new Levels() };
  return { name, state, limit: FIRST, refused: null, letters: null, hasLetters: false, levels, items: [] };
}

export const queueView = {
  element: section,
  heading: find("queue-heading"),

  open([name], query) {
    const state = Object.hasOwn(STATES, query.get("state") ?? "") ? query.get("state") : "waiting";
    if (name !== shown.name) shown = fresh(name, state);
    shown.state = state;
    shown.limit = FIRST;
    shown.items = [];
    list.replaceChildren();
    setText(find("queue-heading"), `Queue ${name}`);
    setText(find("items-none"), "");
    for (const part of ["queue-problem", "more-items"]) find(part).hidden = true;
    return `${name}, ${STATES[state].toLowerCase()}`;
  },

  async look() {
    const mine = shown;
    const { name, state, limit } = mine;
    const path = pathOf("queues", name);
    const [made, stats] = await Promise.all([ask(path), ask(`${path}/stats`)]);
    const letters = made.deadLetterQueue ?? `${name}-dead`;
    mine.refused ??= await refusals({ queue: name });
    mine.letters ??= await refusals({ queue: letters });
    mine.hidesLetters = ["push", "pop", "manage"].every((right) => right in mine.letters);
    const dead = await lettersIn(mine, letters);
    const refused = mine.refused.pop ?? (state === "dead" ? mine.letters.pop : undefined);
    const items = refused ? [] : await ask(`${path}/items?${new URLSearchParams({ state, limit })}`);
    return () => {
      if (mine !== shown) return 0;
      showQueue({ made, stats, letters, dead });
      showActions({ made, stats, letters, dead });
      showItems(items, { refused, stats });
      return EVERY_MS;
    };
  },
};

/** How many letters wait there: none before the first has died, null where that is hidden. */
async function lettersIn(mine, letters) {
  if (!mine.hasLetters) {
    const [name, namespace = "default"] = letters.split(":").reverse();
    mine.hasLetters = (await ask(`v1/namespaces/${encodeURIComponent(namespace)}/queues`)).includes(name);
    if (!mine.hasLetters) return mine.hidesLetters ? null : 0;
  }
  return (await ask(`${pathOf("queues", letters)}/stats`)).depth;
}

function showQueue({ made, stats, letters, dead }) {
  const oldest = stats.depth ? `the oldest for ${words.duration(stats.oldestAgeS * 1000)}` : "";
  shown.levels.depth.add(Date.now(), stats.depth);
  const values = shown.levels.depth.values;
  waiting.draw([values], `Waiting in the last two minutes: at most ${words.count(Math.max(...values))}`, words.shortCount);
  figure("queue-waiting", words.count(stats.depth), oldest);
  figure("queue-in-work", words.count(stats.inWork), stats.expiredLeases ? `${words.several(stats.expiredLeases, "lease")} ran out` : "");
  figure("queue-done", words.rate(stats.committedPerS), `a second; ${words.shortCount(stats.committed)} in all`);
  figure("queue-dead", words.count(dead), `${words.shortCount(stats.deadLetters)} died in all`);
  const badge = find("queue-state");
  setText(badge, stats.isPaused ? "paused: nothing is popped" : "");
  const facts = [
    `lease ${words.duration(made.leaseS * 1000)}`,
    `order ${made.order}`,
    made.maxDeliveries === null ? "delivered again without an end" : `dead after ${words.several(made.maxDeliveries, "delivery", "deliveries")}`,
    words.several(stats.pipes, "pipe"),
  ];
  setText(child(find("queue-facts"), "span", "facts"), `${facts.join(", ")}; dead letters go to `);
  link(find("queue-facts"), "name", letters, address(["queues", letters]));
  for (const [state, count] of Object.entries({
    waiting: stats.depth - stats.delayed,
    in_work: stats.inWork,
    delayed: stats.delayed,
    dead,
  })) {
    const tab = link(find("states"), `state-${state}`, `${STATES[state]} ${words.count(count)}`, address(["queues", shown.name], { state }));
    if (state === shown.state) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
}

function figure(id, value, beside) {
  const tile = find(id);
  setText(tile.querySelector(".figure"), value);
  setText(tile.querySelector(".beside"), beside);
}

function showActions({ made, stats, letters, dead }) {
  const refused = shown.refused.manage;
  const focused = document.activeElement.id;
  for (const id of ["redrive", "pause", "resume", "truncate"]) find(id).hidden = Boolean(refused);
  find("pause").hidden ||= stats.isPaused;
  find("resume").hidden ||= !stats.isPaused;
  const other = { pause: "resume", resume: "pause" }[focused]; // which takes its place
  if (other && find(focused).hidden) find(other).focus();
  setText(find("queue-refused"), refused ? `Nothing can be changed here: ${refused}.` : "").hidden = !refused;
  shown.facts = { made, stats, letters, dead };
}

const QUESTIONS = {
  redrive: ({ letters, dead }, name) => ({
    heading: "Send the dead letters back?",
    lines: [
      `${dead === null ? "All letters" : words.several(dead, "letter")} in ${words.short(letters)}: those that came from ${words.short(name)} wait there again, as they were pushed.`,
      "What they died of may happen again: mend that first.",
    ],
    leave: "Leave them dead",
    label: "Redrive",
    async act() {
      const { moved } = await tell(`${pathOf("queues", name)}/redrive`, {});
      return `${words.several(moved, "dead letter")} went back to ${words.short(name)}.`;
    },
  }),
  pause: ({ stats }, name) => ({
    heading: "Pause this queue?",
    lines: ["Nobody pops from it until it is resumed; pushes go on.", `${words.several(stats.inWork, "job")} in work may still end.`],
    leave: "Let it go on",
    label: "Pause",
    act: () => post(name, "pause", "is paused"),
  }),
  resume: ({ stats }, name) => ({
    heading: "Resume this queue?",
    lines: [`${words.several(stats.depth, "item")} waiting can be popped again.`],
    leave: "Leave it paused",
    label: "Resume",
    act: () => post(name, "resume", "goes on"),
  }),
  truncate: ({ stats }, name) => ({
    heading: "Remove all items?",
    lines: [
      `${words.several(stats.depth, "item")} waiting and ${words.several(stats.inWork, "job")} in work are gone, and all counts begin at zero.`,
      "This cannot be taken back.",
    ],
    leave: "Keep them",
    label: "Truncate",
    act: () => post(name, "truncate", "is empty"),
  }),
};

async function post(name, call, done) {
  await ask(`${pathOf("queues", name)}/${call}`, { method: "POST" });
  return `Queue ${words.short(name)} ${done}.`;
}

function showItems(items, { refused, stats }) {
  const problem = find("queue-problem");
  setText(problem, refused ? `Items are not shown: ${refused}.` : "").hidden = !refused;
  shown.items = items;
  const now = serverNow();
  const kept = new Set(items.map((item) => item.id));
  for (const element of [...list.children]) if (!kept.has(element.dataset.key)) element.remove();
  items.forEach((item, at) => {
    const there = [...list.children].find((one) => one.dataset.key === item.id) ?? made(item);
    if (list.children[at] !== there) list.insertBefore(there, list.children[at] ?? null);
    showItem(there, item, now);
  });
  setText(find("items-none"), items.length || refused ? "" : NONE[shown.state]);
  more.hidden = items.length < shown.limit || shown.limit >= MOST;
  find("download-items").hidden = !items.length;
}

function made(item) {
  const element = make("li", `item ${shown.state}`);
  element.dataset.key = item.id;
  child(element, "p", "said");
  const data = decoded(item.payload);
  element.append(...payloadOf(data));
  if (item.error) {
    const why = make("p", "why wrong", item.error);
    element.append(why);
  }
  if (item.traceback) {
    const details = make("details", "traceback");
    const calls = make("pre", "", item.traceback);
    details.append(make("summary", "", "Traceback"), calls);
    element.append(details);
  }
  return element;
}

/** Who has it, or when it comes; ages go on while the item stays. */
function showItem(element, item, now) {
  const ago = (ms) => words.duration(now - ms);
  const parts = [`${shown.state === "dead" ? "died" : "pushed"} ${words.time(item.pushedMs).slice(0, 19)}`];
  if (item.popper || item.sinceMs !== null) parts.push(`${item.popper || "somebody"} has it for ${ago(item.sinceMs)}`);
  if (item.untilMs !== null) parts.push(`until ${words.time(item.untilMs).slice(11, 19)} (${words.duration(Math.max(0, item.untilMs - now))})`);
  if (item.transaction !== null) parts.push(`until the end of transaction ${item.transaction}`);
  if (shown.state === "delayed" && item.dueMs !== null) {
    parts.push(`waits until ${words.time(item.dueMs).slice(0, 19)} (${words.duration(Math.max(0, item.dueMs - now))})`);
  }
  if (item.deliveries) parts.push(words.several(item.deliveries, "delivery", "deliveries"));
  setText(child(element, "p", "said"), [...parts, ...labelsOf(item)].join(" · "));
}

for (const [id, question] of Object.entries(QUESTIONS)) {
  find(id).addEventListener("click", () => askFirst(question(shown.facts, shown.name)));
}
more.addEventListener("click", () => {
  shown.limit = Math.min(MOST, shown.limit * 4);
  lookNow();
});
find("download-items").addEventListener("click", () => {
  const lines = shown.items.map((item) => `${asLine(item)}\n`);
  download(`${shown.name}-${shown.state}.jsonl`, lines, "application/jsonl");
});
