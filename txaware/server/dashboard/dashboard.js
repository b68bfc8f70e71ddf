// Asks for the overview again and again, and shows it.

import { announce, showGlance } from "./glance.js";
import { Model } from "./model.js";
import { whenEnded } from "./endings.js";
import { ask, hasToken, NoAnswer, Refused, useToken } from "./server.js";
import { setText } from "./table.js";
import { showTables } from "./tables.js";
import { time } from "./words.js";

const EVERY_MS = 2000;
const SOON_MS = 1000;
const SLOWEST_MS = 10_000;
const TYPED_MS = 250;

const find = (id) => document.getElementById(id);
const search = find("search");
const namespace = find("namespace");
const token = find("token");
let model = new Model();
let report = null;
let answeredMs = null;
let failures = 0;
let turn = 0;
let timer;

async function look() {
  const mine = ++turn;
  try {
    const answer = await ask(`v1/overview?${query()}`);
    if (mine !== turn) return;
    report = model.take(answer);
    answered();
    show();
    lookAgain(report.rates[0] === null ? SOON_MS : EVERY_MS);
  } catch (error) {
    if (!(error instanceof NoAnswer || error instanceof Refused)) throw error;
    if (mine === turn) failed(error);
  }
}

function lookAgain(afterMs) {
  clearTimeout(timer);
  if (!document.hidden && !token.open) timer = setTimeout(look, afterMs);
}

function query() {
  const query = new URLSearchParams();
  if (search.value.trim()) query.set("search", search.value.trim());
  if (namespace.value) query.set("namespace", namespace.value);
  if (report === null) query.set("history", "true");
  return query;
}

function show() {
  showGlance(report);
  showNamespaces(report.namespaces);
  const wanted = search.value.trim().toLowerCase();
  showTables(report, {
    isAll: !wanted && !namespace.value,
    has(topic, ...names) {
      const [, of = "default"] = topic.split(":").reverse();
      if (namespace.value && of !== namespace.value) return false;
      return names.some((name) => name.toLowerCase().includes(wanted));
    },
  });
}

function showNamespaces(names) {
  const there = [...namespace.options].slice(1).map((option) => option.value);
  if (names.join() === there.join()) return;
  const chosen = namespace.value;
  const options = names.map((name) => new Option(name, name, false, name === chosen));
  namespace.replaceChildren(namespace.options[0], ...options);
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
  report = null; // of what another one may see, and from the beginning
  model = new Model();
  token.close();
});
find("change-token").addEventListener("click", changeToken);
find("token-cancel").addEventListener("click", () => token.close());
token.addEventListener("close", () => lookAgain(0));
find("again").addEventListener("click", () => lookAgain(0));
whenEnded((sentence) => {
  announce(sentence);
  lookAgain(0);
});

let typing;
search.addEventListener("input", () => {
  if (report) show();
  clearTimeout(typing);
  typing = setTimeout(() => lookAgain(0), TYPED_MS);
});
namespace.addEventListener("change", () => {
  if (report) show();
  lookAgain(0);
});
document.addEventListener("visibilitychange", () => lookAgain(0));
document.addEventListener("keydown", (event) => {
  const isElsewhere = event.target.closest?.("input, select, dialog");
  if (event.key !== "/" || isElsewhere || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  search.focus();
});
look();
