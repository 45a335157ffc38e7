// One run as a card, the same in the page and in the element. `update` writes what was read into the nodes that stand there, so
// the focus stays; `tick` moves only the ages. Nothing is shown that was not read, and no number moves by itself.

import { NoAnswer, Problem } from "./api.js";
import { conditionsOf } from "./conditions.js";
import { arrange, button, el, icon, put, say, setAttribute, setBusy, show } from "./dom.js";
import { Facts } from "./facts.js";
import { formatCount, formatInstant, formatShare, formatSpan, isSaid, t, wordsFor } from "./language.js";

/** @import {ServerClock} from "./api.js" */
/** @import {Coded, Dataset, Progress, Run} from "./contract.js" */

/**
 * @typedef {object} Deeds What the buttons do; each settles when the server has answered.
 * @property {(run: Run) => Promise<void>} cancel
 * @property {(run: Run) => Promise<void>} download
 * @property {(run: Run) => Promise<void>} remove
 * @property {(run: Run) => Promise<void>} again
 */

/** @param {Run} run */
export const isActive = (run) => run.state === "queued" || run.state === "running";

/** The state in one word, the phase where there is one. @param {Run} run */
export function stateWord(run) {
  const key = isActive(run) && run.cancel_requested_at ? "cancelling" : run.state === "running" && run.phase ? run.phase : run.state;
  return isSaid(`state.${key}`) ? t(`state.${key}`) : t("state.unknown", { state: key });
}

let cards = 0;

export class RunCard {
  #clock;
  #deeds;
  #dataset;
  /** @type {Run | null} */
  #run = null;
  #heardAt = 0;
  #drawn = "";
  #outdated = false; // The server said that this file is not for this reader any more, but a new one may be.

  #badge = el("span", { class: "badge" });
  #word = el("span");
  #title;
  #format = el("span", { class: "chip" });
  #requested = el("span", { class: "card-time" });
  #bar = el("progress", { part: "progress" });
  #counted = el("span", { class: "counted" });
  #share = el("span", { class: "share" });
  #conditions = el("p", { class: "conditions" });
  #measure = el("div", { class: "measure" }, this.#bar, el("p", { class: "measure-text" }, this.#counted, this.#share));
  #life = el("p", { class: "life" });
  #outcome = el("p", { class: "outcome" });
  #incomplete = el("div", { class: "warning" }, icon("warning"));
  #notices = el("ul", { class: "notices" });
  #error = el("p", { class: "card-error", role: "alert", hidden: true });
  #facts;
  #buttons;

