// One loop that keeps reading, for the page and for the element. It decides only when to read and what to say about the
// connection; what is read, and whether anything is under way, is the reader's business.
//
//   answered: next read in 0.8 s while something is under way, else in 5 s, or when the server asked to
//   no answer: again, a little later each time; "waiting" after 5 s of silence, "lost" after 30 s
//   answered again after "lost": "back" for a moment
//   tab hidden: paused, and the read under way is dropped; visible: at once

import { NoAnswer, Problem } from "./api.js";

const ACTIVE_MILLISECONDS = 800;
const IDLE_MILLISECONDS = 5_000;
const WAITING_AFTER_MILLISECONDS = 5_000;
const LOST_AFTER_MILLISECONDS = 30_000;
const BACK_SHOWN_MILLISECONDS = 8_000;

/**
 * @typedef {{kind: "fine"} | {kind: "waiting"} | {kind: "lost", seconds: number} | {kind: "back"}
 *   | {kind: "asked", seconds: number, problem: Problem} | {kind: "refused", problem: Problem}} Connection
 */

export class Poller {
  #read;
  #report;
  #idle;
  /** @type {Connection} */
  #connection = { kind: "fine" };
  #running = false;
  #reading = false;
  #again = false;
  #failures = 0;
  /** @type {number | null} When the first read began that nobody has answered since. */
  #silentSince = null;
  #backUntil = 0;
  #notBefore = 0;
  /** @type {AbortController | null} */
  #abort = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #next;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #judging;

  /**
   * @param {(signal: AbortSignal) => Promise<"active" | "idle" | "stop">} read
   * @param {(connection: Connection) => void} report Told when the connection's state changes, and each second while waiting.
   * @param {number} [idle] Milliseconds between two reads while nothing is under way.
   */
  constructor(read, report, idle = IDLE_MILLISECONDS) {
    this.#read = read;
    this.#report = report;
    this.#idle = idle;
  }

  start() {
    if (this.#running) return this.now();
    this.#running = true;
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#judging = setInterval(() => this.#judge(), 1000);
    this.now();
  }

  stop() {
    this.#running = false;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    clearInterval(this.#judging);
    this.#pause();
    this.#tell({ kind: "fine" });
  }

  /** Read at once, or once more right after the read under way, whose answer may be from before. */
  now() {
    if (!this.#running || document.hidden) return;
    if (this.#reading) this.#again = true;
    else this.#schedule(Math.max(0, this.#notBefore - performance.now()));
  }

  #onVisibility = () => (document.hidden ? this.#pause() : this.now());

  #pause() {
    clearTimeout(this.#next);
    this.#abort?.abort();
    this.#silentSince = null; // Silence counts only while somebody is asking.
  }

  /** @param {number} milliseconds */
  #schedule(milliseconds) {
    clearTimeout(this.#next);
    this.#next = setTimeout(() => this.#turn(), milliseconds);
  }

  async #turn() {
    const abort = new AbortController();
    this.#abort = abort;
    this.#reading = true;
    this.#again = false;
    this.#silentSince ??= performance.now();
    let wait = this.#idle;
    try {
      const found = await this.#read(abort.signal);
      if (found === "stop") this.stop();
      if (found === "active") wait = ACTIVE_MILLISECONDS;
      if (!abort.signal.aborted) this.#answered();
    } catch (error) {
      if (!abort.signal.aborted) wait = this.#failed(error);
    } finally {
      this.#reading = false;
    }
    if (this.#running && !document.hidden) this.#schedule(this.#again || abort.signal.aborted ? 0 : wait);
  }

  #answered() {
    const wasLost = this.#connection.kind === "lost";
    this.#failures = 0;
    this.#silentSince = null;
    this.#notBefore = 0;
    if (wasLost) this.#backUntil = performance.now() + BACK_SHOWN_MILLISECONDS;
    this.#tell(performance.now() < this.#backUntil ? { kind: "back" } : { kind: "fine" });
  }

  /** @param {unknown} error @returns {number} Milliseconds to wait. */
  #failed(error) {
    if (error instanceof NoAnswer) {
      this.#failures += 1;
      this.#judge();
      return Math.min(IDLE_MILLISECONDS, ACTIVE_MILLISECONDS * this.#failures);
    }
    this.#silentSince = null; // A refusal is an answer.
    if (!(error instanceof Problem)) {
      console.error(error); // A fault of this page must not look like one of the network.
      return IDLE_MILLISECONDS;
    }
    const seconds = error.retryAfterSeconds ?? IDLE_MILLISECONDS / 1000;
    this.#notBefore = performance.now() + seconds * 1000;
    const asked = error.status === 429 || error.status === 503;
    this.#tell(asked ? { kind: "asked", seconds, problem: error } : { kind: "refused", problem: error });
    return seconds * 1000;
  }

  /** Once a second: how long has nobody answered? */
  #judge() {
    if (this.#connection.kind === "back" && performance.now() >= this.#backUntil) this.#tell({ kind: "fine" });
    if (this.#connection.kind === "asked") {
      const left = Math.ceil((this.#notBefore - performance.now()) / 1000);
      if (left > 0) this.#tell({ ...this.#connection, seconds: left });
    }
    if (this.#silentSince === null) return;
    const silent = performance.now() - this.#silentSince;
    if (silent >= LOST_AFTER_MILLISECONDS) this.#tell({ kind: "lost", seconds: Math.floor(silent / 1000) });
    else if (silent >= WAITING_AFTER_MILLISECONDS) this.#tell({ kind: "waiting" });
  }

  /** @param {Connection} connection */
  #tell(connection) {
    const ticking = "seconds" in connection;
    if (!ticking && connection.kind === this.#connection.kind && connection.kind !== "refused") return;
    this.#connection = connection;
    this.#report(connection);
  }
}
