// The runs as last read: newest first, never older than what was read before. Shared by the page (its list) and the element
// (its one run). It keeps, compares and tells; it never decides what a run has become.

import { Problem } from "./api.js";
import { isActive } from "./card.js";

/** @import {Api} from "./api.js" */
/** @import {Run} from "./contract.js" */

const PAGE_SIZE = 20;
const PAGE_SIZE_MAX = 200; // The API's own bound; an operator may have set a lower one.
const WHOLE_EVERY_MILLISECONDS = 5_000; // In between only the newest page and what is active are read.

/** @typedef {{run: Run, heardAt: number}} Known */

/** Newest first, in the order of the API: (requested_at, id). @param {Known} one @param {Known} other */
function newerFirst({ run: one }, { run: other }) {
  const apart = Date.parse(other.requested_at) - Date.parse(one.requested_at);
  return apart || (one.id < other.id ? 1 : -1);
}

export class RunBook {
  #api;
  #moved;
  /** @type {Map<string, Known>} */
  #known = new Map();
  #filter = { state: "", dataset: "", parent: "" };
  #complete = true;
  #missing = false;
  /** @type {string | null} */
  #tail = null;
  #wholeAt = -Infinity;
  #limitMax = PAGE_SIZE_MAX;
  #begun = false;
  #edition = 0; // Counts changes of the filter, so that an answer to the old one is dropped.

  /**
   * @param {Api} api
   * @param {(run: Run, before: Run["state"]) => void} moved A run that was read in one state was read in another.
   */
  constructor(api, moved) {
    this.#api = api;
    this.#moved = moved;
  }

  /** @returns {Known[]} */
  get newestFirst() {
    return [...this.#known.values()].sort(newerFirst);
  }

  get hasMore() {
    return this.#tail !== null;
  }

  /** Nothing was read yet, so nothing can be called empty. */
  get begun() {
    return this.#begun;
  }

  /** The parent whose runs are asked for is not there, or not the reader's. */
  get missing() {
    return this.#missing;
  }

  get active() {
    return [...this.#known.values()].some(({ run }) => isActive(run));
  }

  /**
   * @param {{state: string, dataset: string, parent: string}} filter
   * @param {boolean} [complete] Without it nothing is read: the runs of a parent are listed by it, and none is named yet.
   */
  filterBy(filter, complete = true) {
    this.#filter = filter;
    this.#complete = complete;
    this.#edition += 1;
    this.forget();
  }

  forget() {
    this.#known.clear();
    this.#tail = null;
    this.#begun = !this.#complete;
    this.#missing = false;
    this.#wholeAt = -Infinity;
  }

  /** Read the newest page, at times all that is shown, and every active run that was not among them. @param {AbortSignal} signal */
  async read(signal) {
    if (!this.#complete) return;
    const edition = this.#edition;
    const whole = performance.now() - this.#wholeAt >= WHOLE_EVERY_MILLISECONDS;
    const limit = whole ? Math.min(this.#limitMax, Math.max(PAGE_SIZE, this.#known.size)) : PAGE_SIZE;
    const page = await this.#readPage(limit, signal).catch((error) => {
      if (!(error instanceof Problem) || error.status !== 404 || this.#filter.parent === "") throw error;
      return null;
    });
    if (edition !== this.#edition) return;
    if (page === null) {
      this.forget();
      this.#begun = this.#missing = true;
      return;
    }
    this.#missing = false;
    const heardAt = performance.now();
    if (whole) this.#wholeAt = heardAt;
    this.#begun = true;
    for (const run of page.items) this.take(run, heardAt);
    this.#forgetMissing(page.items, page.next_cursor);
    const listed = new Set(page.items.map((run) => run.id));
    const others = [...this.#known.values()].filter(({ run }) => isActive(run) && !listed.has(run.id));
    await Promise.all(others.map(({ run }) => this.#readOne(run, signal)));
  }

  /** @param {number} limit @param {AbortSignal} signal */
  async #readPage(limit, signal) {
    try {
      return await this.#api.runs({ ...this.#filter, limit }, signal);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 422 || limit <= PAGE_SIZE) throw error;
      this.#limitMax = PAGE_SIZE;
      return this.#api.runs({ ...this.#filter, limit: PAGE_SIZE }, signal);
    }
  }

  /** The next older page. */
  async readMore() {
    const edition = this.#edition;
    const page = await this.#api.runs({ ...this.#filter, limit: PAGE_SIZE, cursor: this.#tail });
    if (edition !== this.#edition) return;
    const heardAt = performance.now();
    for (const run of page.items) this.take(run, heardAt);
    this.#tail = page.next_cursor;
  }

  /** Keep what was read, unless something newer is known. @param {Run} run @param {number} [heardAt] */
  take(run, heardAt = performance.now()) {
    const before = this.#known.get(run.id)?.run;
    if (before && before.revision > run.revision) return;
    const same = before && before.revision === run.revision && !isActive(run); // Then nothing has to be drawn.
    this.#known.set(run.id, { run: same ? before : run, heardAt });
    if (before && before.state !== run.state) this.#moved(run, before.state);
  }

  /** @param {Run} run @param {AbortSignal} signal */
  async #readOne(run, signal) {
    try {
      this.take(await this.#api.run(run, signal));
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 404) throw error;
      this.#known.delete(run.id);
    }
  }

  /** What stands between the runs just read, or after the last one of all, is gone. @param {Run[]} items @param {string | null} next */
  #forgetMissing(items, next) {
    const listed = new Set(items.map((run) => run.id));
    const last = items.at(-1);
    let older = 0;
    for (const known of this.newestFirst) {
      if (listed.has(known.run.id)) continue;
      const beyond = next !== null && last !== undefined && newerFirst({ run: last, heardAt: 0 }, known) < 0;
      if (beyond) older += 1;
      else if (!isActive(known.run)) this.#known.delete(known.run.id); // An active one is asked for by itself.
    }
    if (older === 0) this.#tail = next;
  }
}

/**
 * "Look": tells the other tabs of this reader that something was changed here. It carries nothing, because a reader always
 * reads the server again.
 */
export class Hints {
  #channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("haulage");

  /** @param {() => void} look */
  constructor(look) {
    this.#channel?.addEventListener("message", look);
  }

  send() {
    this.#channel?.postMessage("look");
  }

  close() {
    this.#channel?.close();
  }
}
