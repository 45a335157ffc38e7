// What the file is to be: its format with the options of that format alone, and which columns it has.

import { arrange, el, put, say, setAttribute } from "./dom.js";
import { asChoice, choiceLabel } from "./fields.js";
import { isSaid, onLanguage, t } from "./language.js";

/** @import {Column, Choice, Format, FormatOption} from "./contract.js" */

/** @param {Choice[]} choices @param {string} id @param {(choice: Choice) => string} label */
function select(choices, id, label) {
  const node = el("select", { id, class: "input" });
  choices.forEach((choice, index) => node.append(el("option", { value: `${index}` }, label(choice))));
  return node;
}

export class FormatPicker {
  #id;
  /** @type {Format[]} */
  #formats = [];
  #cards = el("div", { class: "segments" });
  #options = el("div", { class: "fields" });
  #missing = el("p", { class: "hint" });
  #error = el("p", { class: "field-error", hidden: true });
  /** @type {{option: FormatOption, choices: Choice[], input: HTMLSelectElement}[]} Of the chosen format only. */
  #chosen = [];
  /** @type {{choices: (Choice | null)[], input: HTMLSelectElement} | null} */
  #compression = null;

  /** @param {string} id */
  constructor(id) {
    this.#id = id;
    const title = say(el("legend", { class: "group-title" }), "form.format");
    this.node = el("fieldset", { class: "group" }, title, this.#cards, this.#missing, this.#error, this.#options);
    this.#cards.addEventListener("change", () => this.#showOptions());
    this.end = onLanguage(() => this.#relabel());
  }

  /** @param {Format[]} formats */
  show(formats) {
    this.#formats = formats;
    arrange(this.#cards, formats.map((format, index) => this.#card(format, index)));
    const first = formats.find((format) => !format.missing);
    if (first) this.choose(first.name);
    this.#sayMissing();
  }

  /** @param {string} name @param {Record<string, unknown> | null} [options] @param {string | null} [compression] */
  choose(name, options, compression) {
    const index = this.#formats.findIndex((format) => format.name === name && !format.missing);
    const radio = this.#cards.querySelectorAll("input")[index];
    if (radio) radio.checked = true;
    this.#showOptions();
    for (const { option, choices, input } of this.#chosen) pick(input, choices, options?.[option.name]);
    if (this.#compression) pick(this.#compression.input, this.#compression.choices, compression);
  }

  /** @returns {{format: string, options?: Record<string, unknown>, compression?: string}} */
  read() {
    const options = Object.fromEntries(
      this.#chosen.map(({ option, choices, input }) => [option.name, choices[Number(input.value)]?.value]),
    );
    const compression = this.#compression?.choices[Number(this.#compression.input.value)]?.value;
    return {
      format: this.#format?.name ?? "",
      ...(this.#chosen.length ? { options } : {}),
      ...(compression ? { compression: String(compression) } : {}),
    };
  }

  /** @param {string} group @param {string} name @param {string} detail @returns {boolean} */
  complain(group, name, detail) {
    if (!["format", "options", "compression"].includes(group)) return false;
    put(this.#error, name ? `${name}: ${detail}` : detail);
    this.#error.hidden = false;
    return true;
  }

  get #format() {
    const index = [...this.#cards.querySelectorAll("input")].findIndex((radio) => radio.checked);
    return this.#formats[index] ?? null;
  }

  /** @param {Format} format @param {number} index */
  #card(format, index) {
    const radio = el("input", { type: "radio", name: this.#id, value: `${index}`, disabled: Boolean(format.missing) });
    return el("label", { class: "segment" }, radio, el("span", {}, format.label || format.name));
  }

  #sayMissing() {
    const missing = this.#formats.filter((format) => format.missing);
    this.#missing.hidden = missing.length === 0;
    put(this.#missing, missing.map(({ label, missing: what }) => `${label}: ${t("form.missing", { missing: what })}`).join(" "));
  }

  /** Fresh for each format: what was chosen for one must not reach the next. */
  #showOptions() {
    const format = this.#format;
    this.#error.hidden = true;
    this.#chosen = [];
    const rows = (format?.options ?? []).filter((option) => option.choices?.length).map((option, index) => this.#option(option, index));
    this.#compression = null;
    const compressions = (format?.compressions ?? []).map(asChoice).filter(({ value }) => value && value !== "none");
    if (compressions.length) rows.push(this.#compressions(compressions));
    arrange(this.#options, rows);
  }

  /** @param {FormatOption} option @param {number} index */
  #option(option, index) {
    const choices = (option.choices ?? []).map(asChoice);
    const id = `${this.#id}-o${index}`;
    const input = select(choices, id, (choice) => ours(`choice.${option.name}.${choice.value}`) ?? choiceLabel(choice));
    input.value = `${Math.max(0, choices.findIndex((choice) => choice.value === option.default))}`;
    const explanation = el("p", { class: "hint", id: `${id}-hint` });
    setAttribute(input, "aria-describedby", explanation.id);
    const explain = () => {
      const choice = choices[Number(input.value)];
      const text = ours(`explain.${option.name}.${choice?.value}`) ?? choice?.description ?? "";
      put(explanation, text);
      explanation.hidden = text === "";
    };
    input.addEventListener("change", explain);
    explain();
    this.#chosen.push({ option, choices, input });
    const label = ours(`option.${option.name}`) ?? option.label ?? option.name;
    return el("div", { class: "field" }, el("label", { class: "label", for: id }, label), input, explanation);
  }

  /** @param {Choice[]} choices */
  #compressions(choices) {
    const id = `${this.#id}-compression`;
    const input = el("select", { id, class: "input" }, say(el("option", { value: "0" }), "form.compression_none"));
    for (const [index, choice] of choices.entries()) {
      const { missing } = choice;
      const label = missing ? `${choiceLabel(choice)} (${t("form.missing", { missing })})` : choiceLabel(choice);
      input.append(el("option", { value: `${index + 1}`, disabled: Boolean(missing) }, label));
    }
    this.#compression = { choices: [null, ...choices], input };
    return el("div", { class: "field" }, say(el("label", { class: "label", for: id }), "form.compression"), input);
  }

  /** Rebuild the options in the new language with what was chosen. */
  #relabel() {
    const chosen = this.#chosen.map(({ input }) => input.value);
    const compression = this.#compression?.input.value;
    this.#sayMissing();
    this.#showOptions();
    this.#chosen.forEach(({ input }, index) => {
      input.value = chosen[index] ?? input.value;
      input.dispatchEvent(new Event("change"));
    });
    if (this.#compression && compression) this.#compression.input.value = compression;
  }
}

/** Choose a value if it is offered. @param {HTMLSelectElement} input @param {(Choice | null)[]} choices @param {unknown} value */
function pick(input, choices, value) {
  const index = choices.findIndex((choice) => choice !== null && choice.value === value);
  if (index < 0) return;
  input.value = `${index}`;
  input.dispatchEvent(new Event("change"));
}

/** @param {string} key */
const ours = (key) => (isSaid(key) ? t(key) : null);

/** Which columns, or which measures of groups: both are `columns` of a request. */
export class ColumnPicker {
  #id;
  #what;
  /** @type {Column[]} */
  #columns = [];
  #summary = el("span", { class: "quiet-text" });
  #boxes = el("div", { class: "checks two" });
  #error = el("p", { class: "field-error", hidden: true });

  /** @param {string} id @param {"columns" | "measures"} [what] */
  constructor(id, what = "columns") {
    this.#id = id;
    this.#what = what;
    const summary = el("summary", {}, say(el("span", { class: "group-title" }), `form.${what}`), this.#summary);
    const all = say(el("button", { type: "button", class: "link" }), "form.choose_all");
    const none = say(el("button", { type: "button", class: "link" }), "form.choose_none");
    all.addEventListener("click", () => this.#tick(true));
    none.addEventListener("click", () => this.#tick(false));
    const group = el("div", { role: "group" }, el("div", { class: "links" }, all, none), this.#boxes, this.#error);
    say(group, `form.${what}`, {}, "aria-label");
    this.node = el("details", { class: "group columns" }, summary, group);
    this.#boxes.addEventListener("change", () => this.#count());
    this.end = onLanguage(() => this.#count());
  }

  /** @param {Column[]} columns */
  show(columns) {
    this.#columns = columns;
    this.node.hidden = columns.length === 0;
    this.node.open = false;
    arrange(this.#boxes, columns.map((column, index) => this.#box(column, index)));
    this.#count();
  }

  get isComplete() {
    return this.#columns.length === 0 || this.#chosen().length > 0;
  }

  /** All columns is the server's own choice, so it is not sent. @returns {{columns?: string[]}} */
  read() {
    const chosen = this.#chosen();
    return chosen.length === this.#columns.length ? {} : { columns: chosen };
  }

  /** @returns {boolean} */
  check() {
    if (this.isComplete) return true;
    this.complain(t(`invalid.${this.#what}`));
    this.#boxes.querySelector("input")?.focus();
    return false;
  }

  /** @param {string} detail @returns {boolean} */
  complain(detail) {
    this.node.open = true;
    put(this.#error, detail);
    this.#error.hidden = false;
    return true;
  }

  /** @param {string[] | null | undefined} keys Of an earlier request; null is all. */
  choose(keys) {
    const boxes = this.#boxes.querySelectorAll("input");
    this.#columns.forEach(({ key }, index) => {
      const box = boxes[index];
      if (box) box.checked = !keys || keys.includes(key);
    });
    this.#count();
  }

  #chosen() {
    const boxes = this.#boxes.querySelectorAll("input");
    return this.#columns.filter((_, index) => boxes[index]?.checked).map((column) => column.key);
  }

  /** @param {boolean} checked */
  #tick(checked) {
    for (const box of this.#boxes.querySelectorAll("input")) box.checked = checked;
    this.#count();
    this.#boxes.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #count() {
    const [count, total] = [this.#chosen().length, this.#columns.length];
    this.#error.hidden = true;
    put(this.#summary, count === total ? t(`form.${this.#what}_all`, { count }) : t(`form.${this.#what}_some`, { count, total }));
  }

  /** @param {Column} column @param {number} index */
  #box(column, index) {
    const box = el("input", { type: "checkbox", id: `${this.#id}-${index}`, checked: true });
    const type = column.type ? el("span", { class: "type" }, column.type) : null;
    return el("label", { class: "check" }, box, el("span", {}, column.header || column.key), type);
  }
}
