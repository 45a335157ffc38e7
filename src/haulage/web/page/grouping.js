// What rows are grouped by: which dimensions in which order, which of them go across, which levels are added up.

import { arrange, el, icon, put, say, setAttribute } from "./dom.js";
import { onLanguage, t } from "./language.js";
import { levelWords, sentences } from "./means.js";

/** @import {Dataset, DimensionOf} from "./contract.js" */
/** @import {Grouping} from "./means.js" */

const WORDS = ["total", "rollup", "cube"]; // Of the request; beside them, levels can be named.
const CELLS = ["json", "ndjson"]; // Formats in which a pivot is no table.
const CUBE_MAX = 10; // Dimensions; the server refuses a cube over more.
const EVERY_LEVEL_MAX = 5; // Dimensions of which every level is offered: 31. Of more, those of one or two, and the prefixes.

/** One chosen dimension: its label, where it goes, and its place. */
class Chosen {
  across = el("select", { class: "input small" });
  up;
  down;
  remove;

  /** @param {DimensionOf} dimension @param {(step: number) => void} move @param {() => void} remove */
  constructor(dimension, move, remove) {
    this.name = dimension.name;
    const { label } = dimension;
    this.across.append(say(el("option", { value: "" }), "group.down"), say(el("option", { value: "1" }), "group.across"));
    say(this.across, "group.direction", { label }, "aria-label");
    this.up = small("up", "group.move_up", label, () => move(-1));
    this.down = small("down", "group.move_down", label, () => move(1));
    this.remove = small("cross", "group.remove", label, remove);
    this.node = el("li", { class: "dimension" }, el("span", { class: "dimension-label" }, label), this.across, this.up, this.down, this.remove);
  }
}

/** @param {string} shape @param {string} key @param {string} label @param {() => void} press */
function small(shape, key, label, press) {
  const node = say(el("button", { type: "button", class: "button quiet square" }, icon(shape)), key, { label }, "aria-label");
  node.addEventListener("click", () => node.getAttribute("aria-disabled") !== "true" && press());
  return node;
}

export class GroupingPicker {
  #id;
  /** @type {Dataset | null} */
  #dataset = null;
  /** @type {Chosen[]} */
  #chosen = [];
  /** @type {string[][]} What the boxes of levels stand for. */
  #levels = [];
  #list = el("ol", { class: "dimensions" });
  #adders = el("div", { class: "adders" });
  #subtotals = el("select", { class: "input" });
  #boxes = el("div", { class: "checks" });
  #levelsField;
  #subtotalsField;
  #meaning = el("p", { class: "hint meaning", role: "status" });
  #error = el("p", { class: "field-error", hidden: true });
  #asCells = false; // In the chosen format, a pivot is one record a cell.

