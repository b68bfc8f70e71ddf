// Shows what its address names, and asks again and again how it is.

import { graph, shownTime, stateOf, timeline } from "./drawings.js";

const EVERY_MS = 1000;
const MOST_ROWS = 50;

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const [, kind = "", name = ""] = location.pathname.split("/").map(decoded);
let shown = "";
let search = "";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // it was cut where it was pasted
  }
}

function made(tag, options = {}, ...inside) {
  const { className = "", ...attributes } = options;
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

const link = (to, text) => made("a", { href: to }, text);
const state = (text) => made("span", { className: `state ${text.split(" ")[0]}` }, text);

async function ask(path, method = "GET") {
  const answer = await fetch(`/api/${path}`, { method });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

// May be wider than the page: the keyboard scrolls it.
const drawing = (label, content) =>
  made("div", { className: "panel", tabindex: 0, role: "group", "aria-label": label }, content);

function table(heads, rows) {
  const head = made("tr", {}, ...heads.map(([text, className]) =>
    made("th", { scope: "col", className }, text)));
  const body = rows.map((cells) => made("tr", {}, ...cells.map((cell, at) =>
    made("td", { className: heads[at][1] }, cell))));
  return made("div", { className: "panel" },
    made("table", {}, made("thead", {}, head), made("tbody", {}, ...body)));
}

function button(text, act, question = "") {
  const element = made("button", { type: "button" }, text);
  element.addEventListener("click", async () => {
    if (question && !(await isSure(question, text))) return;
    try {
      await ask(act, "POST");
      say(`${text}: done`);
    } catch (error) {
      say(error.message);
    }
    await look();
  });
  return element;
}

function isSure(question, yes) {
  const dialog = document.getElementById("sure");
  document.getElementById("question").textContent = question;
  const [confirm, leave] = [document.getElementById("yes"), document.getElementById("no")];
  confirm.textContent = yes;
  dialog.returnValue = "";
  confirm.onclick = () => dialog.close("yes");
  leave.onclick = () => dialog.close("");
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      // That it closed may be told when it is open again, for another question.
      if (!dialog.open) resolve(dialog.returnValue === "yes");
    };
  });
}

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
}

