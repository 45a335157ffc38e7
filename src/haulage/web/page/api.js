// The one client of the HTTP API: where it is, how it is asked, what its refusals mean and what time it is there.
// Every request ends: it is given up after 15 s. No answer and a refusal are different things and stay different.

/** @import {Counts, Dataset, ExportRequest, PreviewOf, Run, RunPage, Session, Storage} from "./contract.js" */

const ANSWER_MILLISECONDS_MAX = 15_000; // One request, its body included.
const READINGS_MAX = 32; // Paths whose last answer is kept for If-None-Match.

/** The server answered, and said no. `detail` is its public sentence, `errors` point at members of the request. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{title?: string, detail?: string, code?: string, errors?: {pointer: string, detail: string}[]}} body
   * @param {number | null} retryAfterSeconds
   */
  constructor(status, body, retryAfterSeconds) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.errors = Array.isArray(body.errors) ? body.errors : [];
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Nobody answered in time: whether the server acted is not known. */
export class NoAnswer extends Error {}

/**
 * The server's time, learned from Date headers. Such a header is cut to the second, so each answer only says
 * "between these two"; the intervals of several answers are intersected. The reader's own clock is never asked.
 */
export class ServerClock {
  #earliest = -Infinity;
  #latest = Infinity;

  /** @param {string | null} header @param {number} sentAt @param {number} receivedAt Both of performance.now(). */
  learn(header, sentAt, receivedAt) {
    const said = header === null ? NaN : Date.parse(header);
    if (Number.isNaN(said)) return;
    const [earliest, latest] = [said - receivedAt, said + 1000 - sentAt];
    const agrees = earliest <= this.#latest && latest >= this.#earliest;
    this.#earliest = agrees ? Math.max(this.#earliest, earliest) : earliest; // Else one clock jumped: start over.
    this.#latest = agrees ? Math.min(this.#latest, latest) : latest;
  }

