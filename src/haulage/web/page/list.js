// The reader's exports, newest first: filters, cards, "show more", what to say when there are none, and the storage they use.

import { NoAnswer, Problem } from "./api.js";
import { RunCard } from "./card.js";
import { arrange, button, el, icon, put, say, setAttribute, setBusy, show } from "./dom.js";
import { currentLanguage, formatBytes, t, wordsFor } from "./language.js";

/** @import {Api} from "./api.js" */
/** @import {Deeds} from "./card.js" */
/** @import {Dataset, Run, Storage} from "./contract.js" */
/** @import {RunBook} from "./runs.js" */

const STATES = ["queued", "running", "ready", "failed", "cancelled", "expired"];

export class RunList {
  #api;
  #book;
  #deeds;
  #find;
  #look;
  /** @type {Map<string, {card: RunCard, item: HTMLElement, run: Run | null, language: string}>} */
  #cards = new Map();
  #items = el("ol", { class: "cards" });
  #empty;
  #clear;
  #emptyTitle = el("p", { class: "empty-title" });
  #emptyHint = el("p", { class: "empty-hint" });
  #more;
  #error = el("p", { class: "card-error", role: "alert", hidden: true });
  #state = el("select", { class: "input small" });
  #dataset = el("select", { class: "input small" });
  #parent = el("input", { class: "input small", autocomplete: "off", hidden: true });
  #meter = el("progress", { class: "meter", max: 1, value: 0 });
  #storage = el("p", { class: "storage-text" });
  #storageBox;
  /** @type {Storage | null} */
  #stored = null;

