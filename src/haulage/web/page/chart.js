// Groups as horizontal bars, drawn here: one bar a value of the first dimension, and of a second one a series, stacked where sums
// may be. A picture says less than a table, so the values stand below it as one.

import { drawable, drawnOf } from "./chartdata.js";
import { arrange, el, put, say, setAttribute } from "./dom.js";
import { formatList, formatShort, t } from "./language.js";
import { resultTable } from "./table.js";

/** @import {Wish} from "./asking.js" */
/** @import {Drawn} from "./chartdata.js" */
/** @import {Dataset, PreviewOf} from "./contract.js" */

const ADDITIVE = ["count", "sum"];
const BAR = 16; // Pixels, as everything here.
const THIN = 10; // One of several bars of a category.
const GAP = 8;
const AXIS = 20;
const LABEL_MAX = 180;
const LABEL_SHARE = 0.38; // Of the width.
const LEAST_SPAN = 1e-300; // Less cannot be divided into ticks.
const TICK = 72; // Room for the words of one.

/** The dimensions that are drawn: the first that goes down, and the first across or the second. @param {Wish} wish @returns {string[]} */
export function dimensionsDrawn({ group_by = [], pivot = [] }) {
  const down = group_by.filter((name) => !pivot.includes(name));
  return [...down, ...pivot].length > 1 && pivot.length && down.length ? [down[0] ?? "", pivot[0] ?? ""] : group_by.slice(0, 2);
}

/** What the server is asked for: these dimensions alone, so that every bar is its own sum. @param {Wish} wish @returns {Wish} */
export function chartWish(wish) {
  const { parameters, columns } = wish;
  return { parameters, group_by: dimensionsDrawn(wish), ...(columns ? { columns } : {}) };
}

export class Chart {
  /** @type {{answer: PreviewOf, wish: Wish, dataset: Dataset} | null} */
  #shown = null;
  /** @type {string | null} The measure that the reader chose. */
  #wanted = null;
  #width = 0;
  #measure = el("select", { class: "input" });
  #measureField;
  #title = el("p", { class: "chart-title" });
  #legend = el("ul", { class: "legend" });
  #canvas = el("div", { class: "chart-canvas", tabindex: 0, role: "region" });
  #notes = el("div", { class: "chart-notes" });
  #values = el("details", { class: "more" });
  #table = el("div");
  #watch = new ResizeObserver(([entry]) => this.#resized(entry?.contentRect.width ?? 0));

