// How many rows or groups the form gives right now, counted by the server. A number that no longer belongs to the form is taken
// away before the next one is asked for.

import { NoAnswer, Problem } from "./api.js";
import { LastQuestion, asQuery } from "./asking.js";
import { arrange, el, put } from "./dom.js";
import { formatCount, formatInstant, onLanguage, t, wordsFor } from "./language.js";

/** @import {Api} from "./api.js" */
/** @import {Wish} from "./asking.js" */
/** @import {Counts, Dataset} from "./contract.js" */

export class LiveCount {
  #api;
  #unlisten;
  #question = new LastQuestion();
  #main = el("p", { class: "count-main" });
  #rest = el("p", { class: "count-rest" });
  /** @type {string | null} What is being counted, or was; null while nothing can be. */
  #key = "";
  /** @type {() => void} How the present state is said, for a change of the language. */
  #render = () => {};

  /** @param {Api} api @param {string} id */
  constructor(api, id) {
    this.#api = api;
    this.node = el("div", { class: "count", id }, this.#main, this.#rest);
    this.#unlisten = onLanguage(() => this.#render());
  }

  /** What was counted was of another dataset, or for a reader who has left. */
  forget() {
    this.#question.drop();
    this.#key = "";
    this.#say("none", "count.none");
  }

  /** Count, unless just that was counted. @param {Dataset} dataset @param {Wish | null} wish Null while it is not complete. */
  ask(dataset, wish) {
    const group_by = wish?.group_by?.toSorted(); // Their order changes no number, and neither do subtotals.
    const query = wish && asQuery({ parameters: wish.parameters, ...(group_by ? { group_by } : {}) });
    const key = query && String(query);
    if (key === this.#key) return;
    this.#key = key;
    this.#question.drop();
    if (!query) return this.#say("incomplete", "count.incomplete");
    this.#say("counting", "count.counting");
    this.#question.ask((signal) => this.#count(dataset, query, group_by ? "groups" : "rows", signal));
  }

  end() {
    this.#question.end();
    this.#unlisten();
  }

  /** @param {Dataset} dataset @param {URLSearchParams} query @param {"rows" | "groups"} unit @param {AbortSignal} signal */
  async #count(dataset, query, unit, signal) {
    try {
      const counts = await this.#api.counts(dataset.name, query, signal);
      if (!signal.aborted) this.#show(counts, unit);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem) {
        const { code, message } = error;
        this.#say("none", "count.failed", () => ({ detail: wordsFor("problem", code, message) }));
      } else if (error instanceof NoAnswer) this.#say("none", "count.no_answer");
      else throw error;
    }
  }

  /** @param {Counts} counts @param {"rows" | "groups"} unit */
  #show(counts, unit) {
    const { visible_output_count: visible, output_count: output, population_count: population, counted_at } = counts;
    if (visible === null && output === null) return this.#say("none", "count.none");
    this.#render = () => {
      this.node.dataset["state"] = "measured";
      const key = visible === null ? "count.output" : "count.visible";
      put(this.#main, t(key, { rows: formatCount(visible ?? output ?? 0, unit) }));
      const rest = [
        visible !== null && output !== null && output !== visible && t("count.output", { rows: formatCount(output, unit) }),
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
      put(this.#main, t(key, facts()));
      arrange(this.#rest, []);
    };
    this.#render();
  }
}
