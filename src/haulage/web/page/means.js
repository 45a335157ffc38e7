// What a grouping means, said in words: as sentences below the form, and as a line on the card of a run.

import { formatList, t } from "./language.js";

/** @import {Dataset} from "./contract.js" */

/**
 * @typedef {object} Grouping
 * @property {string[]} group_by
 * @property {string | string[][] | null} [subtotals]
 * @property {string[] | null} [pivot]
 */

/** @param {Dataset | null} dataset @returns {(name: string) => string} */
function labeller(dataset) {
  return (name) => dataset?.dimensions?.find((one) => one.name === name)?.label || name;
}

/** A level by the names that stay; without any it is the grand total. @param {string[]} level @param {Dataset | null} dataset */
export function levelWords(level, dataset) {
  return level.length ? t("level.of", { names: formatList(level.map(labeller(dataset))) }) : t("level.total");
}

/** @param {Grouping} grouping @param {Dataset | null} dataset @returns {string} */
export function sentences({ group_by, subtotals, pivot }, dataset) {
  const label = labeller(dataset);
  const across = pivot ?? [];
  const down = group_by.filter((name) => !across.includes(name));
  const said = [rowsSaid(down.map(label))];
  if (across.length) said.push(t("means.across", { names: formatList(across.map(label)) }));
  if (subtotals) said.push(subtotalsSaid(down, across, subtotals, dataset));
  return said.join(t("means.joint"));
}

/** @param {string[]} down */
function rowsSaid(down) {
  if (down.length === 0) return t("means.one_row");
  return t(down.length === 1 ? "means.rows_of_one" : "means.rows_of_many", { names: formatList(down) });
}

/** @param {string[]} down @param {string[]} across @param {string | string[][]} subtotals @param {Dataset | null} dataset */
function subtotalsSaid(down, across, subtotals, dataset) {
  if (typeof subtotals !== "string") return t("means.levels", { levels: formatList(subtotals.map((level) => levelWords(level, dataset))) });
  if (subtotals === "cube") return t("means.cube");
  const crossed = across.length ? "_across" : "";
  if (subtotals === "total" || down.length < 2) return t(`means.total${crossed}`);
  const prefixes = down.slice(1).map((_, index) => levelWords(down.slice(0, down.length - 1 - index), dataset));
  return t(`means.rollup${crossed}`, { levels: formatList(prefixes) });
}

/** The same in short, as a card says it. @param {Grouping} grouping @param {Dataset | null} dataset */
export function shortly({ group_by, subtotals, pivot }, dataset) {
  const label = labeller(dataset);
  const said = [t("run.group_by", { names: group_by.map(label).join(", ") })];
  if (pivot?.length) said.push(t("run.across", { names: pivot.map(label).join(", ") }));
  if (typeof subtotals === "string") said.push(t("run.subtotals", { what: t(`subtotals.${subtotals}`) }));
  else if (subtotals) said.push(t("run.subtotals", { what: subtotals.map((level) => levelWords(level, dataset)).join("; ") }));
  return said;
}
