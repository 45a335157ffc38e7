// What a run was asked for in a line, as a reader would say it: labels instead of names, times in the reader's zone, and how its
// rows are grouped.

import { asChoice, choiceLabel } from "./fields.js";
import { formatInstant, t } from "./language.js";
import { shortly } from "./means.js";

/** @import {Dataset, Parameter, Run} from "./contract.js" */

const VALUES_MAX = 4; // Of one list; the rest is counted.

/** @param {Run} run @param {Dataset | null} dataset @returns {string} */
export function conditionsOf(run, dataset) {
  const given = Object.entries(run.parameters ?? {}).filter(([, value]) => value !== null && value !== undefined);
  const conditions = given.map(([name, value]) => {
    const parameter = dataset?.parameters.find((one) => one.name === name);
    return `${parameter?.label || name}: ${inWords(value, parameter)}`;
  });
  if (run.parent !== null && run.parent !== undefined) conditions.unshift(`${dataset?.parent?.label || run.parent_kind}: ${run.parent}`);
  const { group_by, subtotals, pivot } = run;
  if (group_by?.length) conditions.push(...shortly({ group_by, subtotals: subtotals ?? null, pivot: pivot ?? null }, dataset));
  return conditions.join(" · ");
}

/** @param {unknown} value @param {Parameter | undefined} parameter */
function inWords(value, parameter) {
  const values = Array.isArray(value) ? value : [value];
  const words = values.slice(0, VALUES_MAX).map((one) => word(one, parameter)).join(", ");
  const rest = values.length - VALUES_MAX;
  return rest > 0 ? t("run.and_more", { words, count: rest }) : words;
}

/** @param {unknown} value @param {Parameter | undefined} parameter @returns {string} */
function word(value, parameter) {
  if (typeof value === "boolean") return t(value ? "form.yes" : "form.no");
  if (parameter?.type === "timestamp" && typeof value === "string") return formatInstant(value);
  const choice = parameter?.choices?.map(asChoice).find((one) => one.value === value);
  return choice ? choiceLabel(choice) : String(value);
}
