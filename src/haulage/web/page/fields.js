// One parameter of a dataset as a field: the right control for its type, its label, its errors, its value as JSON.
// A control reads as undefined when it is empty, and throws InvalidValue when what stands in it cannot be meant.

import { el, put, say, setAttribute } from "./dom.js";
import { zoneName } from "./language.js";

/** @import {Choice, Parameter} from "./contract.js" */

export class InvalidValue extends Error {}

/**
 * @typedef {object} Control
 * @property {HTMLElement} node What stands in the field.
 * @property {HTMLElement} target What takes the focus and the error.
 * @property {boolean} group Several inputs, so that the field is a fieldset.
 * @property {() => unknown} read
 * @property {(value: unknown) => void} fill
 */

/** @param {string} text A number as typed, full-width digits of a Japanese keyboard included. */
const halfWidth = (text) => text.normalize("NFKC").trim();

/** Numbers that JavaScript would round travel as the text they were typed as. @param {string} text */
function parseInteger(text) {
  const digits = halfWidth(text);
  if (!/^[+-]?\d+$/.test(digits)) throw new InvalidValue("invalid.integer");
  return Number.isSafeInteger(Number(digits)) ? Number(digits) : digits;
}

/** @param {string} text @returns {string} The digits themselves; a binary float would change some. */
function parseDecimal(text) {
  const digits = halfWidth(text);
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)$/.test(digits)) throw new InvalidValue("invalid.decimal");
  return digits;
}

/** @param {string} text */
function parseDate(text) {
  const date = halfWidth(text);
  if (!/^\d{4}-\d{2}-\d{2}$/.test(date) || Number.isNaN(Date.parse(date))) throw new InvalidValue("invalid.date");
  return date;
}

/** A local date and time becomes an instant, which means the same to everybody. @param {string} text */
function parseTimestamp(text) {
  const instant = new Date(halfWidth(text));
  if (Number.isNaN(instant.getTime())) throw new InvalidValue("invalid.timestamp");
  return instant.toISOString();
}

/** @param {unknown} value An instant. @returns {string} As an input of the reader's zone takes it. */
function localTimestamp(value) {
  const instant = new Date(String(value));
  if (Number.isNaN(instant.getTime())) return String(value);
  const local = new Date(instant.getTime() - instant.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, instant.getSeconds() || instant.getMilliseconds() ? 19 : 16);
}

const asText = (/** @type {unknown} */ value) => String(value);
const LINES = /** @type {Record<string, {input: Record<string, string>, parse: (text: string) => unknown, write: (value: unknown) => string}>} */ ({
  text: { input: { type: "text" }, parse: (text) => text, write: asText },
  integer: { input: { type: "text", inputmode: "numeric" }, parse: parseInteger, write: asText },
  decimal: { input: { type: "text", inputmode: "decimal" }, parse: parseDecimal, write: asText },
  date: { input: { type: "date", max: "9999-12-31" }, parse: parseDate, write: asText },
  timestamp: { input: { type: "datetime-local", step: "1", max: "9999-12-31T23:59:59" }, parse: parseTimestamp, write: localTimestamp },
});

/** @param {Parameter} parameter @param {string} id @returns {Control} */
function lineControl(parameter, id) {
  const { input, parse, write } = LINES[parameter.type] ?? /** @type {typeof LINES[string]} */ (LINES["text"]);
  const node = el("input", { id, class: "input", autocomplete: "off", ...input });
  return {
    node,
    target: node,
    group: false,
    read: () => {
      if (node.validity.badInput) throw new InvalidValue(`invalid.${parameter.type}`); // Half a date.
      return node.value === "" ? undefined : parse(node.value);
    },
    fill: (value) => (node.value = value === null || value === undefined ? "" : write(value)),
  };
}

/** @param {Parameter} parameter @param {string} id @returns {Control} */
function linesControl(parameter, id) {
  const { parse, write } = LINES[parameter.type] ?? /** @type {typeof LINES[string]} */ (LINES["text"]);
  const node = el("textarea", { id, class: "input", rows: 3, autocomplete: "off", spellcheck: "false" });
  return {
    node,
    target: node,
    group: false,
    read: () => {
      const lines = node.value.split("\n").filter((line) => line.trim() !== "");
      return lines.length ? lines.map((line) => parse(line)) : undefined;
    },
    fill: (value) => (node.value = (Array.isArray(value) ? value : []).map(write).join("\n")),
  };
}

/** Nothing given means the default, so a parameter that has one is never "not set". @param {Parameter} parameter */
const hasDefault = (parameter) => parameter.default !== null && parameter.default !== undefined;

/** @param {Choice | string} choice @returns {Choice} */
export function asChoice(choice) {
  return typeof choice === "object" && choice !== null ? choice : { value: choice };
}

/** @param {Choice} choice */
export const choiceLabel = (choice) => choice.label || String(choice.value);

/** @param {Parameter} parameter @param {string} id @returns {Control} */
function selectControl(parameter, id) {
  const choices = (parameter.choices ?? []).map(asChoice);
  const node = el("select", { id, class: "input" });
  if (!hasDefault(parameter)) node.append(say(el("option", { value: "" }), "form.not_set"));
  choices.forEach((choice, index) => node.append(el("option", { value: `${index}` }, choiceLabel(choice))));
  return {
    node,
    target: node,
    group: false,
    read: () => (node.value === "" ? undefined : choices[Number(node.value)]?.value),
    fill: (value) => {
      const index = choices.findIndex((choice) => choice.value === value);
      node.value = index < 0 ? "" : `${index}`;
    },
  };
}

