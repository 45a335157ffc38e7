// Turns a key into a session. The key is sent once and kept nowhere.

import { NoAnswer, Problem } from "./api.js";
import { el, put, say, setAttribute, setBusy, show } from "./dom.js";
import { formatSpan, t, wordsFor } from "./language.js";

/** @import {Api} from "./api.js" */

export class SignIn {
  #api;
  #done;
  #key = el("input", { class: "input", id: "key", type: "password", autocomplete: "off", spellcheck: "false", "aria-describedby": "key-error" });
  #error = el("p", { class: "field-error", id: "key-error", role: "alert", hidden: true });
  #ended = say(el("p", { class: "message", hidden: true }), "sign.ended");
  #linkOver = say(el("p", { class: "message", role: "alert", hidden: true }), "sign.link_over");
  #cameByOldLink = cameByLinkThatIsOver();
  #submit = el("button", { type: "submit", class: "button primary wide" }, say(el("span"), "sign.in"));

  /** @param {Api} api @param {() => void} done */
  constructor(api, done) {
    this.#api = api;
    this.#done = done;
    const label = say(el("label", { class: "label", for: "key" }), "sign.key");
    const field = el("div", { class: "field" }, label, this.#key, this.#error);
    const title = say(el("h1", { class: "panel-title" }), "sign.title");
    this.node = el("form", { class: "sign-in", novalidate: true }, title, say(el("p", { class: "lead" }), "sign.lead"));
    this.node.append(this.#ended, this.#linkOver, field, this.#submit);
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#ask();
    });
  }

  /** @param {boolean} ended A session was there before. */
  show(ended) {
    this.#ended.hidden = !ended;
    this.#linkOver.hidden = !this.#cameByOldLink;
    this.#cameByOldLink = false;
    show(this.node, true);
    this.#key.focus();
  }

  /** Whoever is signed in need not know of a link that was no use. */
  forgetLink() {
    this.#cameByOldLink = false;
  }

  async #ask() {
    if (this.#submit.getAttribute("aria-disabled") === "true") return;
    const key = this.#key.value.trim();
    this.#complain(key ? null : t("invalid.required"));
    if (!key) return;
    setBusy(this.#submit, true);
    try {
      await this.#api.signIn(key);
      this.#key.value = "";
      this.#done();
    } catch (error) {
      this.#complain(refusal(error));
    } finally {
      setBusy(this.#submit, false);
    }
  }

  /** @param {string | null} text */
  #complain(text) {
    put(this.#error, text ?? "");
    this.#error.hidden = text === null;
    setAttribute(this.#key, "aria-invalid", text === null ? null : "true");
    if (text !== null) this.#key.focus();
  }
}

/** The server sends a used or late sign-in link on to here. Said once: the address is cleared. */
function cameByLinkThatIsOver() {
  const here = new URL(location.href);
  if (here.searchParams.get("link") !== "over") return false;
  here.searchParams.delete("link");
  history.replaceState(null, "", here);
  return true;
}

/** @param {unknown} error */
function refusal(error) {
  if (error instanceof NoAnswer) return t("act.no_answer_plain");
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) return t("sign.refused");
  if (error.status === 404 || error.status === 405) return t("sign.elsewhere");
  const wait = error.retryAfterSeconds ? ` ${t("form.wait", { span: formatSpan(error.retryAfterSeconds) })}` : "";
  return wordsFor("problem", error.code, error.message) + wait;
}
