const MEASURES = { score: "score", ms: "latency in ms", tokens: "tokens", cost: "cost in $" };
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity };
const SIDEWAYS = { ArrowRight: 160, ArrowLeft: -160 }; // pixels

/** The table of one part of the page, with its filters and keys. */
class Matrix {
  constructor(section, part, open) {
    const { columns, rows } = part;
    this.section = section;
    this.columns = columns;
    this.rows = rows;
    this.details = part.details;
    this.owners = part.owners;
    this.open = open;
    this.metrics = [...new Set(rows.flatMap((row) => columns.flatMap((_, n) => Object.keys(row[`c${n}`]?.[CELL.metrics] ?? {}))))].sort();
    this.statuses = columns.map(() => "");
    this.turn = 0; // counts changes of the filters
    this.count = rows.length; // rows that match them
    this.current = null;
    this.isComparison = Boolean(rows[0].kind);
    this.unit = this.isComparison || columns.length === 1 ? "row" : "test";
    this.filters = section.querySelector(".filters");
    this.buildFilters();
    this.place = section.querySelector(".matrix");
    this.table = new Tabulator(this.place, {
      data: rows,
      columns: this.definitions(),
      layout: "fitColumns",
      maxHeight: "max(24rem, 100vh - 9rem)",
      index: "id",
      columnDefaults: { headerHozAlign: "left", vertAlign: "top", resizable: "header" },
      rowFormatter: (row) => (row.getElement().id = `row-${part.number}-${row.getData().id}`),
    });
    this.table.on("dataFiltered", (_, found) => this.tell(found.length));
    this.table.on("rowClick", (event, row) => {
      if (!getSelection().isCollapsed) return; // text is being selected
      this.mark(row, false);
      this.open(this, row);
    });
    this.table.on("tableBuilt", () => {
      this.addKeys();
      this.table.redraw(); // now that its scroll bar is there
    });
    this.tell(rows.length);
  }

  definitions() {
    const text = (name) => (cell) => make("span", { class: name }, String(cell.getValue() ?? ""));
    const title = (name) => () => sortButton(name);
    const found = [
      { title: "row", titleFormatter: title("Row"), field: "idx", width: 80, formatter: text("dim"), sorter: "number" },
      { title: "test", titleFormatter: title("Test"), field: "name", minWidth: 160, widthGrow: 2, formatter: text("name"), sorter: "string" },
    ];
    if (this.isComparison) {
      found.unshift({ title: "change", titleFormatter: title("Change"), field: "kind", width: 116, formatter: (cell) => make("span", { class: `kind ${cell.getValue()}` }, cell.getValue()), sorter: "string" });
      found.push({ title: "column", titleFormatter: title("Column"), field: "column", minWidth: 140, widthGrow: 1, formatter: text("name dim"), sorter: "string" });
    }
    this.columns.forEach((column, number) => {
      found.push({
        title: `column ${number}`,
        field: `c${number}`,
        minWidth: 200,
        widthGrow: 3,
        titleFormatter: () => this.heading(column, number),
        formatter: (cell) => cellView(cell.getValue()),
        sorter: (a, b) => rank(a) - rank(b),
      });
    });
    return found;
  }

  heading(column, number) {
    const name = `${column.provider} ${column.prompt}`.trim();
    const select = make("select", { "aria-label": `Status of ${name}` });
    for (const status of ["", ...STATUSES]) select.append(make("option", { value: status }, status.replace("_", " ") || "any status"));
    select.addEventListener("change", () => {
      this.statuses[number] = select.value;
      this.filter();
    });
    for (const kind of ["click", "mousedown", "keydown"]) select.addEventListener(kind, (event) => event.stopPropagation());
    this.filters.addEventListener("reset", () => (select.value = ""));
    return make("div", { class: "heading" }, sortButton(column.provider), make("span", { class: "dim" }, column.prompt), select);
  }

  buildFilters() {
    const { filters } = this;
    const fill = (name, options) => {
      const select = filters.elements[name];
      for (const [value, shown] of options) select.append(make("option", { value }, shown));
      select.closest("label").hidden = options.length < 2;
    };
    const names = (values) => [...new Set(values)].map((value) => [value, value]);
    if (this.isComparison) {
      fill("kind", names(this.rows.map((row) => row.kind)));
      fill("column", names(this.rows.map((row) => row.column)));
    } else {
      fill("kind", []);
      fill("column", names(this.columns.map((column) => column.provider)));
    }
    const metrics = this.metrics.map((name) => [`metric ${name}`, name]);
    fill("measure", [...Object.entries(MEASURES), ...metrics]);
    filters.hidden = false;
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("input", () => this.filter());
    filters.addEventListener("reset", () => {
      this.statuses.fill("");
      requestAnimationFrame(() => this.filter());
    });
  }

