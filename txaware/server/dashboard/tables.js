// The tables of the first view: topics, groups, queues, users' tables, outboxes, open
// transactions and producers.

import { Chart } from "./charts.js";
import { BLOCKED_AFTER_MS, NO_RELAY_AFTER_MS, nobodyWorks } from "./glance.js";
import { showEndings } from "./endings.js";
import { child, link, LiveTable, make, setName, setText } from "./table.js";
import { address } from "./views.js";
import * as words from "./words.js";

const topics = table(
  "topics",
  [
    { name: "topic", label: "Topic", sort: (t) => t.topic, show: showTopic },
    number("in", "In a second", (t) => t.rates[0], (cell, t) =>
      showRate(cell, t.rates[0], t.messagesIn, t.bytesIn),
    ),
    number("out", "Out a second", (t) => t.rates[1], (cell, t) =>
      showRate(cell, t.rates[1], t.messagesOut, t.bytesOut),
    ),
    { name: "lately", label: "In ↑ out ↓ a second", show: showLately },
    number("behind", "Rows behind", (t) => t.rowsBehind, showRows),
    number("newest", "Newest", (t) => t.newestAgeMs, (cell, t) =>
      showAge(cell, t.newestAgeMs, t.newestMs),
    ),
    number("oldest", "Oldest", (t) => t.oldestAgeMs, (cell, t) =>
      showAge(cell, t.oldestAgeMs, t.oldestMs),
    ),
    { name: "state", label: "State", sort: (t) => -(t.blockedMs ?? -1), show: showTopicState },
  ],
  { key: (t) => t.topic, sorted: "topic" },
);

const groups = table(
  "groups",
  [
    { name: "group", label: "Group", sort: (g) => g.group, show: showGroup },
    { name: "of", label: "Topic", sort: (g) => g.topic, show: showGroupTopic },
    number("behind", "Rows behind", (g) => g.rows, (cell, g) =>
      showRows(cell, { rowsBehind: g.rows, hasMore: g.hasMore }),
    ),
    duration("unread", "Oldest unread", (g) => g.unreadMs),
    { name: "state", label: "State", sort: groupState, show: showGroupState },
  ],
  { key: (g) => `${g.group} ${g.topic}`, sorted: "unread", downwards: true },
);

const queues = table(
  "queues",
  [
    { name: "queue", label: "Queue", sort: (q) => q.queue, show: showQueue },
    number("pushed", "Pushed a second", (q) => q.stats.pushedPerS, (cell, { stats }) =>
      showDone(cell, stats.pushedPerS, stats.pushed),
    ),
    number("done", "Done a second", (q) => q.stats.committedPerS, (cell, { stats }) =>
      showDone(cell, stats.committedPerS, stats.committed),
    ),
    number("waiting", "Waiting", (q) => q.stats.depth, showWaiting),
    duration("oldest", "Oldest", (q) => q.oldestMs),
    { name: "workers", label: "In work", sort: (q) => q.stats.inWork, show: showWorkers },
    { name: "state", label: "State", sort: queueState, show: showQueueState },
  ],
  { key: (q) => q.queue, sorted: "oldest", downwards: true },
);

const userTables = table(
  "tables",
  [
    { name: "table", label: "Table", sort: (t) => t, show: showUserTable },
    { name: "of", label: "Namespace", sort: namespaceOf, show: (c, t) => setText(c, namespaceOf(t)) },
  ],
  { key: (t) => t, sorted: "table" },
);

const outboxes = table(
  "outboxes",
  [
    { name: "outbox", label: "Database", sort: (o) => o.database, show: showOutbox },
    number("waiting", "Backlog", (o) => o.waiting, (cell, o) => setText(cell, words.count(o.waiting))),
    number("aside", "Set aside", (o) => o.setAside, (cell, o) => setText(cell, words.count(o.setAside))),
    duration("looked", "Looked at", (o) => o.lookedAgoMs),
    { name: "state", label: "State", sort: outboxState, show: showOutboxState },
  ],
  { key: (o) => o.outbox, sorted: "aside", downwards: true },
);

const transactions = table(
  "transactions",
  [
    { name: "id", label: "Transaction", sort: (t) => t.id, show: showTransaction },
    { name: "type", label: "Type", sort: typeOf, show: (c, t) => setText(c, typeOf(t)) },
    { name: "by", label: "Begun by", sort: words.begunBy, show: (c, t) => setText(c, words.begunBy(t)) },
    duration("age", "Open for", (t) => t.ageMs),
    duration("left", "Times out in", (t) => t.leftMs),
    {
      name: "blocks",
      label: "Keeps waiting",
      sort: (t) => -t.blocks.length,
      show: (c, t) => setName(child(c, "span", "names"), t.blocks.length ? words.some(t.blocks) : "–"),
    },
    { name: "act", label: "End it", show: (c, t) => showEndings(c, t, words.named(t)) },
  ],
  { key: (t) => t.id, sorted: "age", downwards: true },
);

