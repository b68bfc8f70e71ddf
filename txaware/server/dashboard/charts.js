// Small charts, drawn in SVG: the newest value at the right, two minutes wide.

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

  constructor(series) {
    this.#room = HEIGHT / series.length - 2;
    this.#base = this.#room + 2;
    this.element = shape("svg", {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
    });
    this.#areas = series.map((name) => shape("path", { class: `area ${name}` }));
    this.#lines = series.map((name) => shape("path", { class: `line ${name}` }));
    const base = shape("path", { class: "base", d: `M0 ${this.#base}H${WIDTH}` });
    this.element.append(...this.#areas, base, ...this.#lines);
  }

  /** `label` says in words what it shows. */
  draw(values, label) {
    const most = Math.max(1e-9, ...values.flat());
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
    this.element.setAttribute("aria-label", label);
  }
}
