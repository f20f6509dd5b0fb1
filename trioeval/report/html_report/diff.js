const MOST_STEPS = 4_000_000; // of a comparison by words; above it lines are compared, and above that nothing

/** Format JSON on several lines with sorted keys; null for invalid JSON, and for numbers that would be rounded. */
function pretty(text) {
  if (/\d{16}/.test(text)) return null;
  const sorted = (key, value) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  try {
    return JSON.stringify(JSON.parse(text), sorted, 2);
  } catch {
    return null;
  }
}

/** Common and different parts as [sign, text], with the sign "", "-" or "+". */
function compared(before, after) {
  const words = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
  const lines = /[^\n]*\n|[^\n]+$/g;
  for (const pattern of [words, lines]) {
    const [a, b] = [before.match(pattern) ?? [], after.match(pattern) ?? []];
    const parts = commonParts(a, b);
    if (parts !== null) return parts;
  }
  return [["-", before], ["+", after]];
}

function commonParts(a, b) {
  let first = 0;
  while (first < a.length && first < b.length && a[first] === b[first]) first++;
  let last = 0;
  const most = Math.min(a.length, b.length) - first;
  while (last < most && a[a.length - 1 - last] === b[b.length - 1 - last]) last++;
  const [m, n] = [a.length - first - last, b.length - first - last];
  if (m * n > MOST_STEPS) return null;
  const width = n + 1;
  const table = new Uint32Array((m + 1) * width); // lengths of common subsequences of the rests
  for (let i = m - 1; i >= 0; i--) {
    for (let j = n - 1; j >= 0; j--) {
      table[i * width + j] =
        a[first + i] === b[first + j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const parts = [];
  const tell = (sign, text) => {
    const end = parts.at(-1);
    if (end?.[0] === sign) end[1] += text;
    else parts.push([sign, text]);
  };
  a.slice(0, first).forEach((text) => tell("", text));
  let [i, j] = [0, 0];
  while (i < m || j < n) {
    if (i < m && j < n && a[first + i] === b[first + j]) {
      tell("", a[first + i]);
      i++;
      j++;
    } else if (j === n || (i < m && table[(i + 1) * width + j] >= table[i * width + j + 1])) {
      tell("-", a[first + i++]);
    } else {
      tell("+", b[first + j++]);
    }
  }
  a.slice(a.length - last).forEach((text) => tell("", text));
  return parts;
}

/** A view of a difference; `names` label the struck out and the underlined text. */
function diffView(before, after, names) {
  const view = make("pre", { class: "diff", tabindex: "0", role: "group", "aria-label": "difference" });
  for (const [sign, text] of compared(before, after)) {
    view.append(sign === "" ? text : make(sign === "-" ? "del" : "ins", {}, text));
  }
  const legend = make("p", { class: "dim" }, make("del", {}, names[0]), " ", make("ins", {}, names[1]));
  return make("div", {}, legend, view);
}
