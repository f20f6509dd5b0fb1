"use strict";

// All markup becomes text, except the few elements that Tabulator creates.
const OWN_MARKUP = new Set(["<div class='tabulator-arrow'></div>"]);
window.trustedTypes?.createPolicy("default", {
  createHTML: (text) => (OWN_MARKUP.has(text) ? text : text.replaceAll("<", "&lt;")),
});

const page = JSON.parse(document.getElementById("data").textContent);
const STATUSES = ["pass", "fail", "error", "not_run", "not_graded"];
const NOT_GRADED = 4;

/** The status of a cell as text. */
function statusText(status) {
  return status.replace("_", " ").toUpperCase();
}
const CELL = Object.fromEntries(page.fields.map((name, place) => [name, place]));

/** Create an element with attributes and children; strings become text nodes. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

/** Read the JSON data in an element of the page, which is deflated and in base64. */
async function unpack(element) {
  const text = element.textContent;
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function packsOf(part, kind) {
  const found = document.querySelectorAll(`script[data-part="${part}"][data-kind="${kind}"]`);
  return Array.from(found, (element) => ({
    first: Number(element.dataset.first),
    count: Number(element.dataset.count),
    element,
  }));
}

async function readAll(part, kind) {
  return (await Promise.all(packsOf(part, kind).map((pack) => unpack(pack.element)))).flat();
}

/** The details of rows; the packs that were opened last are cached. */
class Details {
  constructor(part, kind) {
    this.packs = packsOf(part, kind);
    this.opened = new Map();
  }

  async row(number) {
    const pack = this.packs.findLast((one) => one.first <= number);
    const found = this.opened.get(pack.first) ?? unpack(pack.element);
    this.opened.delete(pack.first);
    this.opened.set(pack.first, found);
    if (this.opened.size > 8) this.opened.delete(this.opened.keys().next().value);
    return (await found)[number - pack.first];
  }

  /** Call a function with each pack in turn, until it returns false. */
  async each(take) {
    for (const pack of this.packs) {
      if (!take(pack.first, await unpack(pack.element))) return;
    }
  }
}

/** Join all strings in JSON data. */
function textsOf(value) {
  if (typeof value === "string") return value;
  return Array.isArray(value) ? value.map(textsOf).join("\n") : "";
}

function counted(count, unit) {
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}
