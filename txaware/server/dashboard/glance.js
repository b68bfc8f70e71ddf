// What an operator sees first: what needs somebody, four figures, how the server is.

import { Chart } from "./charts.js";
import { showEndings } from "./endings.js";
import { child, link, make, setName, setText } from "./table.js";
import { address } from "./views.js";
import * as words from "./words.js";

// A transaction that is open for a moment is nothing to look at.
export const BLOCKED_AFTER_MS = 1000;
const GRAVE_AFTER_MS = 30_000;
// No transaction of a reader lasts longer, so somebody who reads was seen meanwhile.
const ALONE_AFTER_MS = 15 * 60_000;
// A relay looks at its outbox every few seconds.
export const NO_RELAY_AFTER_MS = 5 * 60_000;
const MOST_SHOWN = 5;
const MOST_ALARMS = 20;

/** Items wait, and nobody has come for them in a quarter of an hour. */
export function nobodyWorks({ oldestMs, stats, takesDeadLetters }) {
  return !stats.inWork && !takesDeadLetters && (oldestMs ?? 0) >= ALONE_AFTER_MS;
}

const announcements = document.getElementById("announce");
const attention = document.getElementById("attention");
const list = attention.querySelector("ul");
const state = document.getElementById("state");
const tiles = {
  in: tile("tile-in", "in", words.rate, "/s"),
  out: tile("tile-out", "out", words.rate, "/s"),
  behind: tile("tile-behind", "behind", words.duration),
  open: tile("tile-open", "open", words.count, " open"),
};
const whole = (name) => name;
let announced = "";

/** Has a screen reader say it. */
export function announce(sentence) {
  setText(announcements, sentence);
}

export function showGlance(report, { isPart }) {
  if (!isPart) {
    showTiles(report);
    showAttention(report);
  }
  showState(report);
}

function tile(id, series, format, unit = "") {
  const element = document.getElementById(id);
  const chart = new Chart([series]);
  element.append(chart.element);
  const name = element.querySelector("h2").textContent;
  return (value, values, beside) => {
    setText(element.querySelector(".figure"), format(value));
    setName(element.querySelector(".beside"), beside(words.short), beside(whole));
    const most = values.length ? `at most ${format(Math.max(...values))}` : "nothing yet";
    chart.draw([values], `${name} in the last two minutes: ${most}`, (value) => `${format(value)}${unit}`);
  };
}

function showTiles(report) {
  const all = (count, bytes) => () => `a second; ${words.shortCount(count)} in all, ${words.bytes(bytes)}`;
  tiles.in(report.rates[0], report.lately[0], all(report.messagesIn, report.bytesIn));
  tiles.out(report.rates[1], report.lately[1], all(report.messagesOut, report.bytesOut));
  const slowest = [...report.groups].sort((a, b) => (b.unreadMs ?? -1) - (a.unreadMs ?? -1))[0];
  const isBehind = slowest !== undefined && slowest.unreadMs !== null;
  tiles.behind(
    isBehind ? slowest.unreadMs : 0,
    report.latelyBehind,
    (say) => (isBehind ? `by ${say(slowest.group)} in ${say(slowest.topic)}` : nothingUnread(report.groups)),
  );
  const ages = report.transactions.map((one) => one.ageMs);
  tiles.open(
    report.transactionCount,
    report.latelyOpen,
    () => (ages.length ? `the oldest for ${words.duration(Math.max(...ages))}` : "none"),
  );
}

function nothingUnread(groups) {
  const waits = groups.some((group) => group.waitsMs >= BLOCKED_AFTER_MS);
  return waits ? "what is left waits for a transaction" : "all groups have read all";
}