  /** @returns {number | null} Milliseconds since the epoch, or null while nothing was heard. */
  now() {
    if (this.#latest === Infinity) return null;
    return performance.now() + (this.#earliest + this.#latest) / 2;
  }

  /** @param {string | null} instant @returns {number | null} Whole seconds from `instant` to now; negative when it is still to come. */
  secondsSince(instant) {
    const now = this.now();
    if (now === null || !instant) return null;
    return Math.floor((now - Date.parse(instant)) / 1000);
  }
}

/**
 * Where the API is: the attribute, else what the server wrote into the page, else beside this module.
 * @param {string | null} [attribute]
 * @returns {string} An absolute URL that ends in a slash.
 */
export function findBase(attribute) {
  const written = document.querySelector('meta[name="haulage-api"]')?.getAttribute("content");
  const filledIn = written && !written.includes("{{") ? written : null;
  const found = attribute
    ? new URL(attribute, document.baseURI)
    : filledIn
      ? new URL(filledIn, document.baseURI)
      : new URL("../", import.meta.url);
  return found.href.endsWith("/") ? found.href : `${found.href}/`;
}

/** @type {Map<string, Api>} */
const clients = new Map();

export class Api {
  clock = new ServerClock();
  /** @type {Session | null} */
  session = null;
  /** @type {Map<string, {etag: string, body: unknown}>} */
  #readings = new Map();

  /** @param {string} base */
  constructor(base) {
    this.base = base;
  }

  /** One client per API and document, so that several elements share session, clock and readings. @param {string} base */
  static at(base) {
    const client = clients.get(base) ?? new Api(base);
    clients.set(base, client);
    return client;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<Session>} */
  async readSession(signal) {
    const { body } = await this.#ask("GET", "session", { signal });
    if (body.account === null && body.tenant === null) throw new Problem(401, { code: "unauthenticated" }, null);
    this.session = body;
    return body;
  }

  /** @param {string} key */
  async signIn(key) {
    this.#readings.clear();
    this.session = (await this.#ask("POST", "session", { body: { key } })).body;
  }

  async signOut() {
    await this.#ask("DELETE", "session");
    this.session = null;
    this.#readings.clear();
  }

  /** @param {AbortSignal} [signal] @returns {Promise<Dataset[]>} */
  async datasets(signal) {
    return (await this.#ask("GET", "datasets", { signal })).body.items;
  }

  /** @param {string} dataset @param {URLSearchParams} query @param {AbortSignal} signal @returns {Promise<Counts>} */
  async counts(dataset, query, signal) {
    return (await this.#ask("GET", `datasets/${encodeURIComponent(dataset)}/counts?${query}`, { signal })).body;
  }

  /** @param {string} dataset @param {URLSearchParams} query @param {AbortSignal} signal @returns {Promise<PreviewOf>} */
  async preview(dataset, query, signal) {
    return (await this.#ask("GET", `datasets/${encodeURIComponent(dataset)}/preview?${query}`, { signal })).body;
  }

  /**
   * Ask for an export. The key belongs to one click; where no answer came, the same key is sent again, so that a
   * request whose answer was lost never becomes two runs.
   * @param {ExportRequest} request
   * @param {string} key
   * @returns {Promise<{run: Run, fresh: boolean}>} `fresh` is false where such an export was under way already.
   */
  async request(request, key) {
    const send = () => this.#ask("POST", "exports", { body: request, headers: { "Idempotency-Key": key } });
    const { status, body } = await send().catch((error) => {
      if (error instanceof NoAnswer) return send();
      throw error;
    });
    return { run: body, fresh: status === 202 };
  }

  /** @param {Record<string, string | number | null>} query @param {AbortSignal} [signal] @returns {Promise<RunPage>} */
  runs(query, signal) {
    const given = Object.entries(query).filter(([, value]) => value !== null && value !== "");
    return this.#readAgain(`exports?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`, signal);
  }

  /** @param {Run} run @param {AbortSignal} [signal] @returns {Promise<Run>} */
  run(run, signal) {
    return this.#readAgain(`exports/${encodeURIComponent(run.token)}`, signal);
  }

  /** @param {Run} run @returns {Promise<Run>} */
  async cancel(run) {
    return (await this.#ask("DELETE", `exports/${encodeURIComponent(run.token)}`)).body;
  }

  /** @param {Run} run @returns {Promise<Run>} */
  async expire(run) {
    return (await this.#ask("POST", `exports/${encodeURIComponent(run.token)}/expire`)).body;
  }

  /** A new link for one download; links are short-lived, so none is ever kept. @param {Run} run @returns {Promise<string>} */
  async mintFile(run) {
    const { body } = await this.#ask("POST", `exports/${encodeURIComponent(run.token)}/file`);
    return new URL(body.url, this.base).href;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<Storage>} */
  async storage(signal) {
    return (await this.#ask("GET", "storage", { signal })).body;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<any>} */
  async workers(signal) {
    return (await this.#ask("GET", "workers", { signal })).body;
  }

  /** GET with If-None-Match: an unchanged answer is the very same object. @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
  async #readAgain(path, signal) {
    const kept = this.#readings.get(path);
    const headers = kept ? { "If-None-Match": kept.etag } : undefined;
    const { status, body, etag } = await this.#ask("GET", path, { headers, signal });
    if (status === 304 && kept) return kept.body;
    this.#readings.delete(path);
    if (etag) this.#readings.set(path, { etag, body });
    if (this.#readings.size > READINGS_MAX) this.#readings.delete(this.#readings.keys().next().value ?? "");
    return body;
  }

  /**
   * One request. A refused CSRF token is renewed once: another tab may have signed in since.
   * @param {string} method
   * @param {string} path
   * @param {{body?: object, headers?: Record<string, string>, signal?: AbortSignal}} [how]
   * @returns {Promise<{status: number, body: any, etag: string | null}>}
   */
  async #ask(method, path, how = {}) {
    if (method !== "GET" && !this.session && path !== "session") await this.readSession();
    try {
      return await this.#send(method, path, how);
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== "csrf" || path === "session") throw error;
      await this.readSession();
      return this.#send(method, path, how);
    }
  }

  /** @param {string} method @param {string} path @param {{body?: object, headers?: Record<string, string>, signal?: AbortSignal}} how */
  async #send(method, path, { body, headers, signal }) {
    const given = new Headers({ Accept: "application/json", ...headers });
    if (body) given.set("Content-Type", "application/json");
    if (method !== "GET" && this.session?.csrf) given.set("X-CSRF-Token", this.session.csrf);
    const limit = new AbortController();
    const abort = () => limit.abort();
    const timer = setTimeout(abort, ANSWER_MILLISECONDS_MAX);
    signal?.addEventListener("abort", abort);
    const sentAt = performance.now();
    try {
      const response = await fetch(new URL(path, this.base), {
        method,
        headers: given,
        body: body && JSON.stringify(body),
        signal: limit.signal,
        credentials: "same-origin",
        cache: "no-store",
      });
      this.clock.learn(response.headers.get("Date"), sentAt, performance.now());
      return await understand(response);
    } catch (error) {
      if (error instanceof Problem || error instanceof NoAnswer || signal?.aborted) throw error;
      throw new NoAnswer(String(error));
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }
}

/** @param {Response} response @returns {Promise<{status: number, body: any, etag: string | null}>} */
async function understand(response) {
  const { status } = response;
  const etag = response.headers.get("ETag");
  if (status === 304 || status === 204) return { status, body: null, etag };
  const spoken = /\bjson\b/.test(response.headers.get("Content-Type") ?? "");
  if (response.ok && spoken) return { status, body: await response.json(), etag };
  const retryAfter = secondsToWait(response.headers);
  // A gateway that speaks for a dead server is not the server's answer, and neither is a page of HTML.
  if (!spoken && retryAfter === null && (status >= 502 || response.ok)) throw new NoAnswer(`HTTP ${status}`);
  throw new Problem(status, spoken ? await response.json() : {}, retryAfter);
}

/** Retry-After, which is seconds, or a date of the server's clock. @param {Headers} headers @returns {number | null} */
function secondsToWait(headers) {
  const asked = headers.get("Retry-After");
  if (asked === null) return null;
  const seconds = /^\d+$/.test(asked.trim())
    ? Number(asked)
    : (Date.parse(asked) - Date.parse(headers.get("Date") ?? "")) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.ceil(seconds)) : null;
}

/** @returns {string} A key that no other click has. randomUUID is missing on plain http, so it is not relied on. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
