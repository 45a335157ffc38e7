// First rows as a table, as they will stand in the file: NULL is not '', and what is added up is marked, to be seen and heard.

import { el, setAttribute } from "./dom.js";
import { isSaid, t } from "./language.js";

/** @import {Column, PreviewOf} from "./contract.js" */

const SHOWN_MAX = 160; // Characters of a cell; the rest is in its title.
const NUMBERS = ["integer", "decimal", "float"];

/** @param {Column | undefined} column */
export const isNumeric = (column) => NUMBERS.includes(column?.type ?? "");

/** @param {Pick<PreviewOf, "columns" | "rows" | "grouped">} answer @param {string} name Said of the table. */
export function resultTable({ columns, rows, grouped }, name) {
  const marks = grouped?.marks ?? 0;
  const dimensions = grouped?.dimensions ?? 0;
  const heads = columns.map((column) => el("th", { scope: "col", class: isNumeric(column) ? "number" : "" }, column.header));
  const body = rows.map((row) => {
    const kind = marks ? String(row[0]) : "regular";
    const level = marks > 1 && kind !== "regular" ? new Set(String(row[1]).split(",")) : null;
    const cells = row.map((value, index) => {
      const column = columns[index];
      const ofDimension = index >= marks && index < marks + dimensions;
      if (level && ofDimension && column && !level.has(column.key)) return el("td", {}, quiet(t("preview.all")));
      if (index < marks && value === "") return el("td"); // The level of the grand total: it has no dimension.
      const cell = cellOf(value, isNumeric(column));
      if (index === 0 && marks && kind !== "regular") cell.append(...inOtherWords(kind));
      return cell;
    });
    return el("tr", { "data-kind": kind }, ...cells);
  });
  const table = el("table", { class: "result" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body));
  setAttribute(table, "aria-label", name);
  const box = el("div", { class: "result-box", tabindex: 0, role: "region" }, table); // The keyboard scrolls what has the focus.
  setAttribute(box, "aria-label", t("preview.box", { name }));
  return box;
}

/** What the file says in English, for a reader of another language. @param {string} kind */
function inOtherWords(kind) {
  const words = isSaid(`kind.${kind}`) ? t(`kind.${kind}`) : kind;
  return words === kind ? [] : [el("span", { class: "visually-hidden" }, ` (${words})`)];
}

/** @param {unknown} value @param {boolean} numeric */
function cellOf(value, numeric) {
  if (value === null) return el("td", { class: numeric ? "number" : "" }, quiet("NULL"));
  if (value === "") return el("td", {}, quiet("“”"), el("span", { class: "visually-hidden" }, t("preview.empty_text")));
  const text = textOf(value);
  const cell = el("td", { class: numeric || typeof value === "number" ? "number" : "" });
  cell.textContent = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
  if (text.length > SHOWN_MAX) setAttribute(cell, "title", text);
  return cell;
}

/** @param {unknown} value @returns {string} */
export const textOf = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));

/** @param {string} text What is no value of the data. */
const quiet = (text) => el("span", { class: "no-value" }, text);
