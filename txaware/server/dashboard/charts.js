// Small charts, drawn in SVG: two minutes wide, the newest value at the right, with the
// greatest value and its unit beside them and the range of time below.

import { make, setText } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 32;
const POINTS = 60;

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** One area above a base line for each of `series`: a second one hangs below it. */
export class Chart {
  #areas;
  #lines;
  #base;
  #room;
  #picture;
  #ends;

  constructor(series) {
    this.#room = HEIGHT / series.length - 2;
    this.#base = this.#room + 2;
    this.#picture = shape("svg", {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
    });
    this.#areas = series.map((name) => shape("path", { class: `area ${name}` }));
    this.#lines = series.map((name) => shape("path", { class: `line ${name}` }));
    const base = shape("path", { class: "base", d: `M0 ${this.#base}H${WIDTH}` });
    this.#picture.append(...this.#areas, base, ...this.#lines);
    const axis = make("span", "axis");
    this.#ends = series.length > 1 ? ["most", "zero", "most"] : ["most", "zero"];
    this.#ends = this.#ends.map((name) => make("span", name));
    axis.append(...this.#ends);
    const times = make("span", "times");
    times.append(make("span", "", "2 min ago"), make("span", "", "now"));
    for (const words of [axis, times]) words.setAttribute("aria-hidden", "true");
    this.element = make("div", "graph");
    this.element.append(axis, this.#picture, times);
  }

  /** `label` says in words what it shows, `format` writes a value with its unit. */
  draw(values, label, format) {
    const greatest = Math.max(0, ...values.flat());
    const most = Math.max(1e-9, greatest);
    values.forEach((series, at) => {
      const sign = at ? 1 : -1;
      const first = WIDTH - ((series.length - 1) * WIDTH) / (POINTS - 1);
      const points = series.map((value, index) => {
        const x = first + (index * WIDTH) / (POINTS - 1);
        return `${x.toFixed(1)} ${(this.#base + (sign * value * this.#room) / most).toFixed(1)}`;
      });
      const line = series.some((value) => value > 0) ? `M${points.join("L")}` : "";
      this.#lines[at].setAttribute("d", line);
      const area = line && `${line}L${WIDTH} ${this.#base}L${first.toFixed(1)} ${this.#base}Z`;
      this.#areas[at].setAttribute("d", area);
    });
    for (const end of this.#ends) {
      const isZero = end.className === "zero";
      setText(end, isZero ? "0" : greatest ? format(greatest) : "");
    }
    // Before it is drawn it has no name, and is no picture for anybody.
    this.#picture.setAttribute("role", "img");
    this.#picture.setAttribute("aria-label", label);
  }
}
