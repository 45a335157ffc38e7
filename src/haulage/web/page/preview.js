// The first rows of what the form would export, and its groups drawn as bars: made by the server by the plan of the export. Asked for
// when the reader opens it, and from then on whenever the form changes. While the server reads, what stands there is marked as old.

import { NoAnswer, Problem } from "./api.js";
import { LastQuestion, asQuery } from "./asking.js";
import { Chart, chartWish, dimensionsDrawn } from "./chart.js";
import { arrange, el, put, say, setAttribute, show } from "./dom.js";
import { formatCount, formatInstant, onLanguage, t, wordsFor } from "./language.js";
import { resultTable } from "./table.js";

/** @import {Api} from "./api.js" */
/** @import {Wish} from "./asking.js" */
/** @import {Dataset, PreviewOf} from "./contract.js" */

const ROWS = 20;
const GROUPS = 200; // Of a chart; the server gives no more.

export class Preview {
  #api;
  #unlisten;
  #question = new LastQuestion();
  /** @type {Dataset | null} */
  #dataset = null;
  /** @type {Wish | null} */
  #wish = null;
  /** @type {{key: string, wish: Wish} | null} What stands there, or is being read. */
  #asked = null;
  #reading = false;
  /** @type {() => void} How the present state is said, for a change of the language. */
  #render = () => {};
  #views;
  #ofChart = el("input", { type: "radio", value: "chart" });
  #status = el("p", { class: "preview-status", role: "status" });
  #message = el("div", { class: "message plain", hidden: true });
  #place = el("div", { class: "preview-place" });
  #chart;

  /** @param {Api} api @param {string} id */
  constructor(api, id) {
    this.#api = api;
    this.#chart = new Chart(id);
    const ofTable = el("input", { type: "radio", value: "table", name: id, checked: true });
    setAttribute(this.#ofChart, "name", id);
    const view = (/** @type {HTMLInputElement} */ radio, /** @type {string} */ key) => el("label", { class: "segment" }, radio, say(el("span"), key));
    const title = say(el("legend", { class: "visually-hidden" }), "preview.view");
    const segments = el("div", { class: "segments" }, view(ofTable, "preview.table"), view(this.#ofChart, "preview.chart"));
    this.#views = el("fieldset", { class: "views", hidden: true }, title, segments);
    const hint = say(el("span", { class: "quiet-text" }), "preview.hint");
    const summary = el("summary", {}, say(el("span", { class: "group-title" }), "preview.title"), hint);
    const body = el("div", { class: "preview-body" }, this.#views, this.#status, this.#message, this.#place);
    this.node = el("details", { class: "group columns preview" }, summary, body);
    this.node.addEventListener("toggle", () => this.#read());
    this.#views.addEventListener("change", () => this.#read());
    this.#unlisten = onLanguage(() => this.#draw());
  }

  /** @param {Dataset} dataset */
  show(dataset) {
    this.#dataset = dataset;
  }

  /** @param {Wish | null} wish Null while the form is not complete. */
  ask(wish) {
    this.#wish = wish;
    this.#read();
  }

  end() {
    this.#question.end();
    this.#chart.end();
    this.#unlisten();
  }

  /** What was read was of another dataset, or for a reader who has left. */
  forget() {
    this.#question.drop();
    this.#asked = null;
    this.#say("");
  }

  /** Read, unless just that stands there already. */
  #read() {
    const [dataset, wish] = [this.#dataset, this.#wish];
    if (wish) show(this.#views, wish.group_by, this.node.querySelector("summary"));
    if (!dataset || !this.node.open) return this.forget();
    if (!wish) {
      this.forget();
      return this.#say("preview.incomplete");
    }
    const drawn = Boolean(wish.group_by) && this.#ofChart.checked;
    const query = drawn ? asQuery(chartWish(wish), { limit: GROUPS }) : asQuery(wish, { limit: ROWS });
    const key = `${drawn} ${query}`;
    if (this.#asked?.key === key) {
      this.#asked.wish = wish;
      if (drawn) this.#draw(); // Of a chart, what is not drawn may have changed.
      return;
    }
    const asked = { key, wish };
    this.#asked = asked;
    this.#reading = true;
    this.#sayReading();
    this.#question.ask((signal) => {
      this.#asked = asked;
      return this.#ask(dataset, asked, query, drawn, signal);
    });
  }

  /** @param {Dataset} dataset @param {{wish: Wish}} asked @param {URLSearchParams} query @param {boolean} drawn @param {AbortSignal} signal */
  async #ask(dataset, asked, query, drawn, signal) {
    try {
      const answer = await this.#api.preview(dataset.name, query, signal);
      if (!signal.aborted) this.#show(answer, asked, dataset, drawn);
    } catch (error) {
      if (signal.aborted) return false;
      this.#asked = null; // What is touched next asks again.
      if (error instanceof Problem) this.#refused(error);
      else if (error instanceof NoAnswer) this.#say("preview.no_answer");
      else throw error;
      return error instanceof NoAnswer;
    }
    return false;
  }

  /** @param {PreviewOf} answer @param {{wish: Wish}} asked @param {Dataset} dataset @param {boolean} drawn */
  #show(answer, asked, dataset, drawn) {
    this.#answered(() => {
      this.#message.hidden = true;
      const read = answer.snapshot_at && t("preview.read", { instant: formatInstant(answer.snapshot_at) });
      put(this.#status, [rowsSaid(answer, drawn ? dimensionsDrawn(asked.wish).length === asked.wish.group_by?.length : null), read].filter(Boolean).join(" · "));
      if (drawn) this.#chart.show(answer, asked.wish, dataset);
      const table = !drawn && answer.rows.length > 0 ? resultTable(answer, t("preview.title")) : null;
      arrange(this.#place, drawn ? [this.#chart.node] : table ? [table] : []);
    });
  }

  /** @param {Problem} error */
  #refused(error) {
    // The one fault that no other condition would mend: there is no query whose rows could be shown.
    const never = error.errors.some(({ pointer }) => pointer === "/path/name");
    if (never) return this.#say("preview.never");
    const details = error.errors.map(({ detail }) => detail).join(" ");
    this.#say("preview.failed", () => ({ detail: [wordsFor("problem", error.code, error.message), details].filter(Boolean).join(" ") }));
  }

  /** Nothing stands there but why. @param {string} key @param {() => Record<string, unknown>} [facts] */
  #say(key, facts = () => ({})) {
    this.#answered(() => {
      put(this.#status, "");
      this.#message.hidden = key === "";
      put(this.#message, key && t(key, facts()));
      arrange(this.#place, []);
    });
  }

  /** @param {() => void} render */
  #answered(render) {
    this.#render = render;
    this.#reading = false;
    this.#draw();
  }

  #draw() {
    this.#render();
    setAttribute(this.#place, "aria-busy", null);
    if (this.#reading) this.#sayReading();
  }

  /** What stands there is of the form as it was before. */
  #sayReading() {
    setAttribute(this.#place, "aria-busy", "true");
    this.#message.hidden = true;
    put(this.#status, t("preview.reading"));
  }
}

/** @param {PreviewOf} answer @param {boolean | null} whole Whether a chart draws the very groups that are exported; null where rows are shown. */
function rowsSaid({ rows, more, logical_count: groups }, whole) {
  if (rows.length === 0) return t("preview.empty");
  const said = whole === null ? [t(more ? "preview.first" : "preview.whole", { rows: formatCount(rows.length, "rows"), count: rows.length })] : [];
  if (groups !== null && whole !== false) said.push(t("preview.groups", { groups: formatCount(groups, "groups") }));
  return said.join(" · ");
}
