// One group in one topic: how far it is behind over time, the members who share it, and
// moving it to another place.
// Members of the group are told to go on from there; a reader at work is refused once.

import { askFirst } from "./asking.js";
import { Chart } from "./charts.js";
import { Model } from "./model.js";
import { ask, pathOf, Refused, refusals, tell } from "./server.js";
import { LiveTable, child, link, setName, setText } from "./table.js";
import { address } from "./views.js";
import * as words from "./words.js";

const EVERY_MS = 2000;
const BEGINNING = "0".repeat(40);
const TIMES = { "5min": 300_000, "1h": 3_600_000, "1d": 86_400_000 };

const find = (id) => document.getElementById(id);
const unread = new Chart(["behind"]);
const rows = new Chart(["out"]);
find("group-unread").append(unread.element);
find("group-rows").append(rows.element);
const to = find("reset-to");
const at = find("reset-at");
const members = new LiveTable(
  find("members"),
  [
    { name: "member", label: "Member", sort: (row) => row.member, show: showMember },
    { name: "incarnation", label: "Incarnation", show: (cell, row) => setText(cell, String(row.incarnation)) },
    { name: "since", label: "Since", sort: (row) => row.sinceMs, show: (cell, row) => setText(cell, words.time(row.sinceMs)) },
    { name: "owned", label: "Partitions", show: (cell, row) => setText(cell, row.owned || "stands by") },
    { name: "rows", label: "Rows behind", numeric: true, sort: (row) => row.rows, show: showBehind },
  ],
  { key: (row) => row.member, sorted: "member" },
);
let shown = fresh("", "");

function showMember(cell, row) {
  setName(cell, words.short(row.member), row.client ? `${row.member} at ${row.client}` : row.member);
}

function showBehind(cell, row) {
  setName(cell, words.count(row.rows), row.behind);
}

function fresh(group, topic) {
  return { group, topic, model: new Model(), isFirst: true, refused: null, found: null, isShared: false };
}

export const groupView = {
  element: find("group"),
  heading: find("group-heading"),

  open([group, topic = ""]) {
    shown = fresh(group, topic);
    setName(find("group-heading"), `Group ${group} in ${topic}`);
    find("group-moves").hidden = true;
    setText(find("group-refused"), "");
    return `${group} in ${topic}`;
  },

  async look() {
    const mine = shown;
    const query = new URLSearchParams({ search: mine.group, history: String(mine.isFirst) });
    const [answer, refused, found] = await Promise.all([
      ask(`v1/overview?${query}`),
      mine.refused ?? refusals({ group: mine.group, topic: mine.topic }),
      described(mine),
    ]);
    return () => {
      if (mine !== shown) return 0;
      Object.assign(mine, { isFirst: false, refused, isShared: found !== null });
      const report = mine.model.take(answer);
      show(report.groups.find((one) => one.group === mine.group && one.topic === mine.topic) ?? null);
      showMembers(found, report.groups);
      return EVERY_MS;
    };
  },
};

/** The group with its members; null where it never had any, or the caller may not see it. */
async function described({ group, topic, isShared }) {
  const [, namespace = "default"] = topic.split(":").reverse();
  if (isShared) {
    try {
      return await ask(pathOf("groups", `${namespace}:${group}`));
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return null;
      throw error;
    }
  }
  const all = await ask(`v1/namespaces/${encodeURIComponent(namespace)}/groups`);
  return all.find((one) => one.group === group) ?? null;
}

function showMembers(found, groups) {
  const [, namespace] = shown.topic.split(":").reverse();
  const inNamespace = (name) => (namespace === undefined ? name : `${namespace}:${name}`);
  const began = found && `Generation ${found.generation}, since ${words.time(found.generationMs)}: ${found.why}.`;
  setText(find("group-generation"), began ?? "");
  const behind = new Map(groups.filter((one) => one.group === shown.group).map((one) => [one.topic, one.rows]));
  const rows = (found?.members ?? []).map((one) => {
    const of = (at) => behind.get(inNamespace(`${at.topic}.${at.partition}`)) ?? behind.get(inNamespace(at.topic)) ?? 0;
    return {
      ...one,
      owned: one.partitions.map((at) => `${at.topic}.${at.partition}`).join(", "),
      rows: one.partitions.reduce((sum, at) => sum + of(at), 0),
      behind: one.partitions.map((at) => `${at.topic}.${at.partition}: ${words.count(of(at))}`).join("\n"),
    };
  });
  members.update(rows, found ? "Nobody is a member at the moment." : "No members share it; whoever reads for it does so alone.");
}

