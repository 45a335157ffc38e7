// Small hands for the document: make, fill, say, show, order. Whatever comes from outside goes in as text, never as markup.

import { t } from "./language.js";

/** @typedef {Node | string | null} Child */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value ?? null);
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** @param {Element} node @param {string} name @param {string | number | boolean | null} value */
export function setAttribute(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : String(value));
}

/** Write only what changed, so that a screen reader hears only what changed. @param {Node} node @param {string} text */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @type {WeakMap<Element, Map<string, {key: string, facts: Record<string, unknown>}>>} */
const said = new WeakMap();

/**
 * Say a text of ours in the reader's language, in the element or in one of its attributes, and remember it for `relabel`.
 * @template {Element} T
 * @param {T} node
 * @param {string} key
 * @param {Record<string, unknown>} [facts]
 * @param {string} [attribute]
 * @returns {T}
 */
export function say(node, key, facts = {}, attribute = "") {
  const texts = said.get(node) ?? new Map();
  said.set(node, texts.set(attribute, { key, facts }));
  node.setAttribute("data-said", "");
  if (attribute) setAttribute(node, attribute, t(key, facts));
  else put(node, t(key, facts));
  return node;
}

/** Say everything again after the language changed. @param {ParentNode} root */
export function relabel(root) {
  for (const node of root.querySelectorAll("[data-said]")) {
    for (const [attribute, { key, facts }] of said.get(node) ?? []) say(node, key, facts, attribute);
  }
}

/**
 * Show or hide. A focused element that goes away hands the focus to `heir`, so that the keyboard never falls out of the page.
 * @param {HTMLElement} node
 * @param {unknown} visible
 * @param {HTMLElement | null} [heir]
 */
export function show(node, visible, heir = null) {
  if (node.hidden === !visible) return;
  const root = /** @type {Document | ShadowRoot} */ (node.getRootNode());
  const focused = !visible && heir !== null && node.contains(root.activeElement);
  node.hidden = !visible;
  if (focused) heir.focus();
}

/**
 * Make the list's children these nodes, in this order, touching only what differs.
 * @param {Element} list
 * @param {Element[]} wanted
 */
export function arrange(list, wanted) {
  const keep = new Set(wanted);
  for (const child of [...list.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((node, index) => {
    if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
  });
}

/** @param {string} key @param {string} style @param {() => void} press @param {string} [symbol] */
export function button(key, style, press, symbol) {
  const node = el("button", { type: "button", class: `button ${style}`, part: "button" });
  if (symbol) node.append(icon(symbol));
  node.append(say(el("span"), key));
  node.addEventListener("click", () => {
    if (node.getAttribute("aria-disabled") !== "true") press();
  });
  return node;
}

/** A busy button keeps the focus, so it is never really `disabled`. @param {HTMLElement} node @param {boolean} busy */
export function setBusy(node, busy) {
  setAttribute(node, "aria-disabled", busy ? "true" : null);
}

const SHAPES = /** @type {Record<string, string>} */ ({
  queued: "M8 4.5V8l2.3 1.6M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  running: "M8 2a6 6 0 1 1-6 6",
  ready: "m5 8.2 2.1 2.1L11 6.2M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  failed: "M8 5v3.4M8 10.9v.1M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  cross: "m4.5 4.5 7 7m0-7-7 7",
  cancelled: "m6 6 4 4m0-4-4 4M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  expired: "M4.5 2.5h7M4.5 13.5h7M5.5 2.5v2.2L8 8l-2.5 3.3v2.2M10.5 2.5v2.2L8 8l2.5 3.3v2.2",
  warning: "M8 6.2v3M8 11.4v.1M7.1 2.9 1.9 12a1 1 0 0 0 .9 1.5h10.4a1 1 0 0 0 .9-1.5L8.9 2.9a1 1 0 0 0-1.8 0Z",
  download: "M8 2.5v7.4M5 7.2l3 3 3-3M2.8 13.2h10.4",
  copy: "M5.5 5.5v-2a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-2M3.5 5.5h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-6a1 1 0 0 1-1-1v-6a1 1 0 0 1 1-1Z",
  again: "M13.2 8a5.2 5.2 0 1 1-1.6-3.8M13.4 2.2v2.9h-2.9",
  remove: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5M6.8 7v3.6M9.2 7v3.6",
  lock: "M4 7.5h8v5.5H4zM5.7 7.5V5.3a2.3 2.3 0 0 1 4.6 0v2.2",
  chevron: "m4.5 6.5 3.5 3.5 3.5-3.5",
  up: "M8 12.5v-9M4.5 7 8 3.5 11.5 7",
  down: "M8 3.5v9M4.5 9 8 12.5 11.5 9",
  plus: "M8 3.5v9M3.5 8h9",
  export: "M8 10V2.6M5 5.4l3-3 3 3M3 9.5V12a1.4 1.4 0 0 0 1.4 1.4h7.2A1.4 1.4 0 0 0 13 12V9.5",
});

/** @param {string} name */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(space, "path");
  line.setAttribute("d", SHAPES[name] ?? "");
  drawing.append(line);
  return drawing;
}
