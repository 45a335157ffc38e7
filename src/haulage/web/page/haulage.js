// <haulage-export dataset="orders" [parent="7"] [format="csv"] [api="/haulage"] [parameters='{"since": "2026-01-01"}']
//                 [group-by="country,status"] [subtotals="rollup"] [pivot="status"] [measures="orders,revenue"]>
//
// The Export button for any page: a button, the form of the dataset, and the run it started, in a shadow root. Load this one module
// as `<script type="module" src="…/page/haulage.js">`; it brings its siblings and its style sheet along, from where it lies.
// It fires `haulage-ready`, `haulage-failed` and `haulage-cancelled` with the run as `event.detail.run`. Colours and corners are
// set by custom properties (see haulage.css); the parts `button`, `form`, `card` and `progress` can be styled from outside.

import { Api, Problem, findBase } from "./api.js";
import { RunCard, isActive, stateWord } from "./card.js";
import { ConnectionLine } from "./connection.js";
import { makeDeeds } from "./deeds.js";
import { arrange, el, icon, put, relabel, say, setAttribute, show } from "./dom.js";
import { ExportForm } from "./form.js";
import { onLanguage, t } from "./language.js";
import { Poller } from "./poller.js";
import { Hints, RunBook } from "./runs.js";

export { setLanguage } from "./language.js";

/** @import {Dataset, Run} from "./contract.js" */

const IDLE_MILLISECONDS = 15_000; // An idle button on somebody else's page asks seldom; hints and visibility do the rest.
const GROUPING = ["group-by", "subtotals", "pivot", "measures"];
const EVENTS = /** @type {Partial<Record<Run["state"], string>>} */ ({
  ready: "haulage-ready",
  failed: "haulage-failed",
  cancelled: "haulage-cancelled",
});

export class HaulageExport extends HTMLElement {
  static observedAttributes = ["dataset", "parent", "format", "api", "parameters", ...GROUPING];

  #root = this.attachShadow({ mode: "open" });
  #open = el("button", { type: "button", class: "button primary", part: "button", "aria-controls": "panel", disabled: true });
  #openText = el("span");
  #panel = el("div", { class: "panel", id: "panel", hidden: true });
  #place = el("div", { class: "place" });
  #status = el("p", { class: "visually-hidden", role: "status" });
  #connection = new ConnectionLine();
  /** @type {Record<string, unknown> | null} */
  #parameters = null;
  /** @type {Watch | null} What belongs to the present attributes; made anew when they change. */
  #watch = null;

  constructor() {
    super();
    const styles = ["haulage.css", "result.css"].map((name) => el("link", { rel: "stylesheet", href: new URL(name, import.meta.url).href }));
    const body = el("div", { class: "element", hidden: true }, this.#open, this.#panel, this.#connection.node);
    body.append(this.#place, this.#status);
    const [style] = styles;
    for (const outcome of ["load", "error"]) style?.addEventListener(outcome, () => (body.hidden = false)); // Never unstyled.
    this.#root.append(...styles, body);
    this.#open.append(icon("export"), this.#openText, icon("chevron"));
    this.#open.addEventListener("click", () => this.toggle(Boolean(this.#panel.hidden)));
    this.#panel.addEventListener("keydown", (event) => event.key === "Escape" && this.toggle(false));
    this.#panel.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !this.#root.contains(relatedTarget)) this.toggle(false);
    });
    this.toggle(false);
  }

  /** Conditions to start the form with, such as the filters of the screen around it. */
  get parameters() {
    return this.#parameters;
  }

  set parameters(values) {
    this.#parameters = values;
    this.#watch?.prefill();
  }

  focus() {
    this.#open.focus();
  }