  /** @param {string} id */
  constructor(id) {
    this.#id = id;
    setAttribute(this.#subtotals, "id", `${id}-subtotals`);
    for (const word of ["none", ...WORDS, "levels"]) this.#subtotals.append(say(el("option", { value: word }), `subtotals.${word}`));
    const label = say(el("label", { class: "label", for: this.#subtotals.id }), "group.subtotals");
    this.#subtotalsField = el("div", { class: "field" }, label, this.#subtotals);
    this.#levelsField = el("fieldset", { class: "field" }, say(el("legend", { class: "label" }), "group.levels"), this.#boxes);
    say(this.#list, "group.chosen", {}, "aria-label");
    const title = say(el("legend", { class: "group-title" }), "group.title");
    const parts = el("div", { class: "fields" }, this.#list, this.#adders, this.#subtotalsField, this.#levelsField, this.#meaning, this.#error);
    this.node = el("fieldset", { class: "group grouping", hidden: true }, title, parts);
    this.#subtotals.addEventListener("input", () => this.#draw());
    this.#list.addEventListener("input", () => this.#draw());
    this.#boxes.addEventListener("input", () => this.#say());
    this.end = onLanguage(() => this.#draw());
  }

  /** @param {Dataset} dataset */
  show(dataset) {
    this.#dataset = dataset;
    this.node.hidden = (dataset.dimensions ?? []).length === 0;
    this.choose({});
  }

  /** What an earlier request or the host page said; without group_by, rows as they are. @param {Partial<Grouping> | {group_by?: string[] | null}} given */
  choose(given) {
    const { group_by, subtotals, pivot } = /** @type {Partial<Grouping>} */ (given);
    this.#chosen = (group_by ?? []).flatMap((name) => this.#make(name));
    for (const one of this.#chosen) one.across.value = pivot?.includes(one.name) ? "1" : "";
    this.#levels = [];
    this.#boxes.replaceChildren();
    this.#subtotals.value = typeof subtotals === "string" && WORDS.includes(subtotals) ? subtotals : Array.isArray(subtotals) ? "levels" : "none";
    this.#draw();
    if (!Array.isArray(subtotals)) return;
    this.#drawLevels(subtotals);
    this.#say();
  }

  /** @param {string} format The chosen one. */
  sayFor(format) {
    this.#asCells = CELLS.includes(format);
    this.#say();
  }

  get isGrouped() {
    return this.#chosen.length > 0;
  }

  /** As the request has it; nothing where rows are not grouped. @returns {{group_by?: string[], subtotals?: string | string[][], pivot?: string[]}} */
  read() {
    if (!this.isGrouped) return {};
    const pivot = this.#chosen.filter((one) => one.across.value).map((one) => one.name);
    const subtotals = this.#subtotals.value === "levels" ? this.#ticked() : this.#subtotals.value;
    return {
      group_by: this.#chosen.map((one) => one.name),
      ...(subtotals === "none" || subtotals.length === 0 ? {} : { subtotals }),
      ...(pivot.length ? { pivot } : {}),
    };
  }

  /** @param {string} detail @returns {boolean} */
  complain(detail) {
    put(this.#error, detail);
    this.#error.hidden = false;
    return true;
  }

  /** @param {string} name @returns {Chosen[]} */
  #make(name) {
    const dimension = this.#dataset?.dimensions?.find((one) => one.name === name);
    if (!dimension) {
      console.error("haulage: there is no dimension of this name:", name);
      return [];
    }
    const chosen = new Chosen(dimension, (step) => this.#move(chosen, step), () => this.#remove(chosen));
    return [chosen];
  }

  /** @param {string} name */
  #add(name) {
    const at = this.#others().findIndex((one) => one.name === name);
    this.#chosen.push(...this.#make(name));
    this.#changed();
    const next = this.#adders.querySelectorAll("button")[at] ?? this.#adders.querySelector("button:last-of-type");
    if (next instanceof HTMLElement) next.focus();
    else this.#chosen.at(-1)?.across.focus();
  }

  /** @param {Chosen} chosen */
  #remove(chosen) {
    this.#chosen = this.#chosen.filter((one) => one !== chosen);
    this.#changed();
    const adder = this.#adders.querySelectorAll("button")[this.#others().findIndex((one) => one.name === chosen.name)];
    adder?.focus();
  }

  /** @param {Chosen} chosen @param {number} step */
  #move(chosen, step) {
    const at = this.#chosen.indexOf(chosen);
    this.#chosen.splice(at, 1);
    this.#chosen.splice(at + step, 0, chosen);
    this.#changed();
    (step < 0 ? chosen.up : chosen.down).focus(); // A node that is moved loses the focus.
  }

  #changed() {
    this.#draw();
    this.node.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #others() {
    const chosen = new Set(this.#chosen.map((one) => one.name));
    return (this.#dataset?.dimensions ?? []).filter((one) => !chosen.has(one.name));
  }

  #draw() {
    const grouped = this.isGrouped;
    const down = this.#chosen.filter((one) => !one.across.value);
    this.#chosen.forEach((one, index) => {
      setAttribute(one.up, "aria-disabled", index === 0 ? "true" : null);
      setAttribute(one.down, "aria-disabled", index === this.#chosen.length - 1 ? "true" : null);
      const last = one.across.options[1];
      if (last) last.disabled = down.length === 1 && down[0] === one; // One way stays clear: rows are rows of something.
    });
    arrange(this.#list, this.#chosen.map((one) => one.node));
    this.#list.hidden = !grouped;
    this.#drawAdders();
    this.#subtotalsField.hidden = !grouped;
    const cube = this.#subtotals.querySelector("[value=cube]");
    if (cube instanceof HTMLOptionElement) cube.disabled = this.#chosen.length > CUBE_MAX;
    this.#drawLevels(this.#ticked());
    this.#error.hidden = true;
    this.#say();
  }

  #drawAdders() {
    const adders = this.#others().map(({ name, label }) => {
      const node = el("button", { type: "button", class: "button plain adder" }, icon("plus"), el("span", {}, label));
      say(node, "group.add", { label }, "aria-label");
      node.addEventListener("click", () => this.#add(name));
      return node;
    });
    this.#adders.replaceChildren(...adders);
    this.#adders.hidden = adders.length === 0;
  }

  /** The levels that can be ticked; what was ticked and still can be stays so. @param {string[][]} ticked */
  #drawLevels(ticked) {
    const names = this.#chosen.map((one) => one.name);
    this.#levels = levelsOf(names, ticked);
    const kept = new Set(ticked.map((level) => keyOf(level)));
    this.#levelsField.hidden = !this.isGrouped || this.#subtotals.value !== "levels";
    this.#boxes.replaceChildren(...this.#levels.map((level, index) => {
      const box = el("input", { type: "checkbox", id: `${this.#id}-level-${index}`, checked: kept.has(keyOf(level)) });
      return el("label", { class: "check" }, box, el("span", {}, levelWords(level, this.#dataset)));
    }));
  }

  #ticked() {
    const boxes = this.#boxes.querySelectorAll("input");
    const names = new Set(this.#chosen.map((one) => one.name));
    const ticked = this.#levels.filter((level, index) => boxes[index]?.checked && level.every((name) => names.has(name)));
    return ticked.filter((level) => level.length < names.size);
  }

  #say() {
    const { group_by, ...rest } = this.read();
    if (!group_by) return put(this.#meaning, t("means.no_groups"));
    const said = [sentences({ group_by, ...rest }, this.#dataset), ...(rest.pivot && this.#asCells ? [t("means.cells")] : [])];
    put(this.#meaning, said.join(t("means.joint")));
  }
}

/** @param {string[]} level */
const keyOf = (level) => JSON.stringify(level.toSorted());

/**
 * Every level of a few dimensions; of many, those of one or two, the prefixes, and what was named already. The grand total last.
 * @param {string[]} names
 * @param {string[][]} named
 */
function levelsOf(names, named) {
  const every = names.length <= EVERY_LEVEL_MAX ? 2 ** names.length - 1 : 0; // Of thirty dimensions there are a thousand million.
  const levels = Array.from({ length: every }, (_, mask) => names.filter((_, index) => mask & (1 << index)));
  if (!every) {
    const pairs = names.flatMap((one, index) => names.slice(index + 1).map((other) => [one, other]));
    const prefixes = names.map((_, length) => names.slice(0, length));
    const ordered = named.map((level) => names.filter((name) => level.includes(name)));
    levels.push(...prefixes, ...names.map((name) => [name]), ...pairs, ...ordered);
  }
  const found = [...new Map(levels.map((level) => [keyOf(level), level])).values()];
  const places = (/** @type {string[]} */ level) => level.map((name) => String(names.indexOf(name)).padStart(2, "0")).join();
  return found.sort((one, other) => other.length - one.length || (places(one) < places(other) ? -1 : 1));
}
