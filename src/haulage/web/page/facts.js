// What a finished file is: name, rows, bytes, SHA-256, snapshot, end of its time, columns. All as the server measured it.

import { el, put, say, setAttribute } from "./dom.js";
import { formatBytes, formatCount, formatInstant, formatNumber, formatSpan, t } from "./language.js";

/** @import {ServerClock} from "./api.js" */
/** @import {FileFacts, Run} from "./contract.js" */

const COPIED_MILLISECONDS = 2_500;

export class Facts {
  #clock;
  /** @type {Run | null} */
  #run = null;
  #name = el("p", { class: "file-name" });
  #rows = el("dd");
  #bytes = el("dd");
  #snapshot = el("dd");
  #expires = el("dd");
  #expiry;
  #hash = el("code", { class: "hash" });
  #details = el("details", { class: "more" });
  #columns = el("ul", { class: "column-list" });
  #times = el("dl", { class: "facts times" });

  /** @param {ServerClock} clock */
  constructor(clock) {
    this.#clock = clock;
    this.#expiry = fact("facts.expires", this.#expires, "long");
    const hash = el("dd", { class: "hash-line" }, this.#hash, this.#copyButton());
    const list = el("dl", { class: "facts" }, fact("facts.rows", this.#rows), fact("facts.bytes", this.#bytes));
    list.append(fact("facts.snapshot", this.#snapshot), this.#expiry, fact("facts.sha256", hash, "wide"));
    this.#details.append(say(el("summary"), "facts.details"), this.#times, this.#columns);
    this.node = el("div", { class: "file", hidden: true }, this.#name, list, this.#details);
  }

  /** @param {Run} run */
  update(run) {
    this.#run = run;
    const { file } = run;
    this.node.hidden = file === null;
    if (!file) return;
    put(this.#name, file.name);
    put(this.#rows, rowsOf(run, file));
    put(this.#bytes, formatBytes(file.bytes));
    setAttribute(this.#bytes, "title", t("facts.bytes_exact", { size: formatBytes(file.bytes), count: file.bytes }));
    put(this.#snapshot, file.snapshot_at ? formatInstant(file.snapshot_at) : t("facts.no_snapshot"));
    put(this.#hash, file.sha256);
    this.#drawDetails(run, file);
    this.tick();
  }

  /** The time left, by the server's clock. That it is over is the server's to say. */
  tick() {
    const run = this.#run;
    if (!run?.file) return;
    const left = this.#clock.secondsSince(run.expires_at);
    const shown = run.state === "ready" && run.expires_at !== null;
    this.#expiry.hidden = !shown;
    if (!shown) return;
    const instant = formatInstant(/** @type {string} */ (run.expires_at));
    if (left === null) put(this.#expires, instant);
    else put(this.#expires, left >= 0 ? t("facts.expires_due") : t("facts.expires_in", { span: formatSpan(-left), instant }));
  }

  /** @param {Run} run @param {FileFacts} file */
  #drawDetails(run, file) {
    const rows = /** @type {[string, string][]} */ ([
      ["facts.bytes", t("facts.bytes_exact", { size: formatBytes(file.bytes), count: file.bytes })],
      ["facts.requested", formatInstant(run.requested_at)],
      ["facts.started", run.started_at && formatInstant(run.started_at)],
      ["facts.finished", run.finished_at && formatInstant(run.finished_at)],
      ["facts.id", run.id],
    ].filter(([, text]) => text));
    this.#times.replaceChildren(...rows.map(([key, text]) => fact(key, el("dd", {}, text), key === "facts.id" ? "wide" : "")));
    const columns = file.columns ?? [];
    const items = columns.map(({ header, type }) => {
      return el("li", {}, el("span", {}, header), el("span", { class: "type" }, type ?? t("facts.type_unknown")));
    });
    this.#columns.replaceChildren(...items);
    this.#columns.hidden = items.length === 0;
    setAttribute(this.#columns, "aria-label", t("facts.columns", { count: columns.length }));
  }

  #copyButton() {
    const text = say(el("span"), "act.copy");
    const node = el("button", { type: "button", class: "link" }, text);
    const said = el("span", { class: "visually-hidden", role: "status" });
    say(node, "act.copy_hash", {}, "aria-label");
    node.addEventListener("click", async () => {
      const done = await this.#copy();
      say(text, done ? "act.copied" : "act.copy_by_hand");
      put(said, text.textContent ?? "");
      setTimeout(() => {
        say(text, "act.copy");
        put(said, "");
      }, COPIED_MILLISECONDS);
    });
    return el("span", {}, node, said);
  }

  /** The clipboard is closed on plain http; then the hash is selected for the reader's own keys. @returns {Promise<boolean>} */
  async #copy() {
    try {
      await navigator.clipboard.writeText(this.#hash.textContent ?? "");
      return true;
    } catch {
      getSelection()?.selectAllChildren(this.#hash);
      return false;
    }
  }
}

/** Records as the file has them; of a grouped one also how many groups they hold, which subtotals are not. @param {Run} run @param {FileFacts} file */
function rowsOf(run, file) {
  if (file.rows === null) return t("facts.unknown");
  const { unit, logical_count: groups, logical_count_unit } = run.progress ?? { unit: "rows" };
  const rows = unit === "rows" ? formatNumber(file.rows) : formatCount(file.rows, unit);
  return typeof groups === "number" ? t("facts.rows_of_groups", { rows, groups: formatCount(groups, logical_count_unit) }) : rows;
}

/** @param {string} key @param {HTMLElement} value @param {string} [style] */
function fact(key, value, style = "") {
  return el("div", { class: `fact ${style}`.trim() }, say(el("dt"), key), value);
}