function show(group) {
  shown.found = group;
  const behind = shown.model.behind(shown.group, shown.topic);
  draw("group-unread", unread, behind.unreadMs, group && words.duration(group.unreadMs ?? 0), words.duration);
  draw("group-rows", rows, behind.rows, group && `${words.count(group.rows)}${group.hasMore ? "+" : ""}`, words.shortCount);
  const facts = find("group-facts");
  const position = group?.position ?? null;
  const isBeginning = position === null || position === BEGINNING;
  const place = isBeginning ? "at the beginning" : `after ${words.time(parseInt(position.slice(0, 16), 16))}`;
  const seen = group ? `somebody last read for it ${words.duration(group.aloneMs)} ago` : "";
  setText(child(facts, "span", "facts"), group ? `It stands ${place}; ${seen}; ` : "It has no position there; it gets one when it first reads. ");
  link(facts, "name", "messages from there", address(["topics", shown.topic], { from: position ?? "oldest" }));
  const waits = group && group.waitsFor !== null ? `It waits for transaction ${group.waitsFor}.` : "";
  setText(find("group-waits"), waits);
  const why = shown.refused.group ?? shown.refused.consume;
  setText(find("group-refused"), why ? `It cannot be moved here: ${why}.` : "").hidden = !why;
  find("group-moves").hidden = Boolean(why);
  find("rewind").disabled = isBeginning;
}

function draw(id, chart, values, now, format) {
  const tile = find(id);
  setText(tile.querySelector(".figure"), now ?? "–");
  const most = format(Math.max(0, ...values));
  chart.draw([values], `${tile.querySelector("h3").textContent} in the last two minutes: at most ${most}`, format);
}

const SAID = { first: "the oldest message", next: "what is published from now on" };

function askToMove(what, label, place) {
  const { group, topic } = shown;
  askFirst({
    heading: `Move group ${words.short(group)}?`,
    lines: [
      `Its next message in ${words.short(topic)} is ${what}.`,
      "What lies between is read again, or never read by it. A reader at work is refused once, and goes on from there.",
    ],
    leave: "Leave it there",
    label,
    act: async () => {
      await move(group, topic, place);
      return `Group ${words.short(group)} reads ${what} next.`;
    },
  });
}

/** Moves it as `txaware group rewind` does; a place is a word, or a time in ms. */
async function move(group, topic, place) {
  const [name, namespace = "default"] = topic.split(":").reverse();
  const [whole, partition] = name.split(".");
  const moved = partition === undefined ? place : { [partition]: place };
  await tell(`${pathOf("groups", `${namespace}:${group}`)}/rewind`, { topic: whole, to: moved });
}

to.addEventListener("change", () => {
  at.hidden = find("reset-at-label").hidden = to.value !== "time";
});
find("group-reset").addEventListener("submit", (event) => {
  event.preventDefault();
  if (to.value !== "time") {
    askToMove(SAID[to.value], "Reset", to.value);
    return;
  }
  const ms = new Date(at.value).getTime();
  if (Number.isFinite(ms)) askToMove(`the first from ${words.time(ms)} on`, "Reset", Math.max(0, ms));
  else at.focus();
});
find("group-rewind").addEventListener("submit", (event) => {
  event.preventDefault();
  const readMs = parseInt(shown.found.position.slice(0, 16), 16);
  const ms = Math.max(0, readMs - TIMES[find("rewind-by").value]);
  askToMove(`the first from ${words.time(ms)} on`, "Rewind", ms);
});
