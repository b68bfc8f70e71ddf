// Numbers and times as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const SMALL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const NOTHING = "–";

export function count(number) {
  return number === null || number === undefined ? NOTHING : WHOLE.format(number);
}

export function shortCount(number) {
  return number < 100_000 ? WHOLE.format(number) : SHORT.format(number);
}

/** How many a second; null while there is nothing to compare with. */
export function rate(number) {
  if (number === null || number === undefined) return NOTHING;
  if (number > 0 && number < 0.1) return "<0.1";
  if (number < 10) return SMALL.format(number);
  return shortCount(Math.round(number));
}

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** A duration by its two greatest units: "2 h 5 min". */
export function duration(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const at = UNITS.findIndex(([, unit]) => ms >= unit);
  const [name, unit] = UNITS[at];
  const most = `${Math.floor(ms / unit)} ${name}`;
  const next = UNITS[at + 1];
  if (!next || ms >= 10 * unit) return most;
  const rest = Math.floor((ms % unit) / next[1]);
  return rest ? `${most} ${rest} ${next[0]}` : most;
}

/** Local date and time to the millisecond. */
export function time(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, -1).replace("T", " ");
}

export function bytes(number) {
  if (number < 1024) return `${number} ${number === 1 ? "byte" : "bytes"}`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    number /= 1024;
    if (number < 1024 || unit === "GiB") return `${SMALL.format(number)} ${unit}`;
  }
  return NOTHING;
}

/** Who began a transaction, and from where. */
export function begunBy({ principal, address, type, isHeld }) {
  const hasIt = isHeld ? ", which has it" : "";
  if (address === "this process") return `the coordinator's own process${hasIt}`;
  if (principal) return (address ? `${principal} at ${address}` : principal) + hasIt;
  return type ? "not known since the restart" : "not known";
}

/** A transaction in a sentence: a prepared one by its name. */
export function named({ id, prepared }, say = short) {
  return prepared ? `${say(prepared)}, prepared as transaction ${id}` : `transaction ${id}`;
}

export function several(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A name in a sentence, of which a long one would leave nothing. */
export function short(name) {
  return name.length <= 48 ? name : `${name.slice(0, 30)}…${name.slice(-15)}`;
}

/** "a, b and 3 more" */
export function some(names, most = 3, say = (name) => name) {
  const shown = names.slice(0, most).map(say).join(", ");
  return names.length > most ? `${shown} and ${names.length - most} more` : shown;
}