const producers = table(
  "producers",
  [
    { name: "producer", label: "Producer", sort: nameOf, show: showProducer },
    number("epoch", "Epoch", (p) => p.epoch, (cell, p) => setText(cell, words.count(p.epoch))),
    { name: "by", label: "Opened by", sort: openedBy, show: (c, p) => setName(child(c, "span", "names"), openedBy(p)) },
    duration("used", "Last used", (p) => p.usedMs),
    { name: "state", label: "State", sort: producerState, show: showProducerState },
  ],
  { key: (p) => p.producerId, sorted: "used" },
);

/** `chosen` is {has(topic, ...names), isAll}: what the search and the namespace leave. */
export function showTables(report, chosen) {
  const found = chosen.isAll ? null : "Nothing fits the search.";
  topics(
    report.topics.filter((t) => chosen.has(t.topic, t.topic)),
    { listed: report.topics.length, count: report.topicCount },
    { cut: "the most active of", none: found ?? "There is no topic." },
  );
  groups(
    report.groups.filter((g) => chosen.has(g.topic, g.topic, g.group)),
    { listed: report.groups.length, count: report.groupCount },
    { cut: "furthest behind, of", none: found ?? "No group has a position." },
  );
  queues(
    report.queues.filter((q) => chosen.has(q.queue, q.queue)),
    { listed: report.queues.length, count: report.queueCount },
    { cut: "those in use, of", none: found ?? "There is no queue." },
  );
  userTables(
    report.tables.filter((t) => chosen.has(t, t)),
    { listed: report.tables.length, count: report.tableCount },
    { cut: "the first of", none: found ?? "No table has a row." },
  );
  outboxes(
    report.outboxes,
    { listed: report.outboxes.length, count: report.outboxes.length },
    { cut: "", none: "No relay has told of an outbox." },
  );
  transactions(
    report.transactions,
    { listed: report.transactions.length, count: report.transactionCount },
    { cut: "the oldest of", none: "No transaction is open." },
  );
  producers(
    report.producers,
    { listed: report.producers.length, count: report.producerCount },
    { cut: "those with an id, and those used last, of", none: "No program has opened a producer." },
  );
}

function table(id, columns, options) {
  const section = document.getElementById(id);
  const live = new LiveTable(section.querySelector("table"), columns, options);
  return (rows, { listed, count }, { cut, none }) => {
    live.update(rows, none);
    const shown = words.count(rows.length);
    const text = count > listed ? `${shown}, ${cut} ${words.count(count)}` : shown;
    setText(section.querySelector(".note"), text);
  };
}

function number(name, label, sort, show) {
  return { name, label, sort, show, numeric: true };
}

function duration(name, label, of) {
  return number(name, label, of, (cell, row) => setText(cell, words.duration(of(row))));
}

function showTopic(cell, topic) {
  link(cell, "name", topic.topic, address(["topics", topic.topic]));
  const generation = topic.generation > 1 ? `, generation ${topic.generation}` : "";
  const newest = topic.isCompact ? ", the newest of each key for ever" : "";
  const kept = `kept for ${words.duration(topic.ttlS * 1000)}${newest}${generation}`;
  setText(child(cell, "div", "soft"), kept);
}

const perS = (value) => `${words.rate(value)}/s`;

function showRate(cell, rate, count, bytes) {
  setText(child(cell, "div", "figure"), words.rate(rate));
  const under = setText(child(cell, "div", "soft"), `${words.shortCount(count)} in all`);
  under.title = `${words.several(count, "message")}, ${words.bytes(bytes)} since the start`;
}

function showLately(cell, topic) {
  cell.chart ??= new Chart(["in", "out"]);
  if (!cell.firstChild) cell.append(cell.chart.element);
  const most = Math.max(0, ...topic.lately.flat());
  cell.chart.draw(topic.lately, `the last two minutes: at most ${words.rate(most)} a second`, perS);
}

function showRows(cell, { rowsBehind, hasMore }) {
  setText(cell, `${words.count(rowsBehind)}${hasMore ? "+" : ""}`);
}

function showAge(cell, ageMs, ms) {
  setText(cell, words.duration(ageMs));
  cell.title = ms === null ? "" : words.time(ms);
}

function showTopicState(cell, topic) {
  const isBlocked = topic.blockedMs !== null && topic.blockedMs >= BLOCKED_AFTER_MS;
  cell.classList.toggle("wrong", isBlocked);
  const unseen = topic.expiredUnseen ? `${words.count(topic.expiredUnseen)} expired unseen` : "";
  const text = isBlocked ? `blocked for ${words.duration(topic.blockedMs)}` : unseen;
  cell.classList.toggle("nothing", !text);
  setText(child(cell, "span", "badge"), text);
  showEndings(cell, isBlocked ? topic.blocker : null, `what blocks ${topic.topic}`);
}

function showGroup(cell, { group, topic }) {
  link(cell, "name", group, address(["groups", group, topic]));
}

function showGroupTopic(cell, group) {
  link(cell, "name", group.topic, address(["topics", group.topic], { from: group.position ?? "oldest" }));
}