function showAttention(report) {
  const wrong = ["coordinator", "store"].filter((part) => report[part] !== "OK");
  const waiting = report.transactions
    .filter((one) => one.blocks.length && one.blocksMs >= BLOCKED_AFTER_MS)
    .sort((a, b) => b.blocksMs - a.blocksMs);
  const shown = waiting.slice(0, MOST_SHOWN);
  const alone = report.groups
    .filter((one) => Math.min(one.unreadMs ?? 0, one.aloneMs) >= ALONE_AFTER_MS)
    .sort((a, b) => b.unreadMs - a.unreadMs);
  const left = alone.slice(0, MOST_SHOWN);
  const idle = report.queues.filter(nobodyWorks).sort((a, b) => b.oldestMs - a.oldestMs);
  const unworked = idle.slice(0, MOST_SHOWN);
  const alarms = report.alarms.slice(0, MOST_ALARMS);
  attention.hidden = wrong.length + shown.length + left.length + unworked.length + alarms.length === 0;
  const kept = new Set([
    ...wrong,
    ...shown.map((one) => one.id),
    ...left.map(groupKey),
    ...unworked.map(queueKey),
    ...alarms.map(alarmKey),
  ]);
  for (const item of [...list.children]) if (!kept.has(item.dataset.key)) item.remove();
  for (const part of wrong) showWrong(part, report[part]);
  for (const transaction of shown) showWaiting(transaction, report);
  for (const group of left) showAlone(group);
  for (const queue of unworked) showUnworked(queue);
  for (const alarm of alarms) showAlarm(alarm);
  const more = waiting.length - shown.length;
  const rest = more ? `${words.several(more, "more transaction")} below keep readers waiting. ` : "";
  const others = alone.length - left.length;
  const unread = others ? `${words.several(others, "more group")} below ${others > 1 ? "have" : "has"} no reader.` : "";
  const spare = idle.length - unworked.length;
  const undone = spare ? ` ${words.several(spare, "more queue")} below ${spare > 1 ? "have" : "has"} no worker.` : "";
  const untold = report.alarms.length - alarms.length;
  const also = untold ? ` ${words.several(untold, "more thing")} of other kinds ${untold > 1 ? "need" : "needs"} somebody.` : "";
  setText(list.nextElementSibling, rest + unread + undone + also);
  announceChanges(wrong, shown, left, unworked, alarms, report);
}

/** Once for each change, and not whenever an age is another one. */
function announceChanges(wrong, shown, left, unworked, alarms, report) {
  const now = [
    ...wrong.map((part) => `The ${part} is not well: ${report[part]}.`),
    ...shown.map((one) => `Readers of ${words.some(one.blocks, 3, words.short)} wait for ${words.named(one)}.`),
    ...left.map((one) => `Nobody reads ${words.short(one.topic)} for group ${words.short(one.group)}.`),
    ...unworked.map((one) => `Nobody works on queue ${words.short(one.queue)}.`),
    ...alarms.filter((one) => one.isGrave).map((one) => `${one.what.split(/ (?:in the last|for) \d/)[0]}.`),
  ].join(" ");
  if (now !== announced) announce(now || "All is well again.");
  announced = now;
}

/** The item of the list with that key, and its two lines: functions of how to say a name. */
function item(key, what, why) {
  let found = [...list.children].find((one) => one.dataset.key === key);
  if (!found) {
    found = make("li", "row notice");
    found.dataset.key = key;
    list.append(found);
  }
  const text = child(found, "div", "text");
  setName(child(text, "p", "what"), what(words.short), what(whole));
  setName(child(text, "p", "soft"), why(words.short), why(whole));
  return found;
}

function showWrong(part, sentence) {
  item(part, () => `The ${part} is not well`, () => sentence).classList.add("grave");
}

function groupKey({ group, topic }) {
  return `${group} ${topic}`;
}

function showAlone(group) {
  const rows = `${words.count(group.rows)}${group.hasMore ? "+" : ""}`;
  const oldest = `the oldest unread for ${words.duration(group.unreadMs)}`;
  const shown = item(
    groupKey(group),
    (say) => `Nobody has read ${say(group.topic)} for group ${say(group.group)} in ${words.duration(group.aloneMs)}`,
    () => `${rows} rows behind, ${oldest}; start its reader, or move it to where it is to go on`,
  );
  link(shown, "name", "Show", address(["groups", group.group, group.topic])).setAttribute("aria-label", `Show group ${group.group}`);
}