  /** @param {string} id */
  constructor(id) {
    setAttribute(this.#measure, "id", `${id}-measure`);
    const label = say(el("label", { class: "label", for: this.#measure.id }), "chart.measure");
    this.#measureField = el("div", { class: "field" }, label, this.#measure);
    this.#measure.addEventListener("change", () => {
      this.#wanted = this.#measure.value;
      this.#draw();
    });
    this.#values.append(say(el("summary"), "chart.values"), this.#table);
    this.node = el("div", { class: "chart" }, this.#measureField, this.#title, this.#legend, this.#canvas, this.#notes, this.#values);
    this.#watch.observe(this.#canvas);
  }

  /** @param {PreviewOf} answer @param {Wish} wish @param {Dataset} dataset */
  show(answer, wish, dataset) {
    this.#shown = { answer, wish, dataset };
    const keys = drawable(answer, dataset.measures).map((index) => answer.columns[index]?.key ?? "");
    const options = keys.map((key) => el("option", { value: key }, measureOf(dataset, key)?.label ?? key));
    this.#measure.replaceChildren(...options);
    this.#measure.value = this.#wanted !== null && keys.includes(this.#wanted) ? this.#wanted : (keys[0] ?? "");
    this.#measureField.hidden = keys.length < 2;
    arrange(this.#table, answer.rows.length ? [resultTable(answer, t("chart.values"))] : []);
    this.#draw();
  }

  end() {
    this.#watch.disconnect();
  }

  /** @param {number} width */
  #resized(width) {
    if (Math.round(width) === this.#width) return;
    this.#width = Math.round(width);
    this.#draw();
  }

  #draw() {
    if (!this.#shown) return;
    const { answer, wish, dataset } = this.#shown;
    const column = answer.columns.findIndex(({ key }, index) => key === this.#measure.value && drawable(answer, dataset.measures).includes(index));
    const empty = answer.rows.length === 0;
    const possible = column >= 0 && !empty;
    for (const part of [this.#title, this.#legend, this.#canvas]) part.hidden = !possible;
    this.#values.hidden = empty;
    if (!possible) return arrange(this.#notes, empty ? [] : [el("p", { class: "hint" }, t("chart.no_numbers"))]);
    const measure = measureOf(dataset, this.#measure.value);
    const drawn = drawnOf(answer, column, ADDITIVE.includes(measure?.function ?? ""));
    const names = dimensionsDrawn(wish).map((name) => dataset.dimensions.find((one) => one.name === name)?.label ?? name);
    const title = t("chart.title", { measure: measure?.label ?? "", names: formatList(names) });
    put(this.#title, title);
    setAttribute(this.#canvas, "aria-label", title);
    arrange(this.#legend, names.length > 1 ? drawn.series.map(({ label, rest }, index) => keyOf(label, colourOf(index, rest))) : []);
    this.#legend.hidden = names.length < 2;
    arrange(this.#notes, notesOf(drawn, answer, wish, dataset).map((text) => el("p", { class: "hint" }, text)));
    const style = getComputedStyle(this.#canvas);
    const picture = this.#width > 0 ? [pictureOf(drawn, this.#width, fitter(`${style.fontSize} ${style.fontFamily}`), `${title}. ${summary(drawn)}`)] : [];
    arrange(this.#canvas, picture);
  }
}

/** @param {Dataset} dataset @param {string} name */
const measureOf = (dataset, name) => dataset.measures.find((one) => one.name === name);

/** @param {number} index @param {boolean} rest */
const colourOf = (index, rest) => (rest ? "series-rest" : `series-${index}`);

/** @param {string} label @param {string} colour */
const keyOf = (label, colour) => el("li", {}, el("span", { class: `swatch ${colour}` }), el("span", {}, label));

/** What the picture leaves out. @param {Drawn} drawn @param {PreviewOf} answer @param {Wish} wish @param {Dataset} dataset */
function notesOf(drawn, answer, wish, dataset) {
  const names = dimensionsDrawn(wish);
  const label = (/** @type {string} */ name) => dataset.dimensions.find((one) => one.name === name)?.label ?? name;
  const others = (wish.group_by ?? []).filter((name) => !names.includes(name));
  const bars = drawn.series.flatMap((series) => series.bars);
  const missing = bars.filter(({ value, text }) => value === null && text !== "").length;
  const said = [];
  if (others.length) said.push(t("chart.not_drawn", { names: formatList(others.map(label)) }));
  if (answer.more) said.push(t("chart.cut", { count: drawn.cut ? drawn.categories.length : answer.rows.length, name: label(names[0] ?? "") }));
  if (drawn.hidden) said.push(t("chart.hidden", { shown: drawn.series.length, count: drawn.series.length + drawn.hidden, name: label(names[1] ?? "") }));
  if (missing) said.push(t("chart.no_value", { count: missing }));
  return said;
}

/** For who does not see it: how many bars, and the longest and shortest of them. @param {Drawn} drawn */
function summary({ categories, series }) {
  const all = series.flatMap(({ label, bars }) => {
    return bars.map(({ value, text }, index) => ({ value, text, name: series.length > 1 ? `${categories[index]}, ${label}` : `${categories[index]}` }));
  });
  const bars = all.filter(({ value }) => value !== null).sort((one, other) => (one.value ?? 0) - (other.value ?? 0));
  const [least, most] = [bars[0], bars.at(-1)];
  if (!least || !most) return t("chart.no_bars");
  return t("chart.summary", { count: bars.length, most: `${most.name} ${most.text}`, least: `${least.name} ${least.text}` });
}

/** Cuts a text to a width, as the font has it. @param {string} font @returns {{width: (text: string) => number, fit: (text: string, room: number) => string}} */
function fitter(font) {
  const context = document.createElement("canvas").getContext("2d");
  if (context) context.font = font;
  const width = (/** @type {string} */ text) => context?.measureText(text).width ?? text.length * 8;
  const fit = (/** @type {string} */ text, /** @type {number} */ room) => {
    if (width(text) <= room) return text;
    const letters = [...text];
    while (letters.length > 1 && width(`${letters.join("")}…`) > room) letters.pop();
    return `${letters.join("")}…`;
  };
  return { width, fit };
}

/** @param {Drawn} drawn @param {number} width @param {ReturnType<typeof fitter>} letters @param {string} description */
function pictureOf({ categories, series, stacked }, width, letters, description) {
  const together = stacked || series.length === 1;
  const single = series.length === 1;
  const room = Math.min(LABEL_MAX, width * LABEL_SHARE, Math.max(...categories.map(letters.width)) + 1);
  const values = single ? (series[0]?.bars ?? []).map(({ value, text }) => (value === null ? letters.fit(text, TICK) : formatShort(value))) : [];
  const ticks = ticksOf(...rangeOf(series, stacked), Math.max(2, Math.floor((width - room) / TICK) - 1));
  const halves = ticks.map((tick) => letters.width(formatShort(tick)) / 2); // Of the first and the last one, half stands outside.
  const from = Math.max(room + GAP, (halves[0] ?? 0) + 1);
  const to = width - Math.max((halves.at(-1) ?? 0) + 1, ...values.map((text) => letters.width(text) + GAP));
  const [low, high] = [ticks[0] ?? 0, ticks.at(-1) ?? 1];
  const x = (/** @type {number} */ value) => from + ((value - low) / (high - low)) * (to - from);
  const band = (together ? BAR : THIN * series.length) + GAP;
  const height = AXIS + band * categories.length;
  const drawing = svg("svg", { class: "picture", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": description });
  for (const tick of ticks) {
    drawing.append(svg("line", { class: tick === 0 ? "zero" : "grid", x1: x(tick), x2: x(tick), y1: AXIS - 4, y2: height }));
    drawing.append(words(formatShort(tick), x(tick), AXIS - 8, "tick", "middle"));
  }
  categories.forEach((category, place) => {
    const top = AXIS + place * band + GAP / 2;
    const label = words(letters.fit(category, room), room, top + (band - GAP) / 2, "category", "end");
    label.append(svg("title", {}, category));
    drawing.append(label);
    let reached = 0;
    series.forEach(({ label: of, bars, rest }, index) => {
      const bar = bars[place];
      if (!bar) return;
      const y = together ? top : top + index * THIN;
      const tall = together ? BAR : THIN - 1;
      if (single) drawing.append(words(values[place] ?? "", x(Math.max(0, bar.value ?? 0)) + 5, y + tall / 2, "value", "start"));
      if (bar.value === null) return;
      const [start, end] = stacked ? [reached, reached + bar.value] : [0, bar.value];
      if (stacked) reached = end;
      const [left, right] = [x(Math.min(start, end)), x(Math.max(start, end))];
      const rect = svg("rect", { class: `bar ${colourOf(index, rest)}`, x: left, y, width: Math.max(right - left, 0.5), height: tall });
      rect.append(svg("title", {}, single ? `${category}: ${bar.text}` : `${category}, ${of}: ${bar.text}`));
      drawing.append(rect);
    });
  });
  return drawing;
}

/** @param {Drawn["series"]} series @param {boolean} stacked @returns {[number, number]} */
function rangeOf(series, stacked) {
  const values = series.map(({ bars }) => bars.map(({ value }) => value ?? 0));
  const sums = stacked ? (values[0] ?? []).map((_, index) => values.reduce((sum, bars) => sum + (bars[index] ?? 0), 0)) : values.flat();
  return [Math.min(0, ...sums), Math.max(0, ...sums)];
}

/** Round numbers from below the least to above the most. @param {number} least @param {number} most @param {number} count */
function ticksOf(least, most, count) {
  const span = most - least > LEAST_SPAN ? most - least : 1;
  const size = 10 ** Math.floor(Math.log10(span / count));
  const step = size * ([1, 2, 2.5, 3, 4, 5, 6, 8, 10].find((one) => span / (size * one) <= count) ?? 10);
  const [first, last] = [Math.floor(least / step), Math.ceil(most / step) || (least < 0 ? 0 : 1)];
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] @returns {SVGElement} */
function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, typeof value === "number" ? Number(value.toFixed(2)) : value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** @param {string} text @param {number} x @param {number} y @param {string} style @param {"start" | "middle" | "end"} anchor */
function words(text, x, y, style, anchor) {
  return svg("text", { class: style, x, y, "text-anchor": anchor, "dominant-baseline": "central" }, text);
}