  /**
   * @param {ServerClock} clock
   * @param {Deeds} deeds
   * @param {(name: string) => Dataset | null} dataset For its label and those of its parameters.
   * @param {"h3" | "p"} [title] A heading in our page; a host's page has headings of its own.
   */
  constructor(clock, deeds, dataset, title = "h3") {
    this.#clock = clock;
    this.#deeds = deeds;
    this.#dataset = dataset;
    this.#title = el(title, { class: "card-title", id: `haulage-card-${++cards}` });
    this.#facts = new Facts(clock);
    this.#buttons = this.#makeButtons();
    const text = el("p", {}, say(el("strong"), "run.incomplete"), " ", say(el("span"), "run.incomplete_hint"));
    this.#incomplete.append(text);
    this.node = el("article", { class: "card", tabindex: -1, "aria-labelledby": this.#title.id, part: "card" });
    const head = el("div", { class: "card-head" }, this.#badge, this.#title, this.#format, this.#requested);
    const actions = el("div", { class: "actions" }, ...Object.values(this.#buttons));
    this.node.append(head, this.#conditions, this.#measure, this.#life, this.#outcome, this.#incomplete, this.#facts.node);
    this.node.append(this.#notices, this.#error, actions);
  }

  #makeButtons() {
    const run = () => /** @type {Run} */ (this.#run);
    const confirm = (/** @type {boolean} */ asked) => this.#confirm(asked);
    return {
      download: button("act.download", "primary", () => this.#do("download", () => this.#deeds.download(run())), "download"),
      again: button("act.again", "plain", () => this.#do("again", () => this.#deeds.again(run())), "again"),
      cancel: button("act.cancel", "plain", () => this.#do("cancel", () => this.#deeds.cancel(run()))),
      remove: button("act.remove", "quiet", () => confirm(true), "remove"),
      yes: button("act.remove_yes", "danger", () => this.#do("yes", () => this.#deeds.remove(run()))),
      no: button("act.remove_no", "plain", () => confirm(false)),
    };
  }

  /** @param {Run} run @param {number} heardAt When the server last said so, of performance.now(). */
  update(run, heardAt) {
    const changed = this.#run?.state !== run.state;
    this.#run = run;
    this.#heardAt = heardAt;
    setAttribute(this.node, "data-state", run.state);
    this.#drawHead(run);
    this.#drawMeasure(run);
    this.#drawOutcome(run);
    this.#facts.update(run);
    this.#drawNotices(run);
    if (changed) this.#outdated = false;
    if (changed) this.#drawButtons(run);
    else show(this.#buttons.cancel, isActive(run) && !run.cancel_requested_at, this.node);
    this.tick(false);
  }

  /** Ages only. @param {boolean} deaf The server does not answer: then the age is of what was heard, not of the run. */
  tick(deaf) {
    const run = this.#run;
    if (!run) return;
    this.#facts.tick();
    const parts = isActive(run) ? [this.#place(run), deaf ? this.#lastHeard() : this.#lastSign(run)] : [];
    const text = parts.filter(Boolean).join(" · ");
    put(this.#life, text);
    this.#life.hidden = text === "";
    setAttribute(this.node, "data-deaf", deaf && isActive(run) ? "true" : null);
  }

  focus() {
    this.node.focus();
  }

  /** @param {Run} run */
  #drawHead(run) {
    const cancelling = isActive(run) && Boolean(run.cancel_requested_at);
    const look = cancelling ? "cancelling" : run.state;
    if (this.#drawn !== look) {
      const shape = cancelling ? "cancelled" : run.state;
      this.#badge.replaceChildren(icon(shape), this.#word);
      setAttribute(this.#badge, "data-look", look);
      this.#drawn = look;
    }
    put(this.#word, stateWord(run));
    const dataset = this.#dataset(run.dataset);
    put(this.#title, dataset?.label || run.dataset);
    put(this.#conditions, conditionsOf(run, dataset));
    this.#conditions.hidden = this.#conditions.textContent === "";
    put(this.#format, [run.format.toUpperCase(), run.compression].filter((part) => part && part !== "none").join(" · "));
    put(this.#requested, formatInstant(run.requested_at));
    setAttribute(this.#requested, "title", t("run.requested", { instant: formatInstant(run.requested_at) }));
  }

  /** A bar only where part and whole were both measured; otherwise words. @param {Run} run */
  #drawMeasure(run) {
    const progress = run.progress ?? { processed: null, total: null, unit: "rows" };
    const { processed, total } = progress;
    const running = run.state === "running";
    const barred = running && !run.cancel_requested_at && processed !== null && total !== null && total > 0 && processed <= total;
    const unmeasured = running && !run.cancel_requested_at && run.phase === "aggregating" && !processed; // How far is not known.
    this.#measure.hidden = !running;
    this.#bar.hidden = !barred && !unmeasured;
    this.#share.hidden = !barred;
    setAttribute(this.#bar, "aria-label", t("run.progress", { label: this.#title.textContent }));
    if (unmeasured) this.#bar.removeAttribute("value");
    if (barred) {
      this.#bar.max = total;
      this.#bar.value = processed;
      put(this.#share, formatShare(processed, total));
    }
    if (running) put(this.#counted, measured(run, progress));
  }

  /** @param {Run} run */
  #drawOutcome(run) {
    const text = outcome(run);
    put(this.#outcome, text);
    this.#outcome.hidden = text === "";
    this.#incomplete.hidden = !(run.file && run.complete === false);
  }

  /** @param {Run} run */
  #drawNotices(run) {
    const texts = (run.notices ?? []).map(noticeWords);
    this.#notices.hidden = texts.length === 0;
    if (texts.join("\n") === [...this.#notices.children].map((node) => node.textContent).join("\n")) return;
    arrange(this.#notices, texts.map((text) => el("li", {}, text)));
  }

  /** @param {Run} run */
  #drawButtons(run) {
    const over = ["failed", "cancelled", "expired"].includes(run.state) || this.#outdated;
    const { download, again, cancel, remove, yes, no } = this.#buttons;
    show(download, run.state === "ready" && !this.#outdated, this.node);
    show(remove, run.state === "ready", this.node);
    show(yes, false, this.node);
    show(no, false, this.node);
    show(again, over, this.node);
    show(cancel, isActive(run) && !run.cancel_requested_at, this.node);
    for (const node of Object.values(this.#buttons)) setBusy(node, false);
  }

  /** @param {boolean} asked */
  #confirm(asked) {
    const { remove, yes, no } = this.#buttons;
    show(yes, asked, remove);
    show(no, asked, remove);
    show(remove, !asked);
    (asked ? no : remove).focus();
  }

  /** @param {"download" | "again" | "cancel" | "yes"} name @param {() => Promise<void>} deed */
  async #do(name, deed) {
    const node = this.#buttons[name];
    setBusy(node, true);
    this.#error.hidden = true;
    try {
      await deed();
      if (name === "yes") this.#confirm(false);
    } catch (error) {
      this.#complain(error);
    } finally {
      setBusy(node, false);
    }
  }

  /** @param {unknown} error */
  #complain(error) {
    if (error instanceof NoAnswer) put(this.#error, t("act.no_answer"));
    else if (error instanceof Problem) {
      put(this.#error, t("act.failed", { detail: wordsFor("problem", error.code, error.message) }));
    } else throw error;
    this.#error.hidden = false;
    if (!(error instanceof Problem) || !this.#run || error.code !== "policy_changed") return;
    this.#outdated = true;
    this.#drawButtons(this.#run);
  }

  /** @param {Run} run */
  #place(run) {
    if (run.state !== "queued") return "";
    return run.queue_position === null ? t("run.place_unknown") : t("run.place", { count: run.queue_position });
  }

  /** @param {Run} run */
  #lastSign(run) {
    if (run.state !== "running") return "";
    const age = this.#clock.secondsSince(run.heartbeat_at);
    return age === null ? t("run.no_sign") : t("run.last_sign", { span: formatSpan(age) });
  }

  #lastHeard() {
    return t("run.last_read", { span: formatSpan((performance.now() - this.#heardAt) / 1000) });
  }
}

/** @param {Run} run @param {Progress} progress */
function measured(run, progress) {
  if (run.cancel_requested_at) return t("run.cancelling");
  const { processed, total, unit, logical_count: logical } = progress;
  if (run.phase === "counting" && !processed) return t("run.counting");
  if (run.phase === "aggregating" && !processed) return t("run.aggregating");
  if (processed === null) return t("run.nothing_measured");
  const key = total === null ? "run.processed" : processed > total ? "run.beyond" : "run.processed_of";
  const facts = { processed, processed_units: formatCount(processed, unit), total_units: total === null ? "" : formatCount(total, unit) };
  const parts = [t(key, facts)];
  if (typeof logical === "number") parts.push(t("run.logical", { units: formatCount(logical, progress.logical_count_unit ?? "rows") }));
  if (run.phase === "publishing") parts.push(t("run.publishing"));
  return parts.join(" · ");
}

/** @param {Run} run */
function outcome(run) {
  const when = run.finished_at ? formatInstant(run.finished_at) : "";
  if (run.state === "failed") return run.failure ? wordsFor("failure", run.failure.code, run.failure.message) : t("failure.unknown", { code: "?" });
  if (run.state === "cancelled") return t("run.cancelled", { instant: when });
  if (run.state === "expired") return t("run.expired");
  return run.state === "ready" && run.complete === null ? t("run.completeness_unknown") : "";
}

/** @param {Coded | string} notice */
function noticeWords(notice) {
  if (typeof notice === "string") return wordsFor("notice", notice, null);
  const columns = /** @type {string[]} */ (notice.columns ?? []);
  return wordsFor("notice", notice.code, notice.message, { ...notice, columns: columns.join(", ") });
}
