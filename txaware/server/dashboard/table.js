// A table that is kept up to date in place: rows stay the elements they were, so that
// nobody loses the focus, and only what changed is written.

/** Sets a text, as text, where it is another one. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** A name, or several: two lines at most are shown, and all of it where one points. */
export function setName(element, text, whole = text) {
  if (element.title !== whole) element.title = whole;
  return setText(element, text);
}

/** A new element with a class and a text. */
export function make(name, className = "", text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

/** The one child with that class, made where it is missing. */
export function child(parent, name, className) {
  const found = parent.querySelector(`:scope > .${className}`);
  if (found) return found;
  const made = make(name, className);
  parent.append(made);
  return made;
}

/** The one link of a cell. */
export function link(parent, className, text, href) {
  const found = child(parent, "a", className);
  if (found.getAttribute("href") !== href) found.setAttribute("href", href);
  return setName(found, text);
}

/** The one button of a cell; it does what it was given last. */
export function button(parent, className, text, act) {
  const found = child(parent, "button", className);
  if (!found.act) {
    found.type = "button";
    found.addEventListener("click", () => found.act());
  }
  found.act = act;
  return setText(found, text);
}

/**
 * `columns` are {name, label, numeric, sort, show}: `show(cell, row)` fills a cell, and
 * `sort(row)` is what its column is sorted by.
 */
export class LiveTable {
  #columns;
  #key;
  #rows = [];
  #elements = new Map();
  #sorted;
  #body = make("tbody");
  #headers = new Map();
  #table;
  #empty;

  constructor(table, columns, { key, sorted, downwards = false }) {
    this.#columns = columns;
    this.#key = key;
    this.#sorted = { name: sorted, downwards };
    const head = make("thead");
    for (const part of [head, this.#body]) part.setAttribute("role", "rowgroup");
    const row = make("tr");
    row.setAttribute("role", "row");
    for (const column of columns) row.append(this.#header(column));
    head.append(row);
    table.append(head, this.#body);
    this.#empty = make("p", "empty soft");
    table.after(this.#empty);
    this.#table = table;
    this.#mark();
  }

  /** Shows these rows, or the sentence `none` where there are none. */
  update(rows, none) {
    this.#rows = rows;
    this.#table.hidden = rows.length === 0;
    setText(this.#empty, none).hidden = rows.length > 0;
    const kept = new Set();
    for (const row of rows) {
      const key = this.#key(row);
      kept.add(key);
      const cells = this.#elements.get(key) ?? this.#newRow(key);
      this.#columns.forEach((column, at) => column.show(cells[at], row));
    }
    for (const [key, cells] of this.#elements) {
      if (kept.has(key)) continue;
      cells[0].parentElement.remove();
      this.#elements.delete(key);
    }
    this.#order();
  }

  #header(column) {
    const cell = make("th", column.numeric ? "number" : "");
    cell.scope = "col";
    cell.setAttribute("role", "columnheader");
    if (!column.sort) {
      cell.textContent = column.label;
      return cell;
    }
    button(cell, "sort", column.label, () => {
      const same = this.#sorted.name === column.name;
      const downwards = same ? !this.#sorted.downwards : Boolean(column.numeric);
      this.#sorted = { name: column.name, downwards };
      this.#mark();
      this.#order();
    });
    this.#headers.set(column.name, cell);
    return cell;
  }

  #mark() {
    for (const [name, cell] of this.#headers) {
      if (name !== this.#sorted.name) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", this.#sorted.downwards ? "descending" : "ascending");
    }
  }

  #newRow(key) {
    const row = make("tr");
    row.setAttribute("role", "row");
    const cells = this.#columns.map((column, at) => {
      const cell = make(at ? "td" : "th", `${column.name}${column.numeric ? " number" : ""}`);
      cell.setAttribute("role", at ? "cell" : "rowheader");
      if (!at) cell.scope = "row";
      cell.dataset.label = column.label;
      return cell;
    });
    row.append(...cells);
    this.#body.append(row);
    this.#elements.set(key, cells);
    return cells;
  }

  #order() {
    const { name, downwards } = this.#sorted;
    const { sort } = this.#columns.find((column) => column.name === name);
    const sign = downwards ? -1 : 1;
    const ordered = [...this.#rows].sort(
      (a, b) =>
        sign * compare(sort(a), sort(b)) || compare(this.#key(a), this.#key(b)),
    );
    const focused = document.activeElement;
    ordered.forEach((row, at) => {
      const element = this.#elements.get(this.#key(row))[0].parentElement;
      const there = this.#body.children[at];
      if (there !== element) this.#body.insertBefore(element, there);
    });
    if (focused !== document.activeElement && focused.isConnected) {
      focused.focus({ preventScroll: true });
    }
  }
}

function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return (a ?? -1) - (b ?? -1);
}
