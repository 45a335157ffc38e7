// The page: who is signed in, what can be exported, what was. One poller reads; everything shown is what it read last.

import { Api, NoAnswer, Problem, findBase } from "./api.js";
import { isActive, stateWord } from "./card.js";
import { ConnectionLine } from "./connection.js";
import { DatasetPicker } from "./datasets.js";
import { makeDeeds } from "./deeds.js";
import { el, put, relabel, say, setAttribute, show } from "./dom.js";
import { ExportForm } from "./form.js";
import { Header } from "./header.js";
import { currentLanguage, onLanguage, t } from "./language.js";
import { RunList } from "./list.js";
import { Poller } from "./poller.js";
import { Hints, RunBook } from "./runs.js";
import { SignIn } from "./signin.js";

/** @import {Connection} from "./poller.js" */
/** @import {Dataset, Run} from "./contract.js" */

const ASIDE_EVERY_MILLISECONDS = 5_000; // Storage and workers: what stands beside the runs.
const TOAST_MILLISECONDS = 6_000;

class Page {
  #api = Api.at(findBase());
  #book = new RunBook(this.#api, (run) => this.#moved(run));
  #poller = new Poller((signal) => this.#read(signal), (connection) => this.#hear(connection));
  #hints = new Hints(() => this.#poller.start());
  #connection = new ConnectionLine();
  #form = new ExportForm(this.#api, (run, fresh) => this.#accepted(run, fresh));
  #picker = new DatasetPicker((dataset) => this.#form.show(dataset));
  #deeds = makeDeeds(this.#api, (run) => this.#changed(run), (run) => this.#refill(run));
  #list = new RunList(this.#api, this.#book, this.#deeds, (name) => this.#find(name), () => this.#poller.now());
  #signIn = new SignIn(this.#api, () => this.#signedIn());
  #header = new Header(() => this.#signOut());
  #toasts = el("div", { class: "toasts", role: "status" });
  #heard = el("p", { class: "visually-hidden", role: "status" });
  #loading = say(el("p", { class: "loading" }), "page.loading");
  #workspace;
  /** @type {Dataset[] | null} */
  #datasets = null;
  #asideAt = -Infinity;