  connectedCallback() {
    this.#watch?.end();
    document.addEventListener("pointerdown", this.#onPointer);
    const name = this.getAttribute("dataset") ?? "";
    this.#watch = new Watch(this, Api.at(findBase(this.getAttribute("api"))), name, {
      place: this.#place,
      panel: this.#panel,
      connection: this.#connection,
    });
  }

  disconnectedCallback() {
    document.removeEventListener("pointerdown", this.#onPointer);
    this.#watch?.end();
    this.#watch = null;
    this.toggle(false);
  }

  /** @param {string} name @param {string | null} before @param {string | null} after */
  attributeChangedCallback(name, before, after) {
    if (name === "parameters") this.#parameters = parsed(after);
    if (!this.#watch || before === after) return; // Before the first connection there is nothing to change.
    if (["parameters", "format", ...GROUPING].includes(name)) return this.#watch.prefill();
    this.disconnectedCallback();
    this.connectedCallback();
  }

  /** @param {PointerEvent} event */
  #onPointer = (event) => {
    if (!event.composedPath().includes(this)) this.toggle(false);
  };

  /** @param {boolean} open */
  toggle(open) {
    show(this.#panel, open, this.#open);
    setAttribute(this.#open, "aria-expanded", String(open));
    setAttribute(this.#panel, "data-side", null);
    const beyond = open && this.#panel.getBoundingClientRect().right > document.documentElement.clientWidth;
    if (beyond) setAttribute(this.#panel, "data-side", "end");
  }

  /** What the button says, and whether it can be pressed. @param {boolean} usable @param {string} key @param {Record<string, unknown>} [facts] */
  offer(usable, key, facts) {
    say(this.#openText, key, facts);
    setAttribute(this.#open, "disabled", !usable);
    if (!usable) this.toggle(false);
  }

  /** @param {string} text For a screen reader. */
  announce(text) {
    put(this.#status, text);
  }

  relabel() {
    relabel(this.#root);
  }
}

/** One dataset watched for one element, from the moment it stands in the document. */
class Watch {
  #element;
  #api;
  #name;
  #parts;
  #book;
  #deeds;
  #form;
  #hints = new Hints(() => this.#poller.start());
  #poller = new Poller((signal) => this.#read(signal), (connection) => this.#hear(connection), IDLE_MILLISECONDS);
  #ticking = setInterval(() => this.#card?.tick(this.#parts.connection.deaf), 1000);
  #unlisten = onLanguage(() => this.#relabel());
  /** @type {Dataset | null} */
  #dataset = null;
  /** @type {RunCard | null} */
  #card = null;
  /** @type {string | null} The run on the card. */
  #shown = null;
  #parent;
  #refused = false;

  /**
   * @param {HaulageExport} element
   * @param {Api} api
   * @param {string} name
   * @param {{place: HTMLElement, panel: HTMLElement, connection: ConnectionLine}} parts
   */
  constructor(element, api, name, parts) {
    this.#element = element;
    this.#api = api;
    this.#name = name;
    this.#parent = element.getAttribute("parent") ?? "";
    this.#parts = parts;
    this.#book = new RunBook(api, (run) => this.#moved(run));
    this.#deeds = makeDeeds(api, (run) => this.#changed(run), (run) => this.#refill(run));
    this.#form = new ExportForm(api, (run, fresh) => this.#accepted(run, fresh));
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#poller.start();
  }

  end() {
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#poller.stop();
    this.#hints.close();
    clearInterval(this.#ticking);
    this.#unlisten();
    this.#form.end();
    this.#parts.place.replaceChildren();
    this.#parts.panel.replaceChildren();
  }

  /** Somebody may have signed in meanwhile, so a stopped poller starts again. */
  #onVisibility = () => {
    if (!document.hidden) this.#poller.start();
  };

  /** @param {AbortSignal} signal */
  async #read(signal) {
    this.#dataset ??= await this.#enter(signal);
    if (!this.#dataset) return "stop";
    await this.#book.read(signal);
    this.#offerAgain(this.#dataset);
    this.#draw();
    return this.#book.active ? "active" : "idle";
  }

  /** Who asks, and what the dataset is. @param {AbortSignal} signal @returns {Promise<Dataset | null>} */
  async #enter(signal) {
    try {
      if (!this.#api.session) await this.#api.readSession(signal);
      const dataset = (await this.#api.datasets(signal)).find((one) => one.name === this.#name);
      if (dataset?.permitted && dataset.parent && this.#parent === "") {
        this.#element.offer(false, "element.name_parent", { kind: dataset.parent.label });
        return null;
      }
      if (dataset?.permitted) this.#offer(dataset);
      else if (dataset) this.#element.offer(false, "form.not_permitted");
      else this.#element.offer(false, "element.unknown", { dataset: this.#name });
      return dataset?.permitted ? dataset : null;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 401) throw error;
      this.#element.offer(false, "element.sign_in");
      return null;
    }
  }

  /** @param {Dataset} dataset */
  #offer(dataset) {
    this.#element.offer(true, "element.export", { label: dataset.label || dataset.name });
    this.#book.filterBy({ state: "", dataset: dataset.name, parent: dataset.parent ? this.#parent : "" });
    this.#refused = false;
    this.#form.show(dataset, dataset.parent ? this.#parent : null);
    this.#parts.panel.replaceChildren(this.#form.node);
    this.#form.node.lastElementChild?.before(this.#form.preview.node);
    this.prefill();
  }

  /** Whose the parent is may have changed since the last look. @param {Dataset} dataset */
  #offerAgain(dataset) {
    if (!dataset.parent || this.#book.missing === this.#refused) return;
    this.#refused = this.#book.missing;
    if (this.#refused) this.#element.offer(false, "element.no_parent", { kind: dataset.parent.label });
    else this.#element.offer(true, "element.export", { label: dataset.label || dataset.name });
  }

  prefill() {
    const format = this.#element.getAttribute("format");
    this.#form.fill({ ...(format ? { format } : {}), parameters: this.#element.parameters ?? {}, ...groupingOf(this.#element) });
  }

  /** @param {Run} run @param {boolean} fresh */
  #accepted(run, fresh) {
    this.#shown = run.id;
    this.#changed(run);
    this.#element.toggle(false);
    this.#element.announce(fresh ? t("form.accepted", { label: this.#label }) : t("form.coalesced"));
    this.#card?.focus();
  }

  /** The server did not say how a run was asked for: the reader says it. @param {Run} run */
  #refill(run) {
    this.#element.toggle(true);
    this.#form.fill(run);
    this.#form.hint("form.again_by_hand");
    this.#form.focus();
  }

  /** @param {Run} run */
  #changed(run) {
    this.#book.take(run);
    this.#draw();
    this.#poller.now();
    this.#hints.send();
  }

  get #label() {
    return this.#dataset?.label || this.#name;
  }

  /** The newest run that is under way, else the one watched here, else the newest whose file is there. */
  #draw() {
    const runs = this.#book.newestFirst;
    const known =
      runs.find(({ run }) => isActive(run)) ??
      runs.find(({ run }) => run.id === this.#shown) ??
      runs.find(({ run }) => run.state === "ready");
    if (!known) return arrange(this.#parts.place, []);
    if (this.#shown !== known.run.id || !this.#card) {
      this.#card = new RunCard(this.#api.clock, this.#deeds, () => this.#dataset, "p");
      this.#shown = known.run.id;
    }
    this.#card.update(known.run, known.heardAt);
    arrange(this.#parts.place, [this.#card.node]);
  }

  /** @param {Run} run */
  #moved(run) {
    this.#element.announce(t("run.announce", { label: this.#label, state: stateWord(run) }));
    const name = EVENTS[run.state];
    if (name) this.#element.dispatchEvent(new CustomEvent(name, { detail: { run }, bubbles: true, composed: true }));
  }

  /** @param {import("./poller.js").Connection} connection */
  #hear(connection) {
    const signedOut = connection.kind === "refused" && connection.problem.status === 401;
    if (signedOut) this.#forgetSession();
    else this.#parts.connection.say(connection);
    this.#card?.tick(this.#parts.connection.deaf);
  }

  #forgetSession() {
    this.#api.session = null;
    this.#dataset = null;
    this.#book.forget();
    this.#form.forget();
    this.#draw();
    this.#element.offer(false, "element.sign_in");
    this.#poller.stop();
  }

  #relabel() {
    this.#element.relabel();
    if (this.#dataset) this.#draw();
  }
}

/** What the attributes say of groups; several levels of subtotals are written as the door of previews takes them. @param {HTMLElement} element */
function groupingOf(element) {
  const [group_by, subtotals, pivot, measures] = GROUPING.map((name) => element.getAttribute(name)?.trim() || null);
  const names = (/** @type {string | null | undefined} */ text) => text?.split(",").map((name) => name.trim()) ?? null;
  const levels = subtotals?.split(";").map((level) => (level.trim() === "()" ? [] : (names(level) ?? [])));
  const said = ["total", "rollup", "cube"].includes(subtotals ?? "") ? subtotals : levels;
  return { group_by: names(group_by), subtotals: said ?? null, pivot: names(pivot), columns: names(measures) };
}

/** @param {string | null} text @returns {Record<string, unknown> | null} */
function parsed(text) {
  if (text === null) return null;
  try {
    return JSON.parse(text);
  } catch {
    console.error("haulage-export: the attribute `parameters` is not JSON:", text);
    return null;
  }
}

if (!customElements.get("haulage-export")) customElements.define("haulage-export", HaulageExport);
