// Draws runs along the time, and the steps of a run as a graph.

const SVG = "http://www.w3.org/2000/svg";
const LANES = 8;
const LANE = 14;
const NARROWEST = 4;
const BOX = { width: 180, height: 48, gapX: 48, gapY: 20 };

function drawn(name, attributes = {}, ...inside) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

export function shownTime(ms) {
  return new Date(ms).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
}

// The table beside it says the same, so that it is for the eye alone.
export function timeline(runs, nowMs, width) {
  const begun = runs.filter((run) => run.launched_ms);
  const isOver = begun.length > 0 && begun.every((run) => run.ended_ms);
  const last = isOver ? Math.max(...begun.map((run) => run.ended_ms)) : nowMs;
  const first = Math.min(last - 60_000, ...begun.map((run) => run.launched_ms));
  const isNarrow = width < 400; // its end is told below its beginning
  const height = LANES * LANE + (isNarrow ? 52 : 34);
  const place = (ms) => ((ms - first) / (last - first)) * (width - 2) + 1;
  const svg = drawn("svg", { width, height, "aria-hidden": "true" });
  const free = new Array(LANES).fill(-1);
  for (const run of begun) {
    const x = Math.min(place(run.launched_ms), width - 1 - NARROWEST);
    const end = Math.max(x + NARROWEST, place(run.ended_ms || last));
    let lane = free.findIndex((until) => until < x);
    if (lane < 0) lane = free.indexOf(Math.min(...free));
    free[lane] = end;
    const bar = drawn("rect", {
      class: `bar ${run.state}`,
      x,
      y: lane * LANE,
      width: end - x,
      height: LANE - 4,
    });
    bar.append(drawn("title", {}, `${run.run}: ${run.state}`));
    const link = drawn("a", { href: `/runs/${run.run}`, tabindex: -1 }, bar);
    svg.append(link);
  }
  const bottom = LANES * LANE + 6;
  svg.append(drawn("path", { class: "axis", d: `M1 ${bottom}H${width - 1}` }));
  const text = (x, y, anchor, ms) =>
    drawn("text", { class: "soft", x, y, "text-anchor": anchor }, shownTime(ms));
  svg.append(
    text(1, bottom + 20, "start", first),
    text(width - 1, bottom + (isNarrow ? 38 : 20), "end", last),
  );
  return svg;
}

// Steps stand in columns, each behind all that it waits for. What waits for a step from
// further ahead is led past the columns between them, below their steps.
export function graph(steps) {
  const columns = columnsOf(steps);
  const rows = [];
  const place = (column) => {
    const row = (rows[column] = (rows[column] ?? -1) + 1);
    const [x, y] = [2 + column * (BOX.width + BOX.gapX), 2 + row * (BOX.height + BOX.gapY)];
    return { x, y, end: x + BOX.width, middle: y + BOX.height / 2 };
  };
  const places = new Map(steps.map((step) => [step.name, place(columns.get(step.name))]));
  const ways = new Map();
  const way = (name, column) => {
    const key = `${column} ${name}`;
    if (!ways.has(key)) ways.set(key, place(column));
    return ways.get(key);
  };
  const edges = [];
  for (const step of steps) {
    for (const before of step.after.filter((one) => places.has(one))) {
      const between = [];
      for (let at = columns.get(before) + 1; at < columns.get(step.name); at++) between.push(way(before, at));
      edges.push(edge(places.get(before), between, places.get(step.name)));
    }
  }
  const width = Math.max(1, rows.length) * (BOX.width + BOX.gapX) - BOX.gapX + 4;
  const height = (Math.max(0, ...rows) + 1) * (BOX.height + BOX.gapY) - BOX.gapY + 4;
  const said = steps.map((step) => `${step.name} ${step.state}`).join(", ");
  const svg = drawn("svg", { width, height, role: "img", "aria-label": `Steps: ${said}` }, ...edges);
  for (const step of steps) svg.append(box(step, places.get(step.name)));
  return svg;
}

function columnsOf(steps) {
  const columns = new Map();
  const byName = new Map(steps.map((step) => [step.name, step]));
  const columnOf = (name) => {
    if (!columns.has(name)) {
      const before = byName.get(name).after.filter((one) => byName.has(one));
      columns.set(name, Math.max(-1, ...before.map(columnOf)) + 1);
    }
    return columns.get(name);
  };
  for (const step of steps) columnOf(step.name);
  return columns;
}

function edge(from, between, to) {
  let d = `M${from.end} ${from.middle}`;
  let last = from;
  for (const next of [...between, to]) {
    const bend = (last.end + next.x) / 2;
    d += `C${bend} ${last.middle} ${bend} ${next.middle} ${next.x} ${next.middle}`;
    if (next !== to) d += `H${next.end}`;
    last = next;
  }
  return drawn("path", { class: "edge", d });
}

function box(step, { x, y }) {
  const name = step.name.length > 21 ? `${step.name.slice(0, 20)}…` : step.name;
  return drawn(
    "g",
    {},
    drawn("rect", {
      class: `box ${step.state}`,
      x,
      y,
      rx: 6,
      width: BOX.width,
      height: BOX.height,
    }),
    drawn("text", { x: x + 10, y: y + 20 }, name),
    drawn("text", { class: "soft", x: x + 10, y: y + 38 }, stateOf(step)),
  );
}

export function stateOf(step) {
  return step.attempt > 1 ? `${step.state}, attempt ${step.attempt}` : step.state;
}