  async filter() {
    const { elements } = this.filters;
    const chosen = elements.column.value;
    const seen = this.columns.map((column) => this.isComparison || !chosen || column.provider === chosen);
    this.showColumns(seen);
    const words = elements.search.value.toLowerCase().trim();
    const limit = elements.limit.value === "" ? null : Number(elements.limit.value);
    const [measure, isLeast] = [elements.measure.value, elements.than.value === "least"];
    const passes = (cell) => {
      const value = cell && valueOf(cell, measure);
      return typeof value === "number" && (isLeast ? value >= limit : value <= limit);
    };
    const wanted = this.statuses.map((status, number) => (seen[number] ? STATUSES.indexOf(status) : -1));
    const turn = ++this.turn;
    const whole = words && elements.whole.checked ? await this.searchWhole(words, turn) : null;
    if (turn !== this.turn) return; // the filter changed in the meantime
    this.table.setFilter(
      (row) =>
        (!words || row.text.includes(words) || whole?.has(row.id)) &&
        (!elements.kind.value || row.kind === elements.kind.value) &&
        (!this.isComparison || !chosen || row.column === chosen) &&
        wanted.every((status, number) => status < 0 || row[`c${number}`]?.[CELL.status] === status) &&
        (limit === null || seen.some((isSeen, number) => isSeen && passes(row[`c${number}`]))),
    );
  }

  showColumns(seen) {
    const others = seen.flatMap((isSeen, number) => {
      const column = this.table.getColumn(`c${number}`);
      return column.isVisible() === isSeen ? [] : [column];
    });
    if (!others.length) return;
    this.table.blockRedraw();
    others.forEach((column) => column.toggle());
    this.table.restoreRedraw();
  }

  /** Return the ids of the rows with a text anywhere in their details. */
  async searchWhole(words, turn) {
    this.announce("Searching …");
    const found = new Set();
    for (const [number, details] of this.details.entries()) {
      const owners = this.owners[number];
      await details.each((first, rows) => {
        rows.forEach((row, place) => {
          const bodies = row.blocks.map(([, , body]) => body);
          if (textsOf([row.output, row.facts, bodies]).toLowerCase().includes(words)) found.add(owners[first + place]);
        });
        return turn === this.turn;
      });
    }
    return found;
  }

  announce(text) {
    this.section.querySelector(".count").textContent = text;
  }

  tell(count) {
    this.count = count;
    const all = counted(this.rows.length, this.unit);
    const left = count ? "" : `. No ${this.unit} matches these filters.`;
    this.announce(count === this.rows.length ? all : `${count} of ${all}${left}`);
    this.place.setAttribute("aria-rowcount", count + 1); // including the heading
  }

  /** The table as a whole has the focus, and names its active row. */
  addKeys() {
    const { place } = this;
    const holder = place.querySelector(".tabulator-tableholder");
    holder.tabIndex = -1;
    place.tabIndex = 0;
    place.setAttribute("aria-label", "Tests; arrows move, Enter opens");
    place.addEventListener("keydown", (event) => {
      if (event.target !== place || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key in STEPS) this.move(STEPS[event.key]);
      else if (event.key in SIDEWAYS) holder.scrollLeft += SIDEWAYS[event.key];
      else if (event.key === "Enter" && this.current?.getPosition()) this.open(this, this.current);
      else return;
      event.preventDefault();
    });
  }

  /** Mark the row this many positions further down. */
  move(steps) {
    const rows = this.table.getRows("active");
    if (!rows.length) return;
    const at = this.current ? rows.findIndex((row) => row.getIndex() === this.current.getIndex()) : -1;
    const next = at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + steps));
    return this.mark(rows[next], true);
  }

  async mark(row, scroll) {
    const before = this.current?.getElement();
    before?.classList.remove("current");
    before?.removeAttribute("aria-selected");
    this.current = row;
    if (scroll) await row.scrollTo("nearest", false).catch(() => {});
    const element = row.getElement();
    element.classList.add("current");
    element.setAttribute("aria-selected", "true");
    element.setAttribute("aria-rowindex", row.getPosition() + 1);
    this.place.setAttribute("aria-activedescendant", element.id);
  }
}

/** A button that sorts by a column and can be reached by keys. */
function sortButton(name) {
  return make("button", { type: "button", class: "sort" }, name);
}

function valueOf(cell, measure) {
  return measure.startsWith("metric ") ? cell[CELL.metrics]?.[measure.slice(7)] : cell[CELL[measure]];
}

/** The sort key of a cell: errors first, then by score; cells that are not graded last. */
function rank(cell) {
  if (!cell) return -2;
  if (cell[CELL.status] === NOT_GRADED) return 2e6;
  return cell[CELL.status] >= 2 ? -1 : cell[CELL.score] + (cell[CELL.status] === 0 ? 1e6 : 0);
}

function cellView(cell) {
  if (!cell) return make("span", { class: "dim" }, "–");
  const status = STATUSES[cell[CELL.status]];
  const facts = [];
  if (cell[CELL.status] < 2) facts.push(String(Number(cell[CELL.score].toPrecision(4))));
  if (cell[CELL.ms] !== null) facts.push(`${Math.round(cell[CELL.ms])} ms`);
  return make(
    "div",
    { class: "result" },
    make("div", { class: "first" }, make("b", { class: `status ${status}` }, statusText(status)), make("span", { class: "dim" }, facts.join(" · "))),
    make("div", { class: cell[CELL.why] ? "output one" : "output" }, cell[CELL.text]),
    cell[CELL.why] ? make("div", { class: "why" }, cell[CELL.why]) : null,
  );
}
