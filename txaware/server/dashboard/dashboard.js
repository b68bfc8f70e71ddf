// Shows the view that the address names, and asks the server for it again and again.

import { whenDone } from "./asking.js";
import { announce } from "./glance.js";
import { groupView } from "./group.js";
import { messagesView } from "./messages.js";
import { overview } from "./overview.js";
import { queueView } from "./queue.js";
import { rowsView } from "./rows.js";
import { hasToken, NoAnswer, Refused, useToken } from "./server.js";
import { setText } from "./table.js";
import { time } from "./words.js";
import { here } from "./views.js";

const SOON_MS = 1000;
const SLOWEST_MS = 10_000;

const find = (id) => document.getElementById(id);
const token = find("token");
const VIEWS = { topics: messagesView, groups: groupView, queues: queueView, tables: rowsView };
// So many names an address of it has at least: a shorter one is of its part of all.
const NAMES = { groups: 3 };
const ALL = [overview, ...Object.values(VIEWS)];
let view = null;
let answeredMs = null;
let failures = 0;
let turn = 0;
let timer;

/** Opens the view of the address; who came by a link gets its heading in focus. */
function open({ isFirst = false } = {}) {
  const { names, query } = here();
  const isDetail = Object.hasOwn(VIEWS, names[0]) && names.length >= (NAMES[names[0]] ?? 2);
  const next = isDetail ? VIEWS[names[0]] : overview;
  const isOther = next !== view;
  view = next;
  for (const one of ALL) one.element.hidden = one !== view;
  const title = view.open(isDetail ? names.slice(1) : names, query);
  document.title = title ? `${title} - txaware` : "txaware";
  for (const link of document.querySelectorAll("#parts a")) {
    const isHere = link.hash === `#/${names[0] ?? ""}`;
    if (isHere) link.setAttribute("aria-current", isDetail ? "true" : "page");
    else link.removeAttribute("aria-current");
  }
  find("lost").hidden = true;
  if (!isFirst && isOther) {
    scrollTo(0, 0);
    view.heading?.focus({ preventScroll: true });
  }
  look();
}

async function look() {
  clearTimeout(timer);
  const mine = ++turn;
  try {
    const show = await view.look();
    if (mine !== turn) return;
    answered();
    lookAgain(show());
  } catch (error) {
    if (!(error instanceof NoAnswer || error instanceof Refused)) throw error;
    if (mine === turn) failed(error);
  }
}

function lookAgain(afterMs) {
  clearTimeout(timer);
  if (!document.hidden && !token.open) timer = setTimeout(look, afterMs);
}

function answered() {
  failures = 0;
  answeredMs = Date.now();
  setText(find("connection"), "Live");
  document.body.dataset.connection = "live";
  find("lost").hidden = true;
  find("change-token").hidden = !hasToken();
}

function failed(error) {
  failures += 1;
  if (error.status === 401) {
    askForToken(error.message);
    return;
  }
  document.body.dataset.connection = "lost";
  find("change-token").hidden = !hasToken();
  setText(find("connection"), error.status ? "Refused" : "Not connected");
  const what = error.status ? `The server says: ${error.message}.` : `No connection: ${error.message}.`;
  const seen = answeredMs === null ? "" : ` What you see is as of ${time(answeredMs).slice(11, 19)}.`;
  setText(find("lost-text"), what.replace("..", ".") + seen);
  find("lost").hidden = false;
  lookAgain(Math.min(SLOWEST_MS, SOON_MS * 2 ** (failures - 1)));
}

function askForToken(sentence) {
  setText(find("connection"), "Waiting for a token");
  const isNew = !hasToken();
  setText(find("token-heading"), "A token is needed");
  find("token-greeting").hidden = !isNew;
  find("token-cancel").hidden = true;
  const text = isNew ? `The server says: ${sentence}` : `This token does not do. The server says: ${sentence}`;
  setText(find("token-text"), text);
  if (!token.open) token.showModal();
}

/** For who has one already, and wants another. */
function changeToken() {
  setText(find("token-heading"), "Use another token");
  find("token-greeting").hidden = true;
  find("token-cancel").hidden = false;
  setText(find("token-text"), "It takes the place of the one that this tab uses.");
  token.showModal();
}

token.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = find("token-value");
  useToken(field.value.trim());
  field.value = "";
  token.close();
  open({ isFirst: true }); // of what another one may see, and from the beginning
});
find("change-token").addEventListener("click", changeToken);
find("token-cancel").addEventListener("click", () => token.close());
token.addEventListener("close", () => lookAgain(0));
find("again").addEventListener("click", () => lookAgain(0));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names views, and nothing in them
  const start = view.heading ?? find("topics");
  start.focus();
  start.scrollIntoView();
});
whenDone((sentence) => {
  announce(sentence);
  lookAgain(0);
});
addEventListener("hashchange", () => open());
addEventListener("look", () => lookAgain(0));
document.addEventListener("visibilitychange", () => lookAgain(0));
open({ isFirst: true });
