// The reference of the server's HTTP interface, made from its own /openapi.json.

import { NoAnswer, Refused, ask } from "./server.js";
import { make, setText } from "./table.js";
import { several } from "./words.js";

const METHODS = ["get", "put", "post", "patch", "delete"];
const LONGEST_LINE = 60;

const find = (id) => document.getElementById(id);
const search = find("search");
const place = find("operations");
let described = null;

/** A schema in a word or a few: names of others are links to them. */
function shape(schema, depth = 0) {
  if (schema === undefined) return ["any"];
  if (schema.$ref) return [reference(schema.$ref.split("/").at(-1))];
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((one) => JSON.stringify(one)).join(" | ")];
  const branches = schema.anyOf ?? schema.oneOf;
  if (branches) return branches.flatMap((one, at) => (at ? [" | ", ...shape(one, depth)] : shape(one, depth)));
  if (schema.type === "array") return ["[", ...shape(schema.items, depth), "]"];
  if (schema.properties) return object(schema, depth);
  if (schema.additionalProperties && typeof schema.additionalProperties === "object") {
    return ["{name: ", ...shape(schema.additionalProperties, depth), "}"];
  }
  const type = [schema.type ?? "any"].flat().join(" | ");
  return [schema.contentEncoding ? `${type} (${schema.contentEncoding})` : `${type}${range(schema)}`];
}

function range({ minimum, exclusiveMinimum, maximum, pattern, format }) {
  const from = exclusiveMinimum !== undefined ? `above ${exclusiveMinimum}` : minimum !== undefined ? `from ${minimum}` : "";
  const to = maximum !== undefined && maximum < 2 ** 62 ? ` to ${maximum}` : "";
  const bounds = `${from}${to}`.trim();
  const more = [bounds, pattern && pattern.length < 40 ? pattern : "", format ?? ""].filter(Boolean);
  return more.length ? ` (${more.join(", ")})` : "";
}

function object(schema, depth) {
  const pad = "  ".repeat(depth + 1);
  const fields = Object.entries(schema.properties).flatMap(([name, one]) => {
    const optional = (schema.required ?? []).includes(name) ? "" : "?";
    return [`\n${pad}${name}${optional}: `, ...shape(one, depth + 1)];
  });
  return fields.length ? ["{", ...fields, `\n${"  ".repeat(depth)}}`] : ["{}"];
}

function reference(name) {
  const link = make("a", "", name);
  link.href = `#${name}`;
  return link;
}

function code(parts) {
  const shown = make("pre");
  shown.append(...parts);
  return shown;
}

function rows(title, names) {
  const list = make("dl");
  for (const { name, required, schema, description = "", in: where } of names) {
    const term = make("dt");
    term.append(make("span", "id", name), make("span", "soft", ` ${where}${required ? "" : ", may be left out"}`));
    const told = make("dd");
    told.append(...shape(schema));
    if (description) told.append(make("p", "soft", description));
    list.append(term, told);
  }
  return [make("h4", "", title), list];
}

function content(kinds = {}) {
  return Object.entries(kinds).flatMap(([type, { schema, example, examples }]) => {
    const parts = [make("p", "soft", type), code(shape(schema))];
    const shown = example ?? Object.values(examples ?? {})[0]?.value;
    if (shown !== undefined) {
      const text = JSON.stringify(shown);
      parts.push(make("p", "soft", "For example"), code([text.length > LONGEST_LINE ? JSON.stringify(shown, null, 2) : text]));
    }
    return parts;
  });
}

function operation(path, method, told) {
  const element = make("details", "operation");
  element.id = told.operationId;
  const summary = make("summary", "row");
  summary.append(make("span", `method ${method}`, method.toUpperCase()), make("span", "id", path), make("span", "soft", told.summary ?? ""));
  element.append(summary);
  element.addEventListener("toggle", () => {
    if (element.children.length === 1) element.append(...whole(path, method, told));
  });
  return element;
}

/** What is below the line of an operation, made when somebody opens it. */
function whole(path, method, told) {
  const link = make("a", "soft", "Link to this");
  link.href = `#${told.operationId}`;
  const parts = [link];
  if (told.description) parts.push(make("p", "", told.description));
  if (told.parameters?.length) parts.push(...rows("Parameters", told.parameters));
  if (told.requestBody) parts.push(make("h4", "", "Body"), ...content(told.requestBody.content));
  parts.push(make("h4", "", "Answers"));
  for (const [status, answer] of Object.entries(told.responses)) {
    parts.push(make("p", "what", `${status}  ${answer.description}`));
    if (status < "300") parts.push(...content(answer.content));
  }
  return parts;
}

function schemaOf(name, schema) {
  const element = make("details", "operation");
  element.id = name;
  element.append(make("summary", "id", name));
  element.addEventListener("toggle", () => {
    if (element.children.length > 1) return;
    if (schema.description) element.append(make("p", "", schema.description));
    element.append(code(shape(schema)));
  });
  return element;
}

function show() {
  const words = search.value.trim().toLowerCase().split(/\s+/);
  const has = (...texts) => words.every((word) => texts.join(" ").toLowerCase().includes(word));
  const byTag = new Map();
  let count = 0;
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const method of METHODS) {
      const told = methods[method];
      if (!told || !has(method, path, told.summary ?? "", told.operationId)) continue;
      const [tag = "others"] = told.tags ?? [];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(operation(path, method, told));
      count += 1;
    }
  }
  const schemas = Object.entries(described.components?.schemas ?? {}).filter(([name]) => has(name));
  const parts = [...byTag].sort(([a], [b]) => a.localeCompare(b));
  if (schemas.length) parts.push(["schemas", schemas.map(([name, schema]) => schemaOf(name, schema))]);
  place.replaceChildren(...parts.map(([tag, operations]) => section(tag, operations)));
  find("parts").replaceChildren(...parts.map(([tag]) => {
    const link = reference(`tag-${tag}`);
    link.textContent = tag;
    return link;
  }));
  setText(find("count"), `${several(count, "operation")}, ${several(schemas.length, "schema")}`);
}

function section(tag, operations) {
  const element = make("section", "stack");
  const heading = make("h2", "", tag);
  heading.id = `tag-${tag}`;
  heading.tabIndex = -1;
  element.append(heading, ...operations);
  return element;
}

/** Opens what the address names. */
function goThere() {
  const wanted = find(decodeURIComponent(location.hash.slice(1)));
  if (!wanted) return;
  if (wanted.tagName === "DETAILS") wanted.open = true;
  wanted.scrollIntoView();
  (wanted.querySelector("summary") ?? wanted).focus({ preventScroll: true });
}

async function begin() {
  try {
    described = await ask("openapi.json");
  } catch (error) {
    if (!(error instanceof NoAnswer || error instanceof Refused)) throw error;
    setText(find("lost"), `The reference cannot be read: ${error.message}.`).hidden = false;
    return;
  }
  setText(find("version"), `HTTP reference, version ${described.info.version}`);
  setText(find("about"), described.info.description);
  show();
  goThere();
}

search.addEventListener("input", () => described && show());
addEventListener("hashchange", goThere);
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
});
begin();