/** @param {Parameter} parameter @param {string} id @returns {Control} */
function checkboxesControl(parameter, id) {
  const choices = (parameter.choices ?? []).map(asChoice);
  const boxes = choices.map((_, index) => el("input", { type: "checkbox", id: `${id}-${index}` }));
  const node = el("div", { class: "checks", id });
  boxes.forEach((box, index) => {
    const choice = /** @type {Choice} */ (choices[index]);
    node.append(el("label", { class: "check" }, box, el("span", {}, choiceLabel(choice))));
  });
  return {
    node,
    target: boxes[0] ?? node,
    group: true,
    read: () => {
      const chosen = choices.filter((_, index) => boxes[index]?.checked).map((choice) => choice.value);
      return chosen.length ? chosen : undefined;
    },
    fill: (value) => {
      const chosen = Array.isArray(value) ? value : [];
      boxes.forEach((box, index) => (box.checked = chosen.includes(choices[index]?.value)));
    },
  };
}

/** Yes, no, and where it may be left open a third way; a checkbox could not say "not set". @param {Parameter} parameter @param {string} id @returns {Control} */
function booleanControl(parameter, id) {
  const node = el("select", { id, class: "input" });
  if (!hasDefault(parameter)) node.append(say(el("option", { value: "" }), "form.not_set"));
  node.append(say(el("option", { value: "true" }), "form.yes"), say(el("option", { value: "false" }), "form.no"));
  return {
    node,
    target: node,
    group: false,
    read: () => (node.value === "" ? undefined : node.value === "true"),
    fill: (value) => (node.value = value === null || value === undefined ? "" : String(value)),
  };
}

/** @param {Parameter} parameter @param {string} id @returns {Control} */
function controlFor(parameter, id) {
  if (parameter.choices) return parameter.list ? checkboxesControl(parameter, id) : selectControl(parameter, id);
  if (parameter.list) return linesControl(parameter, id);
  return parameter.type === "boolean" ? booleanControl(parameter, id) : lineControl(parameter, id);
}

/** A labelled control with a place for its error. */
export class Field {
  #control;
  #error;

  /** @param {Parameter} parameter @param {string} id Unique within the document or shadow root. */
  constructor(parameter, id) {
    this.parameter = parameter;
    this.#control = controlFor(parameter, id);
    this.#error = el("p", { class: "field-error", id: `${id}-error`, hidden: true });
    this.node = this.#build(id);
    this.fill(parameter.default);
  }

  /** @param {string} id */
  #build(id) {
    const { group, node, target } = this.#control;
    const name = this.parameter.label || this.parameter.name;
    const title = group ? el("legend", { class: "label" }, name) : el("label", { class: "label", for: id }, name);
    if (!this.parameter.required && !hasDefault(this.parameter)) title.append(" ", say(el("span", { class: "optional" }), "form.optional"));
    const field = el(group ? "fieldset" : "div", { class: "field" }, title, node);
    const hint = this.#hint(id);
    if (hint) field.append(hint);
    field.append(this.#error);
    setAttribute(target, "aria-describedby", [hint?.id, this.#error.id].filter(Boolean).join(" "));
    if (this.parameter.required && !group) setAttribute(target, "aria-required", "true");
    node.addEventListener("input", () => this.complain(null));
    return field;
  }

  /** @param {string} id */
  #hint(id) {
    const { type, list, choices } = this.parameter;
    const hint = el("p", { class: "hint", id: `${id}-hint` });
    if (type === "timestamp") hint.append(say(el("span"), "form.zone", { zone: zoneName() }));
    if (list && !choices) hint.append(say(el("span"), "form.per_line"));
    if (hasDefault(this.parameter) && (list || !choices) && type !== "boolean") {
      hint.append(say(el("span"), "form.left_empty", { default: this.#defaultText() }));
    }
    return hint.childNodes.length ? hint : null;
  }

  /** The value as JSON; undefined where nothing is given, which is the server's default. @throws {InvalidValue} */
  read() {
    const value = this.#control.read();
    if (value === undefined && this.parameter.required) throw new InvalidValue("invalid.required");
    return value;
  }

  #defaultText() {
    const values = [this.parameter.default].flat().map((value) => {
      return choiceLabel((this.parameter.choices ?? []).map(asChoice).find((choice) => choice.value === value) ?? { value });
    });
    return values.join(", ");
  }

  /** @param {unknown} value */
  fill(value) {
    this.#control.fill(value);
  }

  /** @param {string | null} key One of our texts. @param {string} [detail] The server's words instead. */
  complain(key, detail) {
    const wrong = key !== null || Boolean(detail);
    this.#error.hidden = !wrong;
    if (detail) put(this.#error, detail);
    else if (key) say(this.#error, key);
    setAttribute(this.#control.target, "aria-invalid", wrong ? "true" : null);
  }

  focus() {
    this.#control.target.focus();
  }
}