function queueKey({ queue }) {
  return `queue ${queue}`;
}

function showUnworked(queue) {
  const { queue: name, oldestMs, stats } = queue;
  const paused = stats.isPaused ? "it is paused: resume it" : "start a worker: txaware worker";
  const shown = item(
    queueKey(queue),
    (say) => `Nobody works on queue ${say(name)}`,
    () => `${words.several(stats.depth, "item")} waiting, the oldest for ${words.duration(oldestMs)}; ${paused}`,
  );
  link(shown, "name", "Show", address(["queues", name])).setAttribute("aria-label", `Show queue ${name}`);
}

function alarmKey({ metric, kind, name, topic }) {
  return `alarm ${metric} ${kind} ${name} ${topic}`;
}

// Where each kind of thing is shown.
const PLACES = {
  topic: ({ name }) => address(["topics", name]),
  group: ({ name, topic }) => address(["groups", name, topic]),
  queue: ({ name, state }) => address(["queues", name], { state }),
  outbox: () => address(["outboxes"]),
  transaction: () => address(["transactions"]),
  producers: () => address(["producers"]),
};

function showAlarm(alarm) {
  const shown = item(alarmKey(alarm), () => alarm.what, () => alarm.toDo);
  shown.classList.toggle("grave", alarm.isGrave);
  const place = PLACES[alarm.kind]?.(alarm);
  if (place) link(shown, "name", "Show", place).setAttribute("aria-label", `Show: ${alarm.what}`);
}

function showWaiting(transaction, report) {
  const { id, blocks, blocksMs, leftMs, pointers } = transaction;
  const have = blocks.length > 1 ? "have" : "has";
  const what = (say) => `${words.some(blocks, 3, say)} ${have} been blocked for ${words.duration(blocksMs)}`;
  const left = leftMs === null ? "" : `, which times out in ${words.duration(leftMs)}`;
  const waiting = report.groups.filter((group) => pointers.includes(group.waitsFor));
  const groups = [...new Set(waiting.map((group) => group.group))];
  const verb = groups.length > 1 ? "wait" : "waits";
  const who = (say) => (groups.length ? `; ${words.some(groups, 3, say)} ${verb}` : "");
  const by = (say) => `by ${words.named(transaction, say)} (${words.begunBy(transaction)})${left}`;
  const shown = item(id, what, (say) => `${by(say)}${who(say)}`);
  shown.classList.toggle("grave", blocksMs >= GRAVE_AFTER_MS);
  showEndings(shown, transaction, `what blocks ${words.some(blocks)}`);
}

function showState(report) {
  const tries = report.cacheHits + report.cacheMisses;
  const hits = tries ? `${Math.round((100 * report.cacheHits) / tries)} % hits` : "not used yet";
  const facts = [
    ["Up for", words.duration(report.upMs)],
    ["Store", report.store],
    ["Coordinator", report.coordinator],
    ...(report.decidedBy && report.decidedBy !== "embedded" ? [["Decided by", report.decidedBy]] : []),
    ["Invalid transactions", words.count(report.invalidTransactions)],
    ["Cache", `${hits}, ${words.bytes(report.cacheBytes)}`],
  ];
  if (report.unjudgedTopics) {
    facts.push(["Not looked at yet", words.several(report.unjudgedTopics, "topic")]);
  }
  if (report.leftOut?.length) {
    facts.push(["Cannot be looked at", report.leftOut.join(", ").replaceAll("_", " ")]);
  }
  while (state.children.length > facts.length) state.lastChild.remove();
  facts.forEach(([name, value], at) => {
    const fact = state.children[at] ?? state.appendChild(make("p"));
    setText(child(fact, "span", "soft"), name);
    const shown = setText(child(fact, "span", "value"), value);
    const isPart = name === "Store" || name === "Coordinator";
    shown.classList.toggle("wrong", isPart && value !== "OK");
  });
}
