// Live parts are not refreshed while the tab is hidden, while rows are selected, or while a field has the focus. uPlot draws the charts again.
"use strict";
const HEIGHT = 180;
const charts = new Map(); // figure -> its chart
let refreshed = new Date();

function isBusy(part) {
  return document.hidden || document.querySelector(".pick:checked") || part.contains(document.activeElement);
}
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.classList.contains("live") && isBusy(event.target)) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  // The visitor may have begun to use the part since the request. A swap would take the focus away.
  if (event.target.classList.contains("live") && isBusy(event.target)) event.detail.shouldSwap = false;
});

// A screen reader reads #news aloud when its text changes. A part that is swapped may not do that itself: it would be read at each refresh.
function announce(text) {
  const news = document.getElementById("news");
  if (news.textContent !== text) news.textContent = text;
}
function alarmOf(root) {
  const alarm = root.querySelector(".alarm:not(#lost)");
  return alarm ? alarm.textContent : "";
}
function showLost(reason) {
  const lost = document.getElementById("lost");
  lost.textContent = `Not refreshed: ${reason}. The figures are those of ${refreshed.toLocaleTimeString()}.`;
  lost.hidden = false;
  announce(lost.textContent);
}
function showRefreshed() {
  refreshed = new Date();
  document.getElementById("lost").hidden = true;
  const part = document.querySelector(".live");
  announce(part ? alarmOf(part) : "");
}
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, () => showLost("the gateway does not answer"));
}
document.addEventListener("htmx:responseError", (event) => {
  const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
  showLost(alarmOf(page) || `status ${event.detail.xhr.status}`);
});

function width(figure) {
  return figure.clientWidth - 30;
}
function draw() {
  for (const [figure, chart] of charts) {
    if (figure.isConnected) continue;
    chart.destroy();
    charts.delete(figure);
  }
  for (const figure of document.querySelectorAll("figure.chart[data-values]")) {
    const values = JSON.parse(figure.dataset.values);
    if (charts.has(figure) || values.length < 3 || !window.uPlot) continue;
    const step = Number(figure.dataset.step) / 1000;
    const now = Date.now() / 1000;
    const times = values.map((_, at) => now - step * (values.length - 1 - at));
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim();
    const edge = style.getPropertyValue("--edge").trim();
    const axis = { stroke: ink, grid: { stroke: edge, width: 1 }, ticks: { stroke: edge, width: 1 } };
    const options = {
      width: width(figure), height: HEIGHT, axes: [axis, axis], scales: { y: { range: (u, low, high) => [0, Math.max(high, 1)] } },
      series: [{}, { label: figure.dataset.label, stroke: style.getPropertyValue("--accent").trim(), width: 2 }],
    };
    const line = figure.querySelector("svg");
    const chart = new uPlot(options, [times, values], figure);
    chart.root.setAttribute("role", "img");
    chart.root.setAttribute("aria-label", line.getAttribute("aria-label"));
    line.remove();
    charts.set(figure, chart);
  }
}
addEventListener("resize", () => charts.forEach((chart, figure) => chart.setSize({ width: width(figure), height: HEIGHT })));
document.addEventListener("DOMContentLoaded", () => {
  draw();
  showRefreshed();
});
document.addEventListener("htmx:afterSwap", () => {
  draw();
  showRefreshed();
});
