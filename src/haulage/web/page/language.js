// Which language the reader reads, and how numbers, sizes, times and our texts are said in it.

import { ENGLISH } from "./texts-en.js";
import { JAPANESE } from "./texts-ja.js";

const CHOICE_KEY = "haulage.language"; // In localStorage; without it the browser's languages decide.
const TEXTS = /** @type {Record<string, Record<string, string | string[]>>} */ ({ en: ENGLISH, ja: JAPANESE });

export const LANGUAGES = Object.freeze([
  { code: "en", name: "English" },
  { code: "ja", name: "日本語" },
]);

let language = firstLanguage();
/** @type {Set<() => void>} */
const listeners = new Set();

export const currentLanguage = () => language;

/** @param {string} code */
export function setLanguage(code) {
  if (!(code in TEXTS)) return;
  language = code;
  try {
    localStorage.setItem(CHOICE_KEY, code);
  } catch {
    // Storage may be forbidden; then the choice lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

/** @param {() => void} listener @returns {() => void} Call it to stop listening. */
export function onLanguage(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function firstLanguage() {
  let stored = null;
  try {
    stored = localStorage.getItem(CHOICE_KEY);
  } catch {
    // As above.
  }
  const wanted = [stored, ...navigator.languages, navigator.language].map(primary);
  return wanted.find((code) => code in TEXTS) ?? "en";
}

/** @param {string | null} tag */
function primary(tag) {
  return (tag ?? "").toLowerCase().split("-")[0] ?? "";
}

/** The reader's own variant of the language, so that en-GB gets its dates. */
function locale() {
  return navigator.languages.find((tag) => primary(tag) === language) ?? language;
}

/**
 * A text in the reader's language. Numbers among the facts are written as the reader writes them; `count` chooses the plural.
 * @param {string} key
 * @param {Record<string, unknown>} [facts]
 * @returns {string}
 */
export function t(key, facts = {}) {
  const text = TEXTS[language]?.[key] ?? ENGLISH[/** @type {keyof typeof ENGLISH} */ (key)] ?? key;
  const form = typeof text === "string" ? text : plural(text, facts["count"]);
  return form.replace(/\{(\w+)\}/g, (_, name) => {
    const fact = facts[name];
    return typeof fact === "number" ? formatNumber(fact) : String(fact ?? "");
  });
}

/** @param {string} key */
export const isSaid = (key) => key in ENGLISH || key in (TEXTS[language] ?? {});

/** @param {string[]} forms One, other. @param {unknown} count @returns {string} */
function plural(forms, count) {
  const one = new Intl.PluralRules(language).select(Number(count)) === "one";
  return (one ? forms[0] : forms[forms.length - 1]) ?? "";
}

/**
 * The words for a code of the server: in English the server's own sentence, which may hold facts that we do not know;
 * in other languages ours, else the server's.
 * @param {"failure" | "notice" | "problem"} kind
 * @param {string} code
 * @param {string | null | undefined} message
 * @param {Record<string, unknown>} [facts]
 */
export function wordsFor(kind, code, message, facts) {
  const ours = isSaid(`${kind}.${code}`) ? t(`${kind}.${code}`, facts) : null;
  const own = language === "en" ? [message, ours] : [ours, message];
  return own.find(Boolean) ?? t(`${kind}.unknown`, { code });
}

/** @type {Map<string, Intl.NumberFormat | Intl.DateTimeFormat>} */
const formatters = new Map(); // Making one is slow, and a list of cards needs hundreds a second.

/** @param {Intl.NumberFormatOptions} [options] */
function numbers(options = {}) {
  const key = `number ${locale()} ${JSON.stringify(options)}`;
  const made = formatters.get(key) ?? new Intl.NumberFormat(locale(), options);
  formatters.set(key, made);
  return /** @type {Intl.NumberFormat} */ (made);
}

/** @param {Intl.DateTimeFormatOptions} options */
function instants(options) {
  const key = `instant ${locale()} ${JSON.stringify(options)}`;
  const made = formatters.get(key) ?? new Intl.DateTimeFormat(locale(), options);
  formatters.set(key, made);
  return /** @type {Intl.DateTimeFormat} */ (made);
}

/** @param {number} value */
export function formatNumber(value) {
  return numbers().format(value);
}

/** As it fits beside a bar: two digits behind the point, long ones in short, and what is tiny or huge by its power of ten. @param {number} value */
export function formatShort(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return numbers({ notation: "scientific", maximumSignificantDigits: 4 }).format(value);
  if (size >= 1e6) return numbers({ notation: "compact", maximumSignificantDigits: 4 }).format(value);
  return numbers(size < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 2 }).format(value);
}

/** "a, b and c" in the reader's language. @param {string[]} items */
export function formatList(items) {
  return new Intl.ListFormat(locale(), { type: "conjunction" }).format(items);
}

/** A measured share, cut, never rounded up: 100 % is said only when all is done. @param {number} part @param {number} whole */
export function formatShare(part, whole) {
  const percent = part === whole ? 100 : Math.floor((part / whole) * 100);
  return numbers({ style: "percent" }).format(percent / 100);
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : 1;
  return `${numbers({ maximumFractionDigits: digits }).format(size)} ${units[unit]}`;
}

/** @param {number} seconds */
export function formatSpan(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return t("span.seconds", { count: whole });
  if (whole < 3600) return t("span.minutes", { count: Math.floor(whole / 60) });
  if (whole < 172_800) return t("span.hours", { count: Math.floor(whole / 3600), minutes: Math.floor((whole % 3600) / 60) });
  return t("span.days", { count: Math.floor(whole / 86_400) });
}

/** A time of day, with the date unless it is today, always with its zone. @param {string} instant RFC 3339. */
export function formatInstant(instant) {
  const when = new Date(instant);
  const today = when.toDateString() === new Date().toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const day = today ? {} : { year: "numeric", month: "short", day: "numeric" };
  return instants({ ...day, hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" }).format(when);
}

/** The reader's zone, by name. */
export const zoneName = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Rows, cells, records: a number with its unit. @param {number} count @param {string | null | undefined} unit */
export function formatCount(count, unit) {
  return isSaid(`unit.${unit}`) ? t(`unit.${unit}`, { count }) : `${formatNumber(count)} ${unit ?? ""}`.trim();
}
