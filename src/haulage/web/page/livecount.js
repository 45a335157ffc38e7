// How many rows or groups the form gives right now, counted by the server. A number that no longer belongs to the form is taken
// away before the next one is asked for. How many there are without conditions is counted when the reader asks.

import { NoAnswer, Problem } from "./api.js";
import { LastQuestion, asQuery } from "./asking.js";
import { arrange, el, put, say, setBusy, show } from "./dom.js";
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
  #all = say(el("button", { type: "button", class: "link count-all", hidden: true }), "count.ask_population");
  /** @type {((population: boolean) => void) | null} Count what stands in the form, perhaps with what there is without conditions. */
  #again = null;
  /** @type {string | null | undefined} What is being counted, or was; null while nothing can be. A dataset without conditions has the query "". */
  #key;
  /** @type {() => void} How the present state is said, for a change of the language. */
  #render = () => {};

  /** @param {Api} api @param {string} id */
  constructor(api, id) {
    this.#api = api;
    this.text = el("div", { class: "count-text", id, tabindex: -1 }, this.#main, this.#rest);
    this.node = el("div", { class: "count" }, this.text, this.#all);
    this.#all.addEventListener("click", () => {
      if (this.#all.getAttribute("aria-disabled") === "true") return;
      setBusy(this.#all, true);
      this.#again?.(true);
    });
    this.#unlisten = onLanguage(() => this.#render());
  }

  /** What was counted was of another dataset, or for a reader who has left. */
  forget() {
    this.#question.drop();
    this.#key = undefined;
    this.#again = null;
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
    this.#again = null;
    if (!query) return this.#say("incomplete", "count.incomplete");
    this.#say("counting", "count.counting");
    const ask = (/** @type {boolean} */ population) => {
      const whole = new URLSearchParams(query);
      if (population) whole.set("population", "true");
      this.#question.ask((signal) => {
        this.#key = key;
        return this.#count(dataset, whole, group_by ? "groups" : "rows", signal);
      });
    };
    if (hasPopulation(dataset)) this.#again = ask;
    ask(false);
  }

  end() {
    this.#question.end();
    this.#unlisten();
  }

  /** @param {Dataset} dataset @param {URLSearchParams} query @param {"rows" | "groups"} unit @param {AbortSignal} signal */
  async #count(dataset, query, unit, signal) {
    try {
      const counts = await this.#api.counts(dataset.name, query, signal);
      if (!signal.aborted) this.#show(counts, unit, query.has("population"));
    } catch (error) {
      if (signal.aborted) return false;
      this.#key = undefined; // What is touched next asks again.
      if (error instanceof Problem) {
        const { code, message, errors } = error;
        const first = errors[0]?.detail; // All of them are said once the button is pressed; here is room for one.
        this.#say("none", "count.failed", () => ({ detail: [wordsFor("problem", code, message), first].filter(Boolean).join(" ") }));
      } else if (error instanceof NoAnswer) this.#say("none", "count.no_answer");
      else throw error;
      show(this.#all, this.#again !== null && query.has("population")); // What failed once can be asked for once more.
      return error instanceof NoAnswer;
    }
    return false;
  }

  /** @param {Counts} counts @param {"rows" | "groups"} unit @param {boolean} asked Whether what there is without conditions was asked for. */
  #show(counts, unit, asked) {
    const { visible_output_count: visible, output_count: output, population_count: population, counted_at } = counts;
    if (visible === null && output === null) return this.#say("none", "count.none");
    this.#render = () => {
      this.node.dataset["state"] = "measured";
      const key = visible === null ? "count.output" : "count.visible";
      put(this.#main, t(key, { rows: formatCount(visible ?? output ?? 0, unit) }));
      const rest = [
        visible !== null && output !== null && output !== visible && t("count.output", { rows: formatCount(output, unit) }),
        population !== null && counts.population_count_computed && t("count.population", { rows: formatCount(population, unit) }),
        asked && !counts.population_count_computed && t("count.no_population"),
        counted_at && t("count.measured", { instant: formatInstant(counted_at) }),
      ].filter((part) => typeof part === "string" && part !== "");
      arrange(this.#rest, rest.map((part) => el("span", {}, /** @type {string} */ (part))));
    };
    this.#render();
    show(this.#all, this.#again !== null && !asked, this.text);
    setBusy(this.#all, false);
  }

  /** @param {string} state @param {string} key @param {() => Record<string, unknown>} [facts] */
  #say(state, key, facts = () => ({})) {
    this.#render = () => {
      this.node.dataset["state"] = state;
      put(this.#main, t(key, facts()));
      arrange(this.#rest, []);
    };
    this.#render();
    show(this.#all, false, this.text);
    setBusy(this.#all, false);
  }
}

/** Whether there is another number to ask for: without conditions there is none, and with one that has to be given none can be counted. @param {Dataset} dataset */
const hasPopulation = ({ parameters }) => parameters.length > 0 && !parameters.some(({ required }) => required);
