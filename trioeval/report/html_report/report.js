/** Load a part of the page with rows. */
async function loadPart(number) {
  const part = page.parts[number];
  const index = await readAll(number, "index");
  const before = new Map((await readAll(number, "index-before")).map(([place, cell]) => [place, cell]));
  const details = [new Details(number, "details"), new Details(number, "before")];
  const owners = [[], []];
  const rows = index.map(([idx, name, cells, kind, column, place], id) => {
    const row = { id, idx, name, kind, column };
    const words = [name, column ?? ""];
    cells.forEach((cell, n) => {
      if (kind && n === 0) cell = before.get(place) ?? null;
      row[`c${n}`] = cell;
      if (!cell) return;
      words.push(cell[CELL.text], cell[CELL.why]);
      owners[kind && n === 0 ? 1 : 0][cell[CELL.row]] = id;
    });
    row.text = words.join("\n").toLowerCase();
    return row;
  });
  return { ...part, number, rows, details, owners };
}

/** The dialog with the details of a row, its cells side by side. */
class Sheet {
  constructor() {
    this.dialog = document.getElementById("sheet");
    this.dialog.querySelector(".close").addEventListener("click", () => this.dialog.close());
    this.dialog.querySelector(".previous").addEventListener("click", () => this.step(-1));
    this.dialog.querySelector(".next").addEventListener("click", () => this.step(1));
    this.dialog.addEventListener("close", () => this.matrix.place.focus({ preventScroll: true }));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
  }

  async step(steps) {
    await this.matrix.move(steps);
    await this.open(this.matrix, this.matrix.current);
  }

  async open(matrix, component) {
    this.matrix = matrix;
    this.wanted = component;
    const row = component.getData();
    const cells = matrix.columns.map((_, number) => row[`c${number}`]);
    const pages = await Promise.all(
      cells.map((cell, number) => cell && matrix.details[row.kind && number === 0 ? 1 : 0].row(cell[CELL.row])),
    );
    if (this.wanted !== component) return; // another row was opened
    this.dialog.querySelector("h2").textContent = `row ${row.idx}${row.name ? ` (${row.name})` : ""}`;
    const place = component.getPosition();
    this.dialog.querySelector(".place").textContent = `${place} of ${matrix.count}`;
    this.dialog.querySelector(".previous").setAttribute("aria-disabled", place === 1);
    this.dialog.querySelector(".next").setAttribute("aria-disabled", place === matrix.count);
    const body = this.dialog.querySelector(".panes");
    body.replaceChildren();
    if (row.kind) body.append(changeView(row, pages));
    pages.forEach((details, number) => {
      if (details) body.append(paneView(matrix.columns[number], cells[number], details));
    });
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.querySelector(".content").scrollTop = 0;
  }
}

/** The change of a row between two runs. */
function changeView(row, [before, after]) {
  const view = make("section", { class: "change" }, make("p", {}, make("b", { class: `kind ${row.kind}` }, row.kind), ` ${row.column}`));
  if (before?.output != null && after?.output != null && before.output !== after.output) {
    view.append(diffView(before.output, after.output, ["before", "after"]));
  }
  return view;
}

function paneView(column, cell, details) {
  const status = STATUSES[cell[CELL.status]];
  const heading = make("h3", {}, column.provider, " ", make("span", { class: "dim" }, column.prompt));
  const facts = [make("b", { class: `status ${status}` }, statusText(status)), ` ${details.facts.join(" · ")}`];
  const pane = make("section", { class: "pane" }, heading, make("p", {}, ...facts));
  if (details.output !== null) pane.append(block("output", textView("output", details.output), true));
  for (const [shape, title, body] of details.blocks) {
    if (shape === "text") pane.append(block(title, textView(title, body), title !== "prompt" || body.length < 500));
    else if (shape === "media") pane.append(block(title, mediaView(body), true));
    else if (shape === "pairs") pane.append(block(title, pairsView(body), true));
    else pane.append(block(title, checksView(body, details.output), true));
  }
  return pane;
}

function block(title, body, open) {
  return make("details", { open }, make("summary", {}, title), body);
}

function textView(title, text) {
  return make("pre", { tabindex: "0", role: "group", "aria-label": title }, text);
}

function mediaView(media) {
  const list = make("div", { class: "media" });
  for (const [name, data] of media) {
    const image = data?.startsWith("data:image/") ? make("img", { src: data, alt: name }) : null;
    list.append(make("figure", {}, image, make("figcaption", {}, name)));
  }
  return list;
}

function pairsView(pairs) {
  const list = make("dl", {});
  for (const [name, text] of pairs) list.append(make("dt", {}, name), make("dd", {}, text));
  return list;
}

