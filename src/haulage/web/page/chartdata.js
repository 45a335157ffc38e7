// What a chart draws of a grouped answer: bars for the values of one dimension, and of a second one as series. Numbers are only placed
// by their binary value; what is said of them is the server's own text.

import { t } from "./language.js";
import { isNumeric, textOf } from "./table.js";

/** @import {MeasureOf, PreviewOf} from "./contract.js" */

const SERIES_MAX = 8; // That colours tell apart.
const BAR_MAX = 1e300; // Beyond it, sums of bars would be no numbers of JavaScript.
const ALWAYS_NUMBERS = ["count", "count_distinct", "sum", "avg"];
const QUOTED = /^(NULL|“”)$|^\s|\s$/; // A text that would be taken for something else, or not be seen.

/** @typedef {{value: number | null, text: string}} Bar Without a value nothing is drawn, and the text says why. */
/** @typedef {{label: string, bars: Bar[], rest: boolean}} Series One bar a category. */
/** @typedef {{categories: string[], series: Series[], stacked: boolean, hidden: number, cut: boolean}} Drawn */

/** Of which measures bars can be drawn. @param {PreviewOf} answer @param {MeasureOf[]} measures @returns {number[]} Their columns. */
export function drawable({ columns, rows, grouped }, measures) {
  const first = (grouped?.marks ?? 0) + (grouped?.dimensions ?? 0);
  const sure = new Set(measures.filter((one) => ALWAYS_NUMBERS.includes(one.function)).map(({ name }) => name));
  return columns.flatMap((column, index) => {
    const numbers = column.type === null && (sure.has(column.key) || rows.some((row) => typeof row[index] === "number"));
    return index >= first && (isNumeric(column) || numbers) ? [index] : [];
  });
}

/**
 * @param {PreviewOf} answer Regular rows only, in the order of their dimensions.
 * @param {number} column Of the measure.
 * @param {boolean} additive Bars of it may stand on one another.
 * @returns {Drawn}
 */
export function drawnOf(answer, column, additive) {
  const first = answer.grouped?.marks ?? 0;
  const two = (answer.grouped?.dimensions ?? 0) > 1;
  const last = answer.rows.at(-1)?.[first];
  const whole = answer.rows.filter((row) => row[first] !== last); // Of the last category, groups may be missing.
  const cut = two && answer.more && whole.length > 0;
  const rows = cut ? whole : answer.rows;
  const [down, across] = two ? sides(rows, first, answer.more) : [first, -1];
  const inOwnOrder = (/** @type {number} */ column) => valuesOf(answer, rows, column, column === first);
  const categories = inOwnOrder(down);
  const keys = two ? inOwnOrder(across) : [undefined];
  const places = new Map(categories.map((key, index) => [asKey(key), index]));
  const series = keys.map((key) => {
    const bars = /** @type {Bar[]} */ (categories.map(() => ({ value: null, text: "" })));
    for (const row of rows) {
      if (two && asKey(row[across]) !== asKey(key)) continue;
      bars[places.get(asKey(row[down])) ?? 0] = barOf(row[column]);
    }
    return { label: two ? labelOf(key) : (answer.columns[column]?.header ?? ""), bars, rest: false };
  });
  const negative = series.some(({ bars }) => bars.some(({ value }) => value !== null && value < 0));
  const stacked = two && additive && !negative;
  const hidden = stacked ? 0 : Math.max(0, series.length - SERIES_MAX);
  return { categories: categories.map(labelOf), series: fewer(series, stacked), stacked, hidden, cut };
}

/**
 * Which dimension goes down and which is the series: the second one, unless colours can tell only the values of the first apart.
 * @param {unknown[][]} rows @param {number} first @param {boolean} more
 * @returns {[number, number]}
 */
function sides(rows, first, more) {
  const [one, other] = [first, first + 1].map((column) => distinct(rows.map((row) => row[column])).length);
  const turned = !more && (other ?? 0) > SERIES_MAX && (one ?? 0) <= SERIES_MAX;
  return turned ? [first + 1, first] : [first, first + 1];
}

/** Colours tell few series apart: of sums the small ones are added up, of others the first are drawn. @param {Series[]} series @param {boolean} stacked */
function fewer(series, stacked) {
  if (series.length <= SERIES_MAX) return series;
  if (!stacked) return series.slice(0, SERIES_MAX);
  const size = (/** @type {Series} */ { bars }) => bars.reduce((sum, { value }) => sum + (value ?? 0), 0);
  const large = new Set([...series].sort((one, other) => size(other) - size(one)).slice(0, SERIES_MAX - 1));
  const small = series.filter((one) => !large.has(one));
  const bars = (small[0]?.bars ?? []).map((_, index) => {
    const values = small.map((one) => one.bars[index]?.value ?? null).filter((value) => value !== null);
    const sum = values.length ? values.reduce((total, value) => total + value, 0) : null;
    return { value: sum, text: sum === null ? "" : String(Number(sum.toPrecision(12))) };
  });
  return [...series.filter((one) => large.has(one)), { label: t("chart.others", { count: small.length }), bars, rest: true }];
}

/** @param {unknown} cell @returns {Bar} */
function barOf(cell) {
  if (cell === null) return { value: null, text: "NULL" };
  const value = typeof cell === "number" ? cell : Number(cell);
  return { value: Math.abs(value) < BAR_MAX ? value : null, text: textOf(cell) };
}

/** @param {unknown} value */
function labelOf(value) {
  if (value === null || value === undefined) return "NULL";
  if (value === "") return "“”";
  const text = textOf(value);
  return typeof value === "string" && QUOTED.test(text) ? `"${text}"` : text;
}

/** @param {unknown} value */
const asKey = (value) => JSON.stringify(value) ?? "";

/** @param {PreviewOf} answer @param {unknown[][]} rows @param {number} column @param {boolean} leads Rows are sorted by it already. */
function valuesOf({ columns }, rows, column, leads) {
  const asNumbers = isNumeric(columns[column]); // Long ones come as text.
  const values = distinct(rows.map((row) => row[column]));
  return leads ? values : values.sort((one, other) => inOrder(one, other, asNumbers));
}

/** @param {unknown[]} values @returns {unknown[]} */
const distinct = (values) => [...new Map(values.map((value) => [asKey(value), value])).values()];

/** As the server orders values: numbers, then text, NULL last. @param {unknown} one @param {unknown} other @param {boolean} asNumbers */
function inOrder(one, other, asNumbers) {
  const rank = (/** @type {unknown} */ value) => (value === null ? 2 : typeof value === "number" ? 0 : 1);
  if (rank(one) !== rank(other)) return rank(one) - rank(other);
  if (asNumbers || (typeof one === "number" && typeof other === "number")) return Number(one) - Number(other);
  return textOf(one) < textOf(other) ? -1 : 1;
}
