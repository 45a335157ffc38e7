// The top of the page: whose page it is, who works, in which language, who is signed in.

import { button, el, put, say, setAttribute } from "./dom.js";
import { LANGUAGES, currentLanguage, onLanguage, setLanguage, t } from "./language.js";

/** @import {Session} from "./contract.js" */

export class Header {
  #workers = el("span", { class: "workers", hidden: true });
  #account = el("span", { class: "account", hidden: true });
  #out;
  #count = 0;
  /** Whether the server said once that this reader may not see the workers; then it is not asked again. */
  hidesWorkers = false;

  /** @param {() => void} signOut */
  constructor(signOut) {
    this.#out = button("sign.out", "quiet", signOut);
    this.#out.hidden = true;
    const mark = el("img", { src: new URL("favicon.svg", import.meta.url).href, alt: "", width: 26, height: 26 });
    const brand = el("span", { class: "brand" }, mark, "Haulage");
    const tools = el("div", { class: "header-tools" }, this.#workers, languageSwitch(), this.#account, this.#out);
    this.node = el("header", { class: "header" }, el("div", { class: "header-inner" }, brand, tools));
    onLanguage(() => this.#sayWorkers());
  }

  /** @param {Session | null} session */
  drawSession(session) {
    this.#account.hidden = !session?.account;
    put(this.#account, [session?.tenant, session?.account].filter(Boolean).join(" / "));
    this.#out.hidden = !session || session.sign_out === false;
    // Only an operator may see the workers; to ask for anybody else would be an error on every page.
    const grants = session?.grants ?? [];
    this.hidesWorkers = !grants.includes("operator") && !grants.includes("*");
    if (!session) this.#workers.hidden = true;
  }

  /** @param {{items?: unknown[], workers?: unknown} | null} answer */
  drawWorkers(answer) {
    this.hidesWorkers = answer === null;
    const items = answer?.items ?? answer?.workers;
    const known = Array.isArray(items) || typeof items === "number";
    this.#workers.hidden = !known;
    if (!known) return;
    this.#count = Array.isArray(items) ? items.length : items;
    this.#sayWorkers();
  }

  #sayWorkers() {
    setAttribute(this.#workers, "data-alive", String(this.#count > 0));
    put(this.#workers, this.#count ? t("page.workers", { count: this.#count }) : t("page.no_workers"));
  }
}

function languageSwitch() {
  const node = say(el("select", { class: "input small", id: "language" }), "page.language", {}, "aria-label");
  for (const { code, name } of LANGUAGES) node.append(el("option", { value: code, lang: code }, name));
  node.value = currentLanguage();
  node.addEventListener("change", () => setLanguage(node.value));
  return node;
}
