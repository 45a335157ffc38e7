// One line that says how the connection is, in words, and is heard when that changes but not at each second of it.

import { el, put, setAttribute } from "./dom.js";
import { formatSpan, t, wordsFor } from "./language.js";

/** @import {Connection} from "./poller.js" */

export class ConnectionLine {
  #words = el("span", { role: "status" });
  #seconds = el("span", { class: "connection-seconds" });
  #kind = "fine";

  constructor() {
    this.node = el("div", { class: "connection", hidden: true }, this.#words, this.#seconds);
  }

  /** No run was read just now, so what is shown is what was said last. */
  get deaf() {
    return this.#kind !== "fine" && this.#kind !== "back";
  }

  /** @param {Connection} connection */
  say(connection) {
    this.#kind = connection.kind;
    this.node.hidden = connection.kind === "fine";
    setAttribute(this.node, "data-kind", connection.kind);
    put(this.#words, words(connection));
    put(this.#seconds, connection.kind === "lost" ? t("connection.lost_for", { span: formatSpan(connection.seconds) }) : "");
    if (connection.kind === "asked") put(this.#seconds, t("connection.asked_for", { span: formatSpan(connection.seconds) }));
  }
}

/** @param {Connection} connection */
function words(connection) {
  if (connection.kind === "fine") return "";
  const detail = "problem" in connection ? wordsFor("problem", connection.problem.code, connection.problem.message) : "";
  return t(`connection.${connection.kind}`, { detail });
}
