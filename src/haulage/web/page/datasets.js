// What can be exported: one card a dataset, as a group of radio buttons. What the reader may not have is shown shut.

import { arrange, el, icon, say, show } from "./dom.js";

/** @import {Dataset} from "./contract.js" */

export class DatasetPicker {
  #chosen;
  /** @type {Dataset[]} */
  #datasets = [];
  #cards = el("div", { class: "dataset-cards" });
  #empty = el("div", { class: "message plain", hidden: true });

  /** @param {(dataset: Dataset) => void} chosen */
  constructor(chosen) {
    this.#chosen = chosen;
    const title = say(el("legend", { class: "group-title" }), "form.dataset");
    this.node = el("fieldset", { class: "group" }, title, this.#empty, this.#cards);
    this.#cards.addEventListener("change", () => this.#tell());
  }

  /** @param {Dataset[]} datasets */
  show(datasets) {
    const before = this.#current?.name;
    this.#datasets = datasets;
    arrange(this.#cards, datasets.map((dataset, index) => card(dataset, index)));
    const permitted = datasets.some((dataset) => dataset.permitted);
    show(this.#cards, datasets.length > 0);
    show(this.#empty, !permitted);
    const keys = datasets.length ? ["form.none_permitted"] : ["form.no_datasets", "form.no_datasets_hint"];
    arrange(this.#empty, keys.map((key) => say(el("p"), key)));
    this.choose(before ?? datasets.find((dataset) => dataset.permitted)?.name ?? "");
  }

  /** @param {string} name */
  choose(name) {
    const index = this.#datasets.findIndex((dataset) => dataset.name === name && dataset.permitted);
    const radio = this.#cards.querySelectorAll("input")[index];
    if (!radio) return;
    radio.checked = true;
    this.#tell();
  }

  get #current() {
    const index = [...this.#cards.querySelectorAll("input")].findIndex((radio) => radio.checked);
    return this.#datasets[index] ?? null;
  }

  #tell() {
    if (this.#current) this.#chosen(this.#current);
  }
}

/** @param {Dataset} dataset @param {number} index */
function card(dataset, index) {
  const shut = !dataset.permitted;
  const radio = el("input", { type: "radio", name: "haulage-dataset", value: `${index}`, disabled: shut });
  const words = el("span", { class: "dataset-words" }, el("span", { class: "dataset-label" }, dataset.label || dataset.name));
  if (shut) words.append(say(el("span", { class: "dataset-hint" }), "form.not_permitted"));
  else if (dataset.description) words.append(el("span", { class: "dataset-hint" }, dataset.description));
  return el("label", { class: "dataset-card" }, radio, words, shut ? icon("lock") : null);
}
