// Live parts are not refreshed while the tab is hidden, while rows are selected, or while a field has the focus. uPlot draws the charts again.
"use strict";
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.target;
  const isBusy = document.hidden || document.querySelector(".pick:checked") || part.contains(document.activeElement);
  if (part.classList.contains("live") && isBusy) event.preventDefault();
});
function draw(root) {
  for (const figure of root.querySelectorAll("figure.chart[data-values]")) {
    const values = JSON.parse(figure.dataset.values);
    if (values.length < 3 || !window.uPlot) continue;
    const step = Number(figure.dataset.step) / 1000;
    const now = Date.now() / 1000;
    const times = values.map((_, at) => now - step * (values.length - 1 - at));
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim();
    const edge = style.getPropertyValue("--edge").trim();
    const axis = { stroke: ink, grid: { stroke: edge, width: 1 }, ticks: { stroke: edge, width: 1 } };
    const options = {
      width: figure.clientWidth - 30, height: 180, axes: [axis, axis], scales: { y: { range: (u, low, high) => [0, Math.max(high, 1)] } },
      series: [{}, { label: figure.dataset.label, stroke: style.getPropertyValue("--accent").trim(), width: 2 }],
    };
    figure.querySelector("svg").remove();
    const chart = new uPlot(options, [times, values], figure);
    addEventListener("resize", () => figure.isConnected && chart.setSize({ width: figure.clientWidth - 30, height: 180 }));
  }
}
document.addEventListener("DOMContentLoaded", () => draw(document));
document.addEventListener("htmx:afterSwap", () => draw(document));
