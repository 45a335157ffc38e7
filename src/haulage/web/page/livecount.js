// How many rows the conditions hold right now, counted by the server. A number that no longer belongs to the conditions is
// taken away before the next one is asked for, and an answer that comes too late is dropped.

import { NoAnswer, Problem } from "./api.js";
import { arrange, el, put, say } from "./dom.js";
import { formatCount, formatInstant, onLanguage, t, wordsFor } from "./language.js";

/** @import {Api} from "./api.js" */
/** @import {Counts, Dataset} from "./contract.js" */

const PAUSE_MILLISECONDS = 400; // After the last key before the server is asked.

export class LiveCount {
  #api;
  #unlisten;
  #main = el("p", { class: "count-main" });
  #rest = el("p", { class: "count-rest" });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pause;
  /** @type {AbortController | null} */
  #asked = null;
  /** @type {() => void} How the present state is said, for a change of the language. */
  #render = () => {};

  /** @param {Api} api @param {string} id */
  constructor(api, id) {
    this.#api = api;
    this.node = el("div", { class: "count", id }, this.#main, this.#rest);
    this.#unlisten = onLanguage(() => this.#render());
  }

  /** @param {Dataset} dataset @param {Record<string, unknown> | null} parameters Null while they are not complete. */
  ask(dataset, parameters) {
    this.#drop();
    if (!parameters) return this.#say("incomplete", "count.incomplete");
    this.#say("counting", "count.counting");
    this.#pause = setTimeout(() => this.#count(dataset, asQuery(parameters)), PAUSE_MILLISECONDS);
  }

  end() {
    this.#drop();
    this.#unlisten();
  }

  #drop() {
    clearTimeout(this.#pause);
    this.#asked?.abort();
    this.#asked = null;
  }

  /** @param {Dataset} dataset @param {URLSearchParams} query */
  async #count(dataset, query) {
    const asked = new AbortController();
    this.#asked = asked;
    try {
      const counts = await this.#api.counts(dataset.name, query, asked.signal);
      if (!asked.signal.aborted) this.#show(counts);
    } catch (error) {
      if (asked.signal.aborted) return;
      if (error instanceof Problem) {
        const { code, message } = error;
        this.#say("none", "count.failed", () => ({ detail: wordsFor("problem", code, message) }));
      } else if (error instanceof NoAnswer) this.#say("none", "count.none");
      else throw error;
    }
  }

  /** @param {Counts} counts */
  #show(counts) {
    const { visible_output_count: visible, output_count: output, population_count: population, counted_at } = counts;
    if (visible === null && output === null) return this.#say("none", "count.none");
    this.#render = () => {
      this.node.dataset["state"] = "measured";
      const key = visible === null ? "count.output" : "count.visible";
      put(this.#main, t(key, { rows: formatCount(visible ?? output ?? 0, "rows") }));
      const rest = [
        visible !== null && output !== null && output !== visible && t("count.output", { rows: formatCount(output, "rows") }),
        population !== null && counts.population_count_computed && t("count.population", { rows: formatCount(population, "rows") }),
        counted_at && t("count.measured", { instant: formatInstant(counted_at) }),
      ].filter((part) => typeof part === "string" && part !== "");
      arrange(this.#rest, rest.map((part) => el("span", {}, /** @type {string} */ (part))));
    };
    this.#render();
  }

  /** @param {string} state @param {string} key @param {() => Record<string, unknown>} [facts] */
  #say(state, key, facts = () => ({})) {
    this.#render = () => {
      this.node.dataset["state"] = state;
      say(this.#main, key, facts());
      arrange(this.#rest, []);
    };
    this.#render();
  }
}

/** A list is the name several times. @param {Record<string, unknown>} parameters */
function asQuery(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return query;
}
