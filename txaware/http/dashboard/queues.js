// The table of work queues: what waits, what is in work, by whom and since when.

import { child, setName, setText } from "./table.js";
import { duration, number, table } from "./tables.js";
import * as words from "./words.js";

const MOST_JOBS = 3;

const section = document.getElementById("queues");
const queues = table(
  "queues",
  [
    { name: "queue", label: "Queue", sort: (q) => q.queue, show: showQueue },
    number("waiting", "Waiting", (q) => q.depth, showWaiting),
    duration("oldest", "Oldest waits", (q) => q.oldestMs),
    number("in", "Pushed a second", (q) => q.pushedPerS, (cell, q) =>
      setText(cell, words.rate(q.pushedPerS)),
    ),
    number("out", "Done a second", (q) => q.committedPerS, (cell, q) =>
      setText(cell, words.rate(q.committedPerS)),
    ),
    { name: "jobs", label: "In work", sort: (q) => -q.inWork, show: showJobs },
    { name: "state", label: "State", sort: (q) => q.trouble ?? "~", show: showState },
  ],
  { key: (q) => q.queue, sorted: "oldest", downwards: true },
);

export function showQueues(report, chosen) {
  section.hidden = report.queueCount === 0;
  queues(
    report.queues.filter((q) => chosen.has(q.queue, q.queue)),
    { listed: report.queues.length, count: report.queueCount },
    { cut: "of", none: "Nothing fits the search." },
  );
}

function showQueue(cell, queue) {
  setName(child(cell, "span", "names"), queue.queue);
  const all = `${words.shortCount(queue.committed)} done of ${words.shortCount(queue.pushed)}`;
  setText(child(cell, "div", "soft"), all);
}

function showWaiting(cell, queue) {
  setText(child(cell, "span", "count"), words.count(queue.depth));
  const later = queue.delayed ? `${words.count(queue.delayed)} of them later` : "";
  setText(child(cell, "div", "soft"), later);
}

/** Who has jobs, those that are longest in work first. */
function showJobs(cell, queue) {
  const shown = queue.jobs.slice(0, MOST_JOBS);
  setText(child(cell, "span", "count"), words.count(queue.inWork));
  const lines = child(cell, "div", "soft");
  while (lines.children.length > shown.length) lines.lastChild.remove();
  shown.forEach((job, at) => {
    const line = lines.children[at] ?? lines.appendChild(document.createElement("div"));
    const again = job.deliveries > 1 ? `, delivery ${job.deliveries}` : "";
    setName(line, `${job.popper || "somebody"} for ${words.duration(job.forMs)}${again}`);
  });
}

function showState(cell, queue) {
  cell.classList.toggle("wrong", queue.trouble !== null);
  const counts = [
    [queue.deadLetters, "dead letter"],
    [queue.expiredLeases, "ended lease"],
  ].filter(([count]) => count);
  setText(child(cell, "span", "badge"), queue.trouble ?? (queue.isPaused ? "paused" : ""));
  const text = counts.map(([count, noun]) => words.several(count, noun)).join(", ");
  setText(child(cell, "div", "soft"), text);
  cell.classList.toggle("nothing", !cell.textContent);
}