  constructor() {
    const title = say(el("h1", { class: "panel-title", id: "new-export" }), "form.title");
    const making = el("section", { class: "making", "aria-labelledby": "new-export" }, title, this.#picker.node, this.#form.node);
    this.#workspace = el("div", { class: "workspace", hidden: true }, making, el("div", { class: "beside" }, this.#form.preview.node, this.#list.node));
    this.#signIn.node.hidden = true;
    const skip = say(el("a", { class: "skip", href: "#your-exports" }), "page.skip");
    const main = el("main", {}, this.#loading, this.#signIn.node, this.#workspace);
    const top = el("div", { class: "top" }, this.#header.node, this.#connection.node);
    document.body.prepend(skip, top, main, this.#heard, this.#toasts);
    onLanguage(() => this.#relabel());
    this.#relabel();
    setInterval(() => this.#list.tick(this.#connection.deaf), 1000);
    this.#poller.start();
  }

  /** @param {AbortSignal} signal */
  async #read(signal) {
    if (!this.#api.session && !(await this.#knowSession(signal))) return "stop";
    if (!this.#datasets) this.#open(await this.#api.datasets(signal));
    await this.#book.read(signal);
    this.#list.draw();
    await this.#readAside(signal);
    return this.#book.active ? "active" : "idle";
  }

  /** @param {AbortSignal} signal @returns {Promise<boolean>} */
  async #knowSession(signal) {
    try {
      await this.#api.readSession(signal);
      return true;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 401) throw error;
      this.#close(false);
      return false;
    }
  }

  /** Storage and workers, where the reader may see them. @param {AbortSignal} signal */
  async #readAside(signal) {
    if (performance.now() - this.#asideAt < ASIDE_EVERY_MILLISECONDS) return;
    this.#asideAt = performance.now();
    const [storage, workers] = await Promise.all([
      orNothing(this.#api.storage(signal)),
      this.#header.hidesWorkers ? null : orNothing(this.#api.workers(signal)),
    ]);
    this.#list.drawStorage(storage);
    this.#header.drawWorkers(workers);
  }

  /** @param {Dataset[]} datasets */
  #open(datasets) {
    this.#datasets = datasets;
    this.#signIn.forgetLink();
    this.#header.drawSession(this.#api.session);
    this.#picker.show(datasets);
    this.#form.node.hidden = this.#form.preview.node.hidden = !datasets.some((dataset) => dataset.permitted);
    this.#list.offerDatasets(datasets);
    this.#loading.hidden = true;
    show(this.#signIn.node, false, this.#list.heading);
    this.#workspace.hidden = false;
  }

  /** No session: only the sign-in is shown. What stands in the form is kept. @param {boolean} ended */
  #close(ended) {
    this.#api.session = null;
    this.#datasets = null;
    this.#book.forget();
    this.#form.forget();
    this.#header.drawSession(null);
    this.#loading.hidden = true;
    this.#workspace.hidden = true;
    this.#signIn.show(ended);
    this.#poller.stop();
  }

  #signedIn() {
    this.#asideAt = -Infinity;
    this.#hints.send();
    this.#poller.start();
  }

  async #signOut() {
    try {
      await this.#api.signOut();
    } catch (error) {
      if (error instanceof NoAnswer) return this.#toast(t("act.no_answer"));
      if (!(error instanceof Problem) || error.status !== 401) throw error;
    }
    this.#hints.send();
    this.#close(false);
  }

  /** @param {Run} run @param {boolean} fresh */
  #accepted(run, fresh) {
    this.#list.reveal(run);
    this.#changed(run);
    this.#list.scrollTo(run);
    this.#toast(fresh ? t("form.accepted", { label: this.#label(run.dataset) }) : t("form.coalesced"));
  }

  /** @param {Run} run */
  #changed(run) {
    this.#book.take(run);
    this.#list.draw();
    this.#asideAt = -Infinity; // Bytes may have come or gone.
    this.#poller.now();
    this.#hints.send();
  }

  /** The server did not say how a run was asked for: the reader says it. @param {Run} run */
  #refill(run) {
    this.#picker.choose(run.dataset);
    this.#form.fill(run);
    this.#form.hint("form.again_by_hand");
    this.#form.focus();
  }

  /** @param {Run} run */
  #moved(run) {
    this.#asideAt = -Infinity;
    const text = t("run.announce", { label: this.#label(run.dataset), state: stateWord(run) });
    if (isActive(run)) put(this.#heard, text);
    else this.#toast(text);
  }

  /** @param {string} name */
  #find(name) {
    return this.#datasets?.find((dataset) => dataset.name === name) ?? null;
  }

  /** @param {string} name */
  #label(name) {
    return this.#find(name)?.label || name;
  }

  /** @param {Connection} connection */
  #hear(connection) {
    if (connection.kind === "refused" && connection.problem.status === 401) return this.#close(true);
    this.#connection.say(connection);
    this.#list.tick(this.#connection.deaf);
  }

  /** Seen for a moment, and heard. @param {string} text */
  #toast(text) {
    const toast = el("p", { class: "toast" }, text);
    this.#toasts.append(toast);
    setTimeout(() => toast.remove(), TOAST_MILLISECONDS);
  }

  #relabel() {
    setAttribute(document.documentElement, "lang", currentLanguage());
    document.title = t("page.title");
    relabel(document);
    if (this.#datasets) this.#list.draw();
  }
}

/** What a reader may not see, or the server does not have, is simply not shown. @template T @param {Promise<T>} answer @returns {Promise<T | null>} */
async function orNothing(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Problem && error.status < 500) return null;
    throw error;
  }
}

new Page();
