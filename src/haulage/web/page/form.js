// The form of one dataset: conditions, groups, format with its options, columns, the live count, the preview, and the button. It
// only asks: what becomes of the request is told by the run that comes back.

import { NoAnswer, Problem, newKey } from "./api.js";
import { arrange, el, icon, put, say, setAttribute, setBusy, show } from "./dom.js";
import { Field, InvalidValue } from "./fields.js";
import { GroupingPicker } from "./grouping.js";
import { formatSpan, t, wordsFor } from "./language.js";
import { LiveCount } from "./livecount.js";
import { ColumnPicker, FormatPicker } from "./pickers.js";
import { Preview } from "./preview.js";

/** @import {Api} from "./api.js" */
/** @import {Wish} from "./asking.js" */
/** @import {Dataset, Run} from "./contract.js" */

/** @typedef {Partial<Pick<Run, "parent" | "format" | "parameters" | "columns" | "group_by" | "subtotals" | "pivot"
 *   | "options" | "compression">>} Wanted */

const PARENT = "parent"; // No parameter of a dataset with parents has this name.

let forms = 0; // So that ids of several forms in one document differ.

export class ExportForm {
  #api;
  #accepted;
  #prefix = `haulage-${++forms}`;
  /** @type {Dataset | null} */
  #dataset = null;
  /** @type {string | null} The parent that the host page names, where it does. */
  #parent = null;
  /** @type {Field[]} Of the parent first, where the reader names it. */
  #fields = [];
  #formats = new FormatPicker(`${this.#prefix}-format`);
  #columns = new ColumnPicker(`${this.#prefix}-columns`);
  #grouping = new GroupingPicker(`${this.#prefix}-groups`);
  #measures = new ColumnPicker(`${this.#prefix}-measures`, "measures");
  #count;
  #conditions = el("div", { class: "fields" });
  #message = el("div", { class: "message", role: "alert", hidden: true });
  #patience = el("p", { class: "patience", hidden: true }); // Outside the alert: seconds are not to be read out.
  #submit = el("button", { type: "submit", class: "button primary wide", part: "button primary" });
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #waiting;

