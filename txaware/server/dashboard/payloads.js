// What was published or pushed, as people read it: text where it is text, JSON laid out,
// else hex; and as a file.

import { make } from "./table.js";
import { bytes } from "./words.js";

const SHOWN = 2000;
const MOST_LAID_OUT = 1 << 20;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;
const JSON_TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

export function decoded(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

export function encoded(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}

/** The text that bytes are, cut within a letter or not; null where they are none. */
export function textOf(data) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: true });
    return CONTROL.test(text) ? null : text;
  } catch {
    return null;
  }
}

function hex(data) {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** A short value, such as a key: as text, or as hex. */
export function brief(base64) {
  const data = decoded(base64).subarray(0, SHOWN);
  return textOf(data) ?? hex(data);
}

/** JSON laid out, each number digit by digit as it came; null for what is none. */
export function laidOut(text) {
  if (!/^\s*[{[]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  return text.match(JSON_TOKEN).reduce((written, token) => {
    const isEmpty = "{[".includes(before);
    if ("}]".includes(token)) depth -= 1;
    if ("}]".includes(token) ? !isEmpty : isEmpty && before) written += line();
    if ("{[".includes(token)) depth += 1;
    before = token;
    if (token === ",") return written + token + line();
    return written + (token === ":" ? ": " : token);
  }, "");
}

function readable(data, shownAs) {
  if (shownAs === "hex") return hex(data);
  const text = textOf(data);
  if (text === null) return hex(data);
  return (data.length <= MOST_LAID_OUT && shownAs !== "plain" && laidOut(text)) || text;
}

/** Shows a payload, of a long one the beginning and a button for all of it. */
export function payloadOf(data, shownAs) {
  const isLong = data.length > SHOWN;
  const some = isLong ? readable(data.subarray(0, SHOWN), shownAs) : readable(data, shownAs);
  const shown = make("pre", "payload", some);
  if (!isLong) return [shown];
  const more = make("button", "", `Show all ${bytes(data.length)}`);
  more.type = "button";
  more.addEventListener("click", () => {
    shown.textContent = readable(data, shownAs);
    shown.tabIndex = -1;
    shown.focus();
    more.remove();
  });
  return [shown, more];
}

/** Key and headers, each in a few words; a server of the version before tells of none. */
export function labelsOf({ key = null, headers = {} }) {
  const named = Object.entries(headers).map(([name, value]) => `${name}: ${brief(value)}`);
  return [...(key === null ? [] : [`key ${brief(key)}`]), ...named];
}

/** A message or an item as a line of JSON says it. */
export function asLine({ payload, key = null, headers = {}, ...rest }) {
  const value = (base64) => {
    const text = textOf(decoded(base64));
    return text === null ? { base64 } : text;
  };
  const named = Object.fromEntries(Object.entries(headers).map(([name, one]) => [name, value(one)]));
  return JSON.stringify({
    ...rest,
    key: key === null ? null : value(key),
    headers: named,
    payload: payload === null ? null : value(payload),
  });
}

/** Has the browser keep these as a file. */
export function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = make("a");
  link.href = url;
  link.download = name.replaceAll(":", "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
