// Draws the charts of lanes, and shows if the view does not respond; htmx does everything else.
"use strict";
(() => {
  const MOST = 480; // points of a chart
  const plots = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(box) {
    const data = JSON.parse(box.dataset.points).map((points) => [...points]);
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot({
      width: box.clientWidth, height: 84, legend: { show: false }, cursor: { show: false },
      padding: [6, 4, 0, 0],
      scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, Math.max(1, high || 1) * 1.1] } },
      axes: [
        { ...axis, size: 22, font: "11px system-ui", values: (_u, seconds) => seconds.map((s) => `${s} s`), grid: { show: false } },
        { ...axis, size: 30, space: 18, font: "11px system-ui", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000] },
      ],
      series: [
        {},
        { label: "in flight", stroke: colour("--accent"), fill: colour("--accent-soft"), width: 1.5, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) },
        { label: "limit", stroke: colour("--dim"), width: 1.25, dash: [4, 3], points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) },
      ],
    }, data, box);
    plots.set(box, plot);
  }

  function drawAll(again) {
    for (const [box, plot] of plots) {
      if (again || !box.isConnected) {
        if (again && box.isConnected) box.dataset.points = JSON.stringify(plot.data);
        plot.destroy();
        plots.delete(box);
      }
    }
    for (const box of document.querySelectorAll("[data-points]")) if (!plots.has(box)) draw(box);
  }

  addEventListener("points", (event) => {
    const news = JSON.parse(event.detail.data);
    for (const [box, plot] of plots) {
      const point = news.lanes[box.dataset.lane];
      const times = plot.data[0];
      if (!point || (times.length && news.t <= times[times.length - 1])) continue;
      let data = plot.data.map((points, n) => [...points, n ? point[n - 1] : news.t]);
      if (times.length >= MOST) data = data.map((points) => points.filter((_p, n) => n % 2 === 0));
      plot.setData(data);
    }
  });
  const lost = (is) => { document.getElementById("lost").hidden = !is; };
  // Leaving the page aborts requests, which is not an error.
  const fault = (event) => { if (event.detail.error?.name !== "AbortError") lost(true); };
  addEventListener("htmx:error", fault);
  addEventListener("htmx:sse:error", fault);
  addEventListener("htmx:after:request", () => lost(false));
  addEventListener("htmx:sse:after:connection", () => lost(false));
  // A refresh of the rows requests those that are shown by then.
  addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    if (ctx.sourceElement.id === "rows") ctx.request.action = ctx.sourceElement.getAttribute("hx-get");
  });
  addEventListener("htmx:after:swap", () => drawAll(false));
  addEventListener("resize", () => { for (const [box, plot] of plots) plot.setSize({ width: box.clientWidth, height: 84 }); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
  drawAll(false);
})();