  /**
   * @param {Api} api
   * @param {(run: Run, fresh: boolean) => void} accepted
   */
  constructor(api, accepted) {
    this.#api = api;
    this.#accepted = accepted;
    this.#count = new LiveCount(api, `${this.#prefix}-count`);
    /** Whoever shows the form gives it a place. */
    this.preview = new Preview(api, `${this.#prefix}-preview`);
    this.#submit.append(icon("export"), say(el("span"), "form.submit"));
    setAttribute(this.#submit, "aria-describedby", this.#count.text.id);
    const title = say(el("legend", { class: "group-title" }), "form.conditions");
    this.conditions = el("fieldset", { class: "group", hidden: true }, title, this.#conditions);
    this.node = el("form", { class: "export-form", novalidate: true, part: "form" });
    const bar = el("div", { class: "submit-bar" }, this.#count.node, this.#message, this.#patience, this.#submit);
    this.node.append(this.conditions, this.#grouping.node, this.#measures.node, this.#formats.node, this.#columns.node, bar);
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#ask();
    });
    this.node.addEventListener("input", () => this.#changed());
  }

  /** @param {Dataset} dataset @param {string | null} [parent] The one that every export is of; else the reader names it. */
  show(dataset, parent = null) {
    this.#dataset = dataset;
    this.#parent = parent;
    const asked = dataset.parent && parent === null ? [asParameter(dataset.parent)] : [];
    this.#fields = [...asked, ...dataset.parameters].map((parameter, index) => new Field(parameter, `${this.#prefix}-p${index}`));
    arrange(this.#conditions, this.#fields.map((field) => field.node));
    this.conditions.hidden = this.#fields.length === 0;
    this.#formats.show(dataset.formats);
    this.#columns.show(dataset.columns ?? []);
    this.#grouping.show(dataset);
    this.#measures.show((dataset.measures ?? []).map(({ name, label, function: type }) => ({ key: name, header: label, type })));
    this.forget();
    this.preview.show(dataset);
    this.#say(null);
    this.#look();
  }

  /** Fill in what an earlier request or the host page said; what it left out gets its default. @param {Wanted} request */
  fill(request) {
    /** @type {Record<string, unknown>} */
    const given = { ...request.parameters, ...(this.#dataset?.parent ? { [PARENT]: request.parent } : {}) };
    for (const field of this.#fields) {
      field.fill(field.parameter.name in given ? given[field.parameter.name] : field.parameter.default);
    }
    if (request.format) this.#formats.choose(request.format, request.options, request.compression);
    this.#grouping.choose(request);
    this.#columns.choose(this.#grouping.isGrouped ? null : request.columns);
    this.#measures.choose(this.#grouping.isGrouped ? request.columns : null);
    this.#look();
  }

  /** @param {string} key Something the reader should know before pressing the button. */
  hint(key) {
    this.#say(t(key));
  }

  /** What was read for one reader is not left to the next one; what stands in the fields is. */
  forget() {
    this.#count.forget();
    this.preview.forget();
  }

  /** Whoever drops the form says so; else its parts would go on listening. */
  end() {
    clearInterval(this.#waiting);
    for (const part of [this.#formats, this.#columns, this.#grouping, this.#measures, this.#count, this.preview]) part.end();
  }

  focus() {
    const first = this.node.querySelector("input, select, textarea, button");
    if (first instanceof HTMLElement) first.focus();
  }

  #changed() {
    this.#say(null);
    this.#look();
  }

  /** Rows have columns, groups have measures. */
  get #picked() {
    return this.#grouping.isGrouped ? this.#measures : this.#columns;
  }

  /** @returns {Record<string, unknown> | null} Null, and the errors shown when asked for, where something is wrong. */
  #parameters(complain = false) {
    /** @type {Record<string, unknown>} */
    const given = this.#parent === null ? {} : { [PARENT]: this.#parent };
    let wrong = 0;
    for (const field of this.#fields) {
      try {
        const value = field.read();
        if (value !== undefined) given[field.parameter.name] = value;
      } catch (error) {
        if (!(error instanceof InvalidValue)) throw error;
        if (complain) field.complain(error.message);
        if (complain && wrong === 0) field.focus();
        wrong += 1;
      }
    }
    if (complain && wrong) this.#say(t("form.fix", { count: wrong }));
    return wrong ? null : given;
  }

  /** What the form gives is counted and shown; both know by themselves whether anything has changed for them. */
  #look() {
    if (!this.#dataset) return;
    const grouped = this.#grouping.isGrouped;
    this.#measures.node.hidden = !grouped;
    this.#columns.node.hidden = grouped || !this.#dataset.columns?.length;
    this.#grouping.sayFor(this.#formats.read().format);
    const parameters = this.#parameters();
    /** @type {Wish | null} */
    const wish = parameters && { parameters, ...this.#grouping.read(), ...this.#picked.read() };
    this.#count.ask(this.#dataset, wish);
    this.preview.ask(this.#picked.isComplete ? wish : null);
  }

  async #ask() {
    if (!this.#dataset || this.#submit.getAttribute("aria-disabled") === "true") return;
    this.#say(null);
    const given = this.#parameters(true);
    if (!given || !this.#picked.check()) return;
    const { name, parent: has } = this.#dataset;
    const { [PARENT]: parent, ...others } = given;
    const wish = has ? { parent, parameters: others } : { parameters: given };
    const request = { dataset: name, ...wish, ...this.#grouping.read(), ...this.#formats.read(), ...this.#picked.read() };
    this.#setBusy(true);
    try {
      const { run, fresh } = await this.#api.request(request, newKey());
      this.#accepted(run, fresh);
    } catch (error) {
      this.#refused(error);
    } finally {
      if (this.#waiting === undefined) this.#setBusy(false);
    }
  }

  /** @param {boolean} busy */
  #setBusy(busy) {
    setBusy(this.#submit, busy);
    say(/** @type {Element} */ (this.#submit.lastElementChild), busy ? "form.submitting" : "form.submit");
  }

  /** @param {unknown} error */
  #refused(error) {
    if (error instanceof NoAnswer) return this.#say(t("form.no_answer"));
    if (!(error instanceof Problem)) throw error;
    const strays = error.errors.filter((fault) => !this.#point(fault.pointer, fault.detail)).map((fault) => fault.detail);
    this.#say([wordsFor("problem", error.code, error.message), ...strays].join("\n"));
    const first = this.#fields.find((field) => field.node.querySelector("[aria-invalid=true]"));
    first?.focus();
    if (error.retryAfterSeconds) this.#wait(error.retryAfterSeconds);
  }

  /** Show a fault next to the member it points at. @param {string} pointer @param {string} detail @returns {boolean} */
  #point(pointer, detail) {
    const [, group, name] = (pointer ?? "").split("/").map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~"));
    if (group === "columns") return this.#picked.complain(detail);
    if (["group_by", "subtotals", "pivot"].includes(group ?? "")) return this.#grouping.complain(detail);
    if (group !== "parameters" && group !== PARENT) return this.#formats.complain(group ?? "", name ?? "", detail);
    const field = this.#fields.find((one) => one.parameter.name === (group === PARENT ? PARENT : name));
    field?.complain(null, detail);
    return field !== undefined;
  }

  /** The server said when to ask again: say so, second by second, and leave the button shut until then. @param {number} seconds */
  #wait(seconds) {
    const until = performance.now() + seconds * 1000;
    this.#setBusy(true);
    this.#patience.hidden = false;
    say(/** @type {Element} */ (this.#submit.lastElementChild), "form.submit");
    const tick = () => {
      const left = Math.ceil((until - performance.now()) / 1000);
      if (left > 0) return put(this.#patience, t("form.wait", { span: formatSpan(left) }));
      clearInterval(this.#waiting);
      this.#waiting = undefined;
      this.#patience.hidden = true;
      this.#setBusy(false);
    };
    clearInterval(this.#waiting);
    this.#waiting = setInterval(tick, 1000);
    tick();
  }

  /** @param {string | null} text */
  #say(text) {
    if (text === null && this.#waiting !== undefined) return; // Why it is shut stays said.
    show(this.#message, text !== null);
    arrange(this.#message, (text ?? "").split("\n").map((line) => el("p", {}, line)));
  }
}

/** The parent as a field of the form. @param {NonNullable<Dataset["parent"]>} parent @returns {import("./contract.js").Parameter} */
function asParameter({ label, type }) {
  return { name: PARENT, type, label, required: true, default: null, list: false, choices: null };
}
