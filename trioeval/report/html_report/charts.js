const MOST_BINS = 40;
const BAND = 14; // pixels of the line of one reason of waits
const PLOT = 110; // pixels of the chart of calls in flight, above those lines

/** A colour of the style sheet as the canvas needs it, in the present theme. */
function colour(name) {
  const probe = make("span", { class: `c-${name}` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function axis(more) {
  return {
    size: 26,
    gap: 4,
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
    labelSize: 18,
    stroke: colour("dim"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1, size: 4 },
    ...more,
  };
}

function plot(place, name, options, data) {
  const width = () => Math.max(240, place.clientWidth);
  const all = { width: width(), padding: [8, 24, 0, 0], legend: { show: false }, cursor: { show: false }, ...options };
  const chart = new uPlot(all, data, place);
  chart.ctx.canvas.setAttribute("role", "img");
  chart.ctx.canvas.setAttribute("aria-label", name);
  new ResizeObserver(() => {
    if (place.clientWidth && width() !== chart.width) chart.setSize({ width: width(), height: options.height });
  }).observe(place);
}

/** The quantile of sorted values by nearest rank. */
function nearestRank(sorted, share) {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

function histogram(place, title, unit, sorted, step, count) {
  const bins = new Array(count).fill(0);
  let beyond = 0;
  for (const value of sorted) {
    const bin = Math.floor(value / step);
    if (bin < count) bins[bin]++;
    else beyond++;
  }
  const at = (share) => Math.round(nearestRank(sorted, share));
  let text = `${counted(sorted.length, "row")}, median ${at(0.5)} ${unit}, p95 ${at(0.95)} ${unit}, most ${at(1)} ${unit}`;
  if (beyond) text += `; ${beyond} beyond the picture`;
  place.append(make("h3", {}, title), make("p", { class: "dim" }, text));
  const options = {
    height: 180,
    scales: { x: { time: false, range: [0, step * count] }, y: { range: (_, __, high) => [0, Math.max(1, high)] } },
    axes: [
      axis({ label: unit }),
      axis({ label: "rows", size: 48, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5] }),
    ],
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
  plot(place, `${title}: ${text}`, options, [bins.map((_, bin) => bin * step), bins]);
}

/** Histograms of one measure, one for each column of each part, over the same axis. */
function histograms(place, heading, unit, parts, valuesOf) {
  const groups = [];
  for (const part of parts) {
    part.columns.forEach((column, number) => {
      const values = part.rows.map((row) => row[`c${number}`]).flatMap((cell) => (cell ? valuesOf(cell) : []));
      const title = [part.name, column.provider, column.prompt].filter(Boolean).join(" ");
      if (values.length) groups.push([title, Float64Array.from(values).sort()]);
    });
  }
  if (!groups.length) return;
  // A few outliers would leave no room for all others.
  const tops = groups.map(([, sorted]) => Math.min(sorted.at(-1), 2 * nearestRank(sorted, 0.99)));
  const top = Math.max(1, ...tops);
  const step = Math.ceil(top / MOST_BINS); // whole numbers, like the measure
  const grid = make("div", { class: "charts" });
  place.append(make("h2", {}, heading), grid);
  for (const [title, sorted] of groups) {
    const figure = make("figure", {});
    grid.append(figure);
    histogram(figure, title, unit, sorted, step, Math.floor(top / step) + 1);
  }
}

function drawCharts(place, parts) {
  histograms(place, "Latency", "ms", parts, (cell) => cell[CELL.ms] ?? []);
  histograms(place, "Tokens", "tokens", parts, (cell) => cell[CELL.tokens] || []);
  if (!place.hasChildNodes()) place.append(make("p", { class: "note" }, "Nothing was measured."));
}

/** A lane over time: calls in flight and the limit, refusals as marks, and a line for each reason of waits. */
function timeline(place, lane, seconds) {
  const { buckets, reasons } = lane;
  const times = [...buckets.map((_, number) => number * lane.bucket), Math.max(seconds, buckets.length * lane.bucket)];
  const column = (field) => [...buckets, buckets.at(-1)].map((bucket) => bucket?.[field] ?? null);
  const room = reasons.length * BAND + (reasons.length ? 6 : 0);
  const steps = uPlot.paths.stepped({ align: 1 });
  const options = {
    height: PLOT + room + 52,
    scales: {
      x: { time: false },
      y: {
        range: (_, __, high) => {
          const top = Math.max(1, high) * 1.15;
          return [(-top * room) / PLOT, top];
        },
      },
    },
    axes: [
      axis({ label: "seconds" }),
      axis({ size: reasons.length ? 112 : 40, filter: (_, splits) => splits.map((one) => (one < 0 || one % 1 ? null : one)) }),
    ],
    series: [
      {},
      { stroke: colour("accent"), fill: colour("accent-soft"), width: 1, paths: steps, points: { show: false } },
      { stroke: colour("text"), dash: [5, 4], width: 1.5, paths: steps, points: { show: false } },
    ],
    hooks: { draw: [(chart) => drawMarks(chart, lane, times)] },
  };
  const heights = options.axes[1];
  heights.grid.filter = heights.ticks.filter = heights.filter;
  plot(place, `${lane.name}: ${lane.text}`, options, [times, column(0), column(1)]);
  const key = [["line", "calls in flight"], ["dash", "limit"]];
  if (buckets.some((bucket) => bucket[3])) key.push(["mark", "refused (429)"]);
  if (reasons.length) key.push(["band", "waited for"]);
  place.append(make("p", { class: "key" }, ...key.map(([kind, name]) => make("span", { class: `k ${kind}` }, name))));
}

function drawMarks(chart, lane, times) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio || 1;
  const edges = times.map((at) => chart.valToPos(at, "x", true));
  const bottom = bbox.top + bbox.height - lane.reasons.length * BAND * ratio;
  ctx.save();
  ctx.fillStyle = colour("fail");
  lane.buckets.forEach((bucket, number) => {
    if (!bucket[3]) return;
    const middle = (edges[number] + edges[number + 1]) / 2;
    ctx.beginPath();
    ctx.moveTo(middle - 4 * ratio, bbox.top);
    ctx.lineTo(middle + 4 * ratio, bbox.top);
    ctx.lineTo(middle, bbox.top + 8 * ratio);
    ctx.fill();
  });
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const [dim, wait] = [colour("dim"), colour("wait")];
  lane.reasons.forEach((reason, line) => {
    const end = bottom + (line + 1) * BAND * ratio;
    ctx.fillStyle = dim;
    ctx.fillText(reason, bbox.left - 8 * ratio, end - (BAND / 2) * ratio);
    ctx.fillStyle = wait;
    lane.buckets.forEach((bucket, number) => {
      const share = Math.min(1, (bucket[5][reason] ?? 0) / lane.bucket);
      const height = share && Math.max(2, share * (BAND - 3)) * ratio;
      ctx.fillRect(edges[number], end - height, Math.max(1, edges[number + 1] - edges[number]), height);
    });
  });
  ctx.restore();
}

function drawLanes(place) {
  page.lanes.forEach((execution, number) => {
    if (page.lanes.length > 1) place.append(make("h2", {}, `Execution ${number + 1}`));
    for (const lane of execution.lanes) {
      const figure = make("figure", {}, make("h3", { title: lane.key }, lane.name), make("p", { class: "dim" }, lane.text));
      place.append(figure);
      timeline(figure, lane, execution.seconds);
    }
  });
}