  /**
   * @param {Api} api
   * @param {RunBook} book
   * @param {Deeds} deeds
   * @param {(name: string) => Dataset | null} find
   * @param {() => void} look Read soon.
   */
  constructor(api, book, deeds, find, look) {
    this.#api = api;
    this.#book = book;
    this.#deeds = deeds;
    this.#find = find;
    this.#look = look;
    this.heading = say(el("h2", { class: "panel-title", id: "your-exports", tabindex: -1 }), "runs.title");
    this.#more = button("runs.more", "plain", () => void this.#showMore());
    this.#clear = button("runs.clear", "plain", () => this.#filter("", "", ""));
    this.#empty = el("div", { class: "empty", hidden: true }, icon("export"), this.#emptyTitle, this.#emptyHint, this.#clear);
    this.#storageBox = el("div", { class: "storage", hidden: true }, this.#meter, this.#storage);
    say(this.#meter, "storage.label", {}, "aria-label");
    const head = el("div", { class: "list-head" }, this.heading, this.#filters());
    this.node = el("section", { class: "having", "aria-labelledby": this.heading.id }, head, this.#storageBox);
    this.node.append(this.#items, this.#empty, this.#error, el("div", { class: "more-line" }, this.#more));
    this.#more.hidden = true;
  }

  #filters() {
    this.#state.append(say(el("option", { value: "" }), "runs.every_state"));
    for (const state of STATES) this.#state.append(say(el("option", { value: state }), `state.${state}`));
    say(this.#state, "runs.state", {}, "aria-label");
    say(this.#dataset, "form.dataset", {}, "aria-label");
    for (const select of [this.#state, this.#dataset]) {
      select.addEventListener("change", () => this.#filter(this.#state.value, this.#dataset.value, this.#parent.value));
    }
    this.#parent.addEventListener("change", () => this.#filter(this.#state.value, this.#dataset.value, this.#parent.value));
    return el("div", { class: "filters" }, this.#state, this.#dataset, this.#parent);
  }

  /** @param {Dataset[]} datasets */
  offerDatasets(datasets) {
    const chosen = this.#dataset.value;
    const options = datasets.map(({ name, label }) => el("option", { value: name }, label || name));
    this.#dataset.replaceChildren(say(el("option", { value: "" }), "runs.every_dataset"), ...options);
    this.#dataset.value = datasets.some(({ name }) => name === chosen) ? chosen : "";
    this.#dataset.hidden = datasets.length < 2;
  }

  /** A run just asked for must be seen, whatever the filters say. @param {Run} run */
  reveal(run) {
    const parent = run.parent ?? "";
    const shown = parent === "" ? ["", run.dataset] : [run.dataset];
    const fits = ["", run.state].includes(this.#state.value) && shown.includes(this.#dataset.value) && parent === this.#parent.value;
    if (!fits) this.#filter("", parent === "" ? "" : run.dataset, parent);
  }

  /** What the exports of the chosen dataset belong to. */
  get #kind() {
    return this.#find(this.#dataset.value)?.parent ?? null;
  }

  /** @param {Run} run */
  scrollTo(run) {
    this.#cards.get(run.id)?.item.scrollIntoView({ block: "nearest" });
  }

  draw() {
    const known = this.#book.newestFirst;
    const kept = new Set(known.map(({ run }) => run.id));
    for (const id of this.#cards.keys()) if (!kept.has(id)) this.#cards.delete(id);
    const items = known.map(({ run, heardAt }) => {
      const entry = this.#cards.get(run.id) ?? this.#make(run);
      if (entry.run !== run || entry.language !== currentLanguage()) entry.card.update(run, heardAt);
      entry.run = run;
      entry.language = currentLanguage();
      return entry.item;
    });
    const lost = this.#items.contains(document.activeElement);
    arrange(this.#items, items);
    if (lost && document.activeElement === document.body) this.heading.focus();
    show(this.#more, this.#book.hasMore, this.heading);
    this.#drawEmpty(known.length);
    if (this.#stored) this.drawStorage(this.#stored);
  }

  /** @param {boolean} deaf */
  tick(deaf) {
    for (const { card } of this.#cards.values()) card.tick(deaf);
  }

  /** @param {Storage | null} storage */
  drawStorage(storage) {
    this.#stored = storage;
    const { used_bytes: used = null, budget_bytes: budget = null, own_bytes: own = null } = storage ?? {};
    const reserved = storage?.reserved_bytes ?? 0;
    const parts = [];
    if (used !== null) {
      const facts = { used: formatBytes(used), budget: budget === null ? "" : formatBytes(budget) };
      parts.push(t(budget === null ? "storage.used_only" : "storage.used", facts));
      if (reserved) parts.push(t("storage.reserved", { size: formatBytes(reserved) }));
    }
    if (own !== null) parts.push(t(used === null ? "storage.own_only" : "storage.own", { size: formatBytes(own) }));
    this.#storageBox.hidden = parts.length === 0;
    put(this.#storage, parts.join(" · "));
    this.#meter.hidden = used === null || !budget;
    if (used === null || !budget) return;
    this.#meter.max = budget;
    this.#meter.value = used;
    setAttribute(this.#meter, "data-full", used / budget > 0.9);
  }

  /** @param {Run} run @returns {{card: RunCard, item: HTMLElement, run: Run | null, language: string}} */
  #make(run) {
    const card = new RunCard(this.#api.clock, this.#deeds, this.#find);
    const entry = { card, item: el("li", {}, card.node), run: null, language: "" };
    this.#cards.set(run.id, entry);
    return entry;
  }

  /** @param {number} count */
  #drawEmpty(count) {
    const filtered = this.#state.value !== "" || this.#dataset.value !== "";
    const facts = { kind: this.#kind?.label ?? "" };
    this.#empty.hidden = count > 0 || !this.#book.begun;
    if (this.#kind && this.#parent.value === "") say(this.#emptyTitle, "runs.name_parent", facts);
    else if (this.#book.missing) say(this.#emptyTitle, "runs.no_parent", facts);
    else say(this.#emptyTitle, filtered ? "runs.none_match" : "runs.empty");
    say(this.#emptyHint, "runs.empty_hint");
    this.#emptyHint.hidden = filtered;
    show(this.#clear, filtered, this.heading);
  }

  /** @param {string} state @param {string} dataset @param {string} parent */
  #filter(state, dataset, parent) {
    this.#state.value = state;
    this.#dataset.value = dataset;
    const kind = this.#kind;
    this.#parent.value = kind ? parent : "";
    this.#parent.hidden = kind === null;
    if (kind) for (const name of ["aria-label", "placeholder"]) setAttribute(this.#parent, name, kind.label);
    this.#book.filterBy({ state, dataset, parent: this.#parent.value }, kind === null || this.#parent.value !== "");
    this.#look();
  }

  async #showMore() {
    const before = this.#items.children.length;
    setBusy(this.#more, true);
    this.#error.hidden = true;
    try {
      await this.#book.readMore();
      this.draw();
      const first = this.#items.children[before]?.firstElementChild;
      if (first instanceof HTMLElement) first.focus();
    } catch (error) {
      if (error instanceof NoAnswer) put(this.#error, t("act.no_answer_plain"));
      else if (error instanceof Problem) put(this.#error, t("act.failed", { detail: wordsFor("problem", error.code, error.message) }));
      else throw error;
      this.#error.hidden = false;
    } finally {
      setBusy(this.#more, false);
    }
  }
}