function groupState(group) {
  if (group.waitsMs !== null && group.waitsMs >= BLOCKED_AFTER_MS) return "waits";
  return group.rows ? "behind" : "has read all";
}

function showGroupState(cell, group) {
  const state = groupState(group);
  cell.classList.toggle("wrong", state === "waits");
  setText(cell, state === "waits" ? `waits for ${group.waitsFor}` : state);
}

function showQueue(cell, { queue, stats }) {
  link(cell, "name", queue, address(["queues", queue]));
  setText(child(cell, "div", "soft"), words.several(stats.pipes, "pipe"));
}

function showDone(cell, rate, count) {
  setText(child(cell, "div", "figure"), words.rate(rate));
  setText(child(cell, "div", "soft"), `${words.shortCount(count)} in all`);
}

function showWaiting(cell, { stats }) {
  setText(child(cell, "div", "figure"), words.count(stats.depth));
  setText(child(cell, "div", "soft"), stats.delayed ? `${words.shortCount(stats.delayed)} delayed` : "");
}

/** Who has jobs, the longest first: all that are known where one points. */
function showWorkers(cell, { jobs, stats }) {
  setText(child(cell, "div", "figure"), words.count(stats.inWork));
  const has = (say) => ({ popper, ms, deliveries }) => {
    const again = deliveries > 1 ? `, delivery ${deliveries}` : "";
    return `${say(popper || "somebody")} for ${words.duration(ms)}${again}`;
  };
  setName(child(cell, "div", "soft"), words.some(jobs, 2, has(words.short)), jobs.map(has((name) => name)).join("\n"));
}

function queueState(queue) {
  const { isPaused, deadLetters, expiredLeases, inWork, depth } = queue.stats;
  if (isPaused) return "paused";
  if (nobodyWorks(queue)) return "nobody works on it";
  const wrong = [];
  if (deadLetters) wrong.push(words.several(deadLetters, "dead letter"));
  if (expiredLeases) wrong.push(`${words.several(expiredLeases, "lease")} ran out`);
  if (wrong.length) return wrong.join(", ");
  if (inWork) return "in work";
  if (depth) return queue.takesDeadLetters ? "has dead letters" : "waits";
  return "empty";
}

function showQueueState(cell, queue) {
  const { isPaused, deadLetters } = queue.stats;
  cell.classList.toggle("wrong", isPaused || deadLetters > 0 || nobodyWorks(queue));
  setText(cell, queueState(queue));
}

function showUserTable(cell, table) {
  link(cell, "name", table, address(["tables", table]));
}

function namespaceOf(table) {
  return table.includes(":") ? table.split(":")[0] : "default";
}

function showOutbox(cell, { database, outbox }) {
  setName(child(cell, "span", "names"), database);
  setText(child(cell, "div", "soft"), `outbox ${words.short(outbox)}`);
}

function outboxState({ setAside, waiting, lookedAgoMs }) {
  if (setAside) return `${words.several(setAside, "message")} cannot be carried over`;
  if (lookedAgoMs >= NO_RELAY_AFTER_MS) return "no relay looks at it";
  return waiting ? "behind" : "has carried over all";
}

function showOutboxState(cell, outbox) {
  const isWrong = outbox.setAside > 0 || outbox.lookedAgoMs >= NO_RELAY_AFTER_MS;
  cell.classList.toggle("wrong", isWrong);
  setText(child(cell, "div", "outbox-state"), outboxState(outbox));
  showAside(child(cell, "ul", "set-aside"), outbox.aside);
}

function showAside(list, aside) {
  while (list.children.length > aside.length) list.lastElementChild.remove();
  aside.forEach(({ destination, count, reason, sinceMs }, place) => {
    const item = list.children[place] ?? list.appendChild(make("li"));
    setName(child(item, "div", "names"), `${words.count(count)} for ${destination}`);
    setName(child(item, "div", "soft"), `since ${words.time(sinceMs)}: ${reason}`);
  });
}

function nameOf({ transactionalId, producerId }) {
  return transactionalId ?? String(producerId);
}

function showProducer(cell, producer) {
  setName(child(cell, "span", "names"), nameOf(producer));
  const id = producer.transactionalId === null ? "without a transactional id" : `producer ${producer.producerId}`;
  setText(child(cell, "div", "soft"), id);
}

/** An id belongs to all who may use it. */
function openedBy({ owner, transactionalId }) {
  if (transactionalId !== null) return "all who may use it";
  return owner ?? "this server";
}

function producerState({ hasEnded, transaction }) {
  if (hasEnded) return "ended: messages are missing";
  return transaction === null ? "idle" : `in transaction ${transaction}`;
}

function showProducerState(cell, producer) {
  cell.classList.toggle("wrong", producer.hasEnded);
  setText(cell, producerState(producer));
}

function typeOf({ stage, type }) {
  return stage === null || stage === "open" ? (type ?? "–") : `${type}, ${stage}`;
}

function showTransaction(cell, { id, prepared }) {
  setText(child(cell, "span", "id"), id);
  const name = setName(child(cell, "div", "prepared"), prepared ?? "");
  name.hidden = !prepared;
}
