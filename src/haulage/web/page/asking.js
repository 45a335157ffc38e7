// Questions that follow the form: the server is asked once the typing pauses, and only for what stands in the form now. What
// was asked before is given up, so the server ends its statement, and its answer is never heard. A hidden tab asks nothing.

const PAUSE_MILLISECONDS = 400; // After the last key before the server is asked.
const AGAIN_MILLISECONDS = 5_000; // After no answer, as the list of exports is read again.
const SLOW_MILLISECONDS = 10_000; // No answer for so long may be one that takes long: asked again, it would only take longer.

/**
 * What the form asks for, as far as it changes rows. All names are of the dataset.
 * @typedef {object} Wish
 * @property {Record<string, unknown>} parameters The parent is one of them.
 * @property {string[]} [columns] The columns, or the measures of groups.
 * @property {string[]} [group_by]
 * @property {string | string[][]} [subtotals]
 * @property {string[]} [pivot]
 */

/** @typedef {(signal: AbortSignal) => Promise<boolean | void>} Question It says its answer itself, unless the signal is aborted; true: there was none. */

export class LastQuestion {
  /** @type {Question | null} The one that has no answer yet. */
  #question = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pause;
  /** @type {AbortController | null} */
  #asked = null;

  constructor() {
    document.addEventListener("visibilitychange", this.#onVisibility);
  }

  /** @param {Question} question */
  ask(question) {
    this.drop();
    this.#question = question;
    this.#wait(PAUSE_MILLISECONDS);
  }

  drop() {
    this.#question = null;
    this.#giveUp();
  }

  end() {
    this.drop();
    document.removeEventListener("visibilitychange", this.#onVisibility);
  }

  #onVisibility = () => {
    if (document.hidden) this.#giveUp();
    else if (this.#question && !this.#asked) this.#wait(0);
  };

  #giveUp() {
    clearTimeout(this.#pause);
    this.#asked?.abort();
    this.#asked = null;
  }

  /** @param {number} milliseconds */
  #wait(milliseconds) {
    clearTimeout(this.#pause);
    if (!document.hidden) this.#pause = setTimeout(() => void this.#turn(), milliseconds);
  }

  async #turn() {
    const question = this.#question;
    if (!question) return;
    const asked = new AbortController();
    this.#asked = asked;
    const since = performance.now();
    let unanswered = false;
    try {
      unanswered = (await question(asked.signal)) === true && performance.now() - since < SLOW_MILLISECONDS;
    } catch (error) {
      if (!asked.signal.aborted) throw error;
    } finally {
      if (this.#asked === asked) {
        this.#asked = null;
        if (unanswered) this.#wait(AGAIN_MILLISECONDS);
        else this.#question = null;
      }
    }
  }
}

/**
 * A wish as the doors of counts and previews take it: a list of a parameter is its name several times.
 * @param {Wish} wish
 * @param {Record<string, number>} [more]
 */
export function asQuery({ parameters, columns, group_by, subtotals, pivot }, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  for (const [name, names] of Object.entries({ columns, group_by, pivot })) if (names?.length) query.set(name, names.join(","));
  if (subtotals) query.set("subtotals", typeof subtotals === "string" ? subtotals : subtotals.map(asLevel).join(";"));
  for (const [name, value] of Object.entries(more)) query.set(name, String(value));
  return query;
}

/** @param {string[]} level */
const asLevel = (level) => level.join(",") || "()";