function several(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

function howIs(workflow) {
  if (!workflow.is_enabled) return "disabled";
  if (workflow.is_paused) return "paused";
  return workflow.running ? "running" : "waiting";
}

function showAll({ workflows, count }) {
  const rows = workflows.map((one) => [
    link(`/workflows/${one.name}`, one.name),
    state(howIs(one)),
    String(one.running),
    String(one.pending),
    one.last_state ? state(one.last_state) : "never ran",
    one.wake_ms ? shownTime(one.wake_ms) : "",
  ]);
  const heads = [["Workflow", ""], ["Is", ""], ["Running", "number wide"], ["Pending", "number wide"],
    ["Last run", ""], ["Next look", "wide"]];
  const problems = workflows.filter((one) => one.problem).map((one) =>
    made("p", { className: "problem" }, `${one.name}: ${one.problem}`));
  const more = count > workflows.length ? `, ${workflows.length} of them shown` : "";
  return [
    made("h1", {}, "Workflows"),
    made("p", { className: "soft" }, `${several(count, "workflow")}${more}`),
    ...problems,
    count ? table(heads, rows) : made("p", {}, "There are none. Begin a scheduler with a file."),
  ];
}

function showWorkflow(one) {
  const act = (what) => `workflows/${encodeURIComponent(name)}/${what}`;
  const runs = one.runs.slice(-MOST_ROWS).reverse();
  const rows = runs.map((run) => [
    link(`/runs/${run.run}`, run.run),
    state(run.state),
    run.launched_ms ? shownTime(run.launched_ms) : "",
    run.launched_ms && run.ended_ms ? `${((run.ended_ms - run.launched_ms) / 1000).toFixed(1)} s` : "",
    run.causes.join(", ") + (run.reason ? `: ${run.reason}` : ""),
  ]);
  const heads = [["Run", ""], ["State", ""], ["Began", ""], ["Took", "number"], ["By", "wide"]];
  return [
    made("h1", {}, one.name),
    made("p", {}, state(howIs(one)),
      `, ${one.running} running, ${one.pending} pending`,
      one.notes.length ? `; pending trigger with ${one.notes.slice(0, 5).join(", ")}` : "",
      one.wake_ms ? `; next look ${shownTime(one.wake_ms)}` : ""),
    ...(one.problem ? [made("p", { className: "problem" }, one.problem)] : []),
    made("p", { className: "buttons" },
      button("Trigger", act("trigger")),
      one.is_paused ? button("Resume", act("resume"))
        : button("Pause", act("pause"), `Begin no more runs of ${one.name}?`)),
    made("h2", {}, "Runs"),
    made("p", { className: "soft" }, `${several(one.runs.length, "run")}${one.runs.length > rows.length ? `, the last ${rows.length} in the table` : ""}`),
    drawing("Timeline", timeline(one.runs, Date.now(), Math.max(300, main.clientWidth - 28))),
    made("h2", {}, "The last ones"),
    rows.length ? table(heads, rows) : made("p", {}, "It never ran."),
    made("h2", {}, "Definition"),
    made("pre", { className: "panel", tabindex: 0 }, JSON.stringify(one.definition, null, 2)),
  ];
}

function showRun(run) {
  const isOver = run.ended_ms > 0;
  const steps = run.steps.flatMap((step) => [
    made("h2", {}, step.name),
    made("p", {}, state(stateOf(step)),
      step.worker ? made("span", { className: "soft" }, ` by ${step.worker}`) : "",
      step.error ? `: ${step.error}` : ""),
    ...(step.log ? [made("pre", { className: "panel", tabindex: 0, "aria-label": `What ${step.name} said` }, step.log)] : []),
  ]);
  const causes = run.triggers.map((note) => [note.source, note.value].filter(Boolean).join(" "));
  const by = `by ${causes.slice(0, 5).join(", ")}`.replace(/^by by /, "by "); // "by hand"
  return [
    made("h1", {}, run.run),
    made("p", {}, state(run.state), run.reason ? `: ${run.reason}` : ""),
    made("p", { className: "soft" }, "A run of ", link(`/workflows/${run.workflow}`, run.workflow),
      ` ${by}, created ${shownTime(run.created_ms)}`,
      run.launched_ms ? `, begun ${shownTime(run.launched_ms)}` : "",
      isOver ? `, over ${shownTime(run.ended_ms)}` : ""),
    made("p", { className: "buttons" },
      ...(isOver ? [] : [button("Cancel run", `runs/${encodeURIComponent(name)}/cancel`, `Cancel ${run.run}?`)]),
      button("Run again", `workflows/${encodeURIComponent(run.workflow)}/trigger`)),
    ...(run.steps.length ? [drawing("Graph", graph(run.steps))] : []),
    ...steps,
    made("h2", {}, "Token"),
    made("pre", { className: "panel", tabindex: 0 }, JSON.stringify(run.token, null, 2)),
  ];
}

const VIEWS = {
  "": [() => `workflows?search=${encodeURIComponent(search)}`, showAll],
  workflows: [() => `workflows/${encodeURIComponent(name)}`, showWorkflow],
  runs: [() => `runs/${encodeURIComponent(name)}`, showRun],
};

async function look() {
  const [path, show] = VIEWS[kind];
  try {
    const asked = path();
    const answer = await ask(asked);
    if (asked !== path()) return;
    say("Live");
    const text = JSON.stringify(answer);
    const moves = kind === "workflows" && answer.running > 0;
    if (text === shown && !moves) return;
    shown = text;
    draw(show(answer));
  } catch (error) {
    say(`No answer: ${error.message}`);
  }
}

// What has the focus, and how far it is scrolled, stays so. Where it is gone, the heading
// has the focus: another button in its place would do what nobody asked for.
function draw(elements) {
  const hadFocus = view.contains(document.activeElement);
  const focused = sign(document.activeElement);
  const scrolled = [...view.querySelectorAll("pre, .panel")].map((one) => [one.scrollTop, one.scrollLeft]);
  view.replaceChildren(...elements);
  [...view.querySelectorAll("pre, .panel")].forEach((one, at) => {
    [one.scrollTop, one.scrollLeft] = scrolled[at] ?? [0, 0];
  });
  if (!hadFocus) return;
  const same = [...view.querySelectorAll("a, button, pre, div, h1")].find((one) => sign(one) === focused);
  const heading = view.querySelector("h1");
  heading.tabIndex = -1;
  (same ?? heading).focus({ preventScroll: true });
}

function sign(element) {
  const { tagName } = element;
  if (tagName === "PRE" || tagName === "DIV") return `${tagName} ${element.getAttribute("aria-label")}`;
  return `${tagName} ${element.getAttribute("href") ?? element.textContent}`;
}

async function again() {
  if (!document.hidden && !document.getElementById("sure").open) await look();
  setTimeout(again, EVERY_MS);
}

const view = made("div");
if (kind === "") {
  const input = made("input", { id: "search", type: "search" });
  input.addEventListener("input", () => {
    search = input.value.trim();
    look();
  });
  main.append(made("p", {}, made("label", { for: "search" }, "Search "), input));
} else {
  document.title = name;
}
main.append(view);
document.addEventListener("visibilitychange", look);
again();
