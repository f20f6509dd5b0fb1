const REASONS = ["slots", "rpm", "tpm", "429", "back-off", "budget", "shared limit", "slots of all lanes"];
const ROOM = 30 + 18 + 8; // pixels of a picture that are not its plot: an axis with its label, and a margin

/** A colour of the style sheet as the canvas needs it, in the present theme. */
function colour(name) {
  const probe = make("span", { class: `c-${name}` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function axis(label, more = {}) {
  const font = "12px system-ui, sans-serif";
  return {
    label,
    labelFont: font,
    labelSize: 18,
    size: 30,
    font,
    stroke: colour("dim"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1, size: 4 },
    ...more,
  };
}

function plot(place, label, options, data) {
  const width = Math.max(240, place.clientWidth);
  const chart = new uPlot({ width, legend: { show: false }, cursor: { show: false }, ...options }, data, place);
  chart.ctx.canvas.setAttribute("role", "img");
  chart.ctx.canvas.setAttribute("aria-label", label);
  return chart;
}

function histogram(place, title, unit, values, top) {
  const count = 40;
  const bins = new Array(count).fill(0);
  for (const value of values) bins[Math.min(count - 1, Math.floor((value / top) * count))]++;
  const sorted = Float64Array.from(values).sort();
  const at = (share) => shortNumber(sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]);
  const told = `${values.length} rows, median ${at(0.5)} ${unit}, p95 ${at(0.95)} ${unit}`;
  place.append(make("h3", {}, title), make("p", { class: "dim" }, told));
  const options = {
    height: 120 + ROOM,
    padding: [8, 8, 0, 0],
    scales: { x: { time: false, range: [0, top] }, y: { range: (_, __, high) => [0, Math.max(1, high)] } },
    axes: [axis(unit), axis("rows", { size: 48, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5] })],
    series: [
      {},
      {
        stroke: colour("accent"),
        fill: colour("accent-soft"),
        width: 1,
        paths: uPlot.paths.bars({ size: [1, Infinity], align: 1 }),
        points: { show: false },
      },
    ],
  };
  const starts = bins.map((_, place) => (place * top) / count);
  plot(place, `${title}: ${told}`, options, [starts, bins]);
}

/** Small pictures of one measure, one a column of each part, over the same axis. */
function histograms(place, heading, unit, field, parts) {
  const groups = [];
  for (const part of parts) {
    part.columns.forEach((column, number) => {
      const values = [];
      for (const row of part.rows) {
        const value = row[`c${number}`]?.[CELL[field]];
        if (typeof value === "number" && value > 0) values.push(value);
      }
      if (values.length) groups.push([`${column.provider} ${column.prompt}`, values]);
    });
  }
  if (!groups.length) return;
  const top = Math.max(1, ...groups.map(([, values]) => values.reduce((a, b) => Math.max(a, b), 0)));
  const grid = make("div", { class: "charts" });
  place.append(make("h2", {}, heading), grid);
  for (const [title, values] of groups) {
    const figure = make("figure", {});
    grid.append(figure);
    histogram(figure, title, unit, values, top);
  }
}

/** What a lane did over time: in flight below its limit, refusals as marks, waits as bands below. */
function timeline(place, lane, seconds) {
  const times = lane.buckets.map((_, number) => number * lane.bucket);
  times.push(Math.max(seconds, lane.buckets.length * lane.bucket));
  const column = (field) => [...lane.buckets.map((bucket) => bucket[field]), lane.buckets.at(-1)?.[field] ?? null];
  const reasons = [...new Set(lane.buckets.flatMap((bucket) => Object.keys(bucket[5])))];
  const shades = reasons.map((reason) => colour(`wait-${Math.max(0, REASONS.indexOf(reason)) % 8}`));
  const band = 7;
  const drawMarks = (chart) => {
    const { ctx, bbox } = chart;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.fillStyle = colour("fail");
    lane.buckets.forEach((bucket, number) => {
      const x = chart.valToPos(times[number], "x", true);
      const next = chart.valToPos(times[number + 1], "x", true);
      if (bucket[3]) {
        const middle = (x + next) / 2;
        ctx.beginPath();
        ctx.moveTo(middle - 4 * ratio, bbox.top);
        ctx.lineTo(middle + 4 * ratio, bbox.top);
        ctx.lineTo(middle, bbox.top + 8 * ratio);
        ctx.fill();
      }
    });
    reasons.forEach((reason, line) => {
      ctx.fillStyle = shades[line];
      lane.buckets.forEach((bucket, number) => {
        const share = Math.min(1, (bucket[5][reason] ?? 0) / lane.bucket);
        if (!share) return;
        const x = chart.valToPos(times[number], "x", true);
        const next = chart.valToPos(times[number + 1], "x", true);
        ctx.globalAlpha = 0.25 + 0.75 * share;
        const y = bbox.top + bbox.height - (line + 1) * band * ratio;
        ctx.fillRect(x, y, Math.max(1, next - x), (band - 1) * ratio);
      });
    });
    ctx.restore();
  };
  const room = reasons.length * band + 2;
  const steps = uPlot.paths.stepped({ align: 1 });
  const options = {
    height: 110 + room + ROOM,
    padding: [8, 8, 0, 0],
    scales: {
      x: { time: false },
      y: {
        range: (_, low, high) => {
          const top = Math.max(1, high) * 1.15;
          return [-(top * room) / 110, top];
        },
      },
    },
    axes: [
      axis("seconds"),
      axis("calls in flight", { size: 48, filter: (_, splits) => splits.map((one) => (one < 0 || one % 1 ? null : one)) }),
    ],
    series: [
      {},
      { stroke: colour("accent"), fill: colour("accent-soft"), width: 1.5, paths: steps, points: { show: false } },
      { stroke: colour("dim"), dash: [4, 3], width: 1.5, paths: steps, points: { show: false } },
    ],
    hooks: { draw: [drawMarks] },
  };
  plot(place, `${lane.name}: ${lane.told}`, options, [times, column(0), column(1)]);
  const key = make("p", { class: "key" }, make("span", { class: "k line" }, "in flight"), make("span", { class: "k dash" }, "limit"));
  if (lane.buckets.some((bucket) => bucket[3])) key.append(make("span", { class: "k mark" }, "refused (429)"));
  reasons.forEach((reason) => {
    const shade = Math.max(0, REASONS.indexOf(reason)) % 8;
    key.append(make("span", { class: `k band w-${shade}` }, `waited: ${reason}`));
  });
  place.append(key);
}

function drawLanes(place) {
  page.lanes.forEach((execution, number) => {
    if (page.lanes.length > 1) place.append(make("h2", {}, `Execution ${number + 1}`));
    for (const lane of execution.lanes) {
      const figure = make("figure", {}, make("h3", {}, lane.name), make("p", { class: "dim" }, lane.told));
      place.append(figure);
      timeline(figure, lane, execution.seconds);
    }
  });
}