function checksView(checks, output) {
  const list = make("ul", { class: "checks" });
  for (const [passed, score, name, reason, facts, expected] of checks) {
    const status = passed ? "pass" : "fail";
    const line = make("p", {}, make("b", { class: `status ${status}` }, status.toUpperCase()), ` ${score} `, make("span", { class: "name" }, name));
    const item = make("li", {}, line, reason ? make("p", { class: "reason" }, reason) : null, facts ? make("p", { class: "dim" }, facts) : null);
    if (expected && output !== null) item.append(expectedView(expected, output));
    list.append(item);
  }
  return list;
}

function expectedView([isJson, expected], output) {
  const laidOut = isJson ? [pretty(expected), pretty(output)] : [null];
  const [wanted, got] = laidOut.includes(null) ? [expected, output] : laidOut;
  return diffView(wanted, got, ["expected", "output"]);
}

/** The tabs: one part of the page is shown at a time. */
class Tabs {
  constructor(draw) {
    this.tabs = Array.from(document.querySelectorAll("[role=tab]"));
    this.draw = draw;
    this.tabs.forEach((tab, number) => {
      tab.addEventListener("click", () => this.show(number));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = (number + step + this.tabs.length) % this.tabs.length;
        this.show(next);
        this.tabs[next].focus();
      });
    });
    const list = document.querySelector("[role=tablist]");
    list.hidden = this.tabs.length < 2;
  }

  get shown() {
    return document.getElementById(this.tabs[this.current].getAttribute("aria-controls"));
  }

  async show(number) {
    this.current = number;
    this.tabs.forEach((tab, place) => {
      tab.setAttribute("aria-selected", String(place === number));
      tab.tabIndex = place === number ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = place !== number;
    });
    await this.draw(this.shown);
  }
}

/** The theme button, which overrides the system's theme. */
function addTheme(redraw) {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = document.documentElement.dataset;
  const isDark = () => (chosen.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const tell = () => {
    name();
    redraw();
  };
  const name = () => (button.textContent = `Switch to ${isDark() ? "light" : "dark"}`);
  button.hidden = false;
  name();
  button.addEventListener("click", () => {
    chosen.theme = isDark() ? "light" : "dark";
    tell();
  });
  system.addEventListener("change", tell);
  // Paper is light, also for charts, which are drawn in the current colours.
  let onScreen;
  addEventListener("beforeprint", () => {
    onScreen = chosen.theme;
    chosen.theme = "light";
    redraw();
  });
  addEventListener("afterprint", () => {
    if (onScreen) chosen.theme = onScreen;
    else delete chosen.theme;
    redraw();
  });
}

const PRINTED = 500; // rows of a table on paper

/** Write the filtered table out for paper, which has no scroll bar. */
function printTable(matrix) {
  const rows = matrix.table.getRows("active").slice(0, PRINTED);
  const caption = make("caption", {}, `${rows.length} of ${counted(matrix.rows.length, matrix.unit)}`);
  const head = make("tr", {}, make("th", {}, "#"), make("th", {}, "Test"));
  for (const column of matrix.columns) head.append(make("th", {}, `${column.provider} ${column.prompt}`));
  const table = make("table", { class: "printed" }, caption, make("thead", {}, head));
  for (const row of rows.map((one) => one.getData())) {
    const cells = matrix.columns.map((_, number) => make("td", {}, cellView(row[`c${number}`])));
    table.append(make("tr", {}, make("td", {}, String(row.idx)), make("td", {}, row.kind ? `${row.kind}, ${row.column}: ` : "", row.name), ...cells));
  }
  matrix.place.after(table);
}

async function start() {
  const loading = page.parts.map((part, number) => (part ? loadPart(number) : null));
  const matrices = [];
  const sheet = new Sheet();
  const drawings = {
    charts: async (place) => drawCharts(place, (await Promise.all(loading)).filter(Boolean)),
    lanes: drawLanes,
  };
  const drawn = new Set();
  const tabs = new Tabs(async (section) => {
    if (drawn.has(section)) return;
    drawn.add(section);
    if (section.id in drawings) return drawings[section.id](section);
    const part = await loading[Number(section.dataset.part)];
    if (!part) return; // a dataset
    if (part.rows.length) matrices.push(new Matrix(section, part, (from, row) => sheet.open(from, row)));
    else section.querySelector(".matrix").append(make("p", { class: "note" }, "No rows."));
  });
  addTheme(() => {
    for (const id in drawings) {
      const section = document.getElementById(id);
      if (drawn.delete(section)) section.replaceChildren();
    }
    return tabs.draw(tabs.shown);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea") || sheet.dialog.open) return;
    event.preventDefault();
    tabs.shown.querySelector("[name=search]")?.focus();
  });
  window.addEventListener("beforeprint", () => matrices.forEach(printTable));
  window.addEventListener("afterprint", () => document.querySelectorAll(".printed").forEach((one) => one.remove()));
  await tabs.show(0);
  document.documentElement.dataset.ready = "yes";
}

start();
