// The server's JSON interface: the only thing that the page talks to.

const BASE = "/api/v1";
const TRIES = 3;

/** What the server refused, in its own words. */
export class ApiError extends Error {
  constructor(status, { code = "unknown", message = "the server gave no reason", field = null } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

/** GET as JSON. `params`: an object; null values are left out, arrays repeat. `options.signal` stops it. */
export async function get(path, params, options = {}) {
  return (await ask("GET", path, { params, ...options })).json();
}

/** POST JSON, answer JSON (null where there is none). `options.keepalive`: it outlives the page. */
export async function post(path, body, params, options = {}) {
  const given = body === undefined || body === null ? {} : { body: JSON.stringify(body), type: "application/json" };
  return answer(await ask("POST", path, { params, ...given, ...options }));
}

/** Exchange the token of the link for the cookie. A token needs no escapes, other text does: headers take no umlauts. */
export async function signIn(token) {
  await ask("POST", "/session", { more: { Authorization: `Bearer ${encodeURIComponent(token)}` } });
}

/** POST bytes (a Blob, an ArrayBuffer) of a type, answer JSON. */
export async function send(path, bytes, type, params, options = {}) {
  return answer(await ask("POST", path, { params, body: bytes, type, ...options }));
}

/** DELETE, answer JSON. */
export async function remove(path, params, options = {}) {
  return answer(await ask("DELETE", path, { params, ...options }));
}

/** Bytes: POST where there is a body, else GET. */
export async function blob(path, body, options = {}) {
  const given = body === undefined || body === null ? ["GET", {}] : ["POST", { body: JSON.stringify(body), type: "application/json" }];
  return (await ask(given[0], path, { ...given[1], ...options })).blob();
}

/** The address of a picture, for `src`. */
export function picture(hash, size) {
  return `${BASE}/pictures/${encodeURIComponent(hash)}${size ? `?size=${size}` : ""}`;
}

/** The address of anything else, for a download link. */
export function address(path, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") query.append(name, one);
  }
  const text = query.toString();
  return `${BASE}/${path.replace(/^\/?(api\/v1\/)?/, "")}${text ? `?${text}` : ""}`;
}

/** Nothing came back at all. */
export function unreachable() {
  return new ApiError(0, { code: "unreachable", message: "The server does not answer. Is `provnet app` still running?" });
}

/** Whether an error only says that somebody asked for something newer. */
export function stopped(error) {
  return error?.name === "AbortError";
}

async function ask(method, path, { params, body, type, more, signal, keepalive } = {}) {
  for (let tried = 0; ; tried += 1) {
    const headers = { ...(type ? { "Content-Type": type } : {}), ...more };
    let reply;
    try {
      reply = await fetch(address(path, params), { method, body, headers, signal, keepalive, credentials: "same-origin", cache: "no-store" });
    } catch (error) {
      if (stopped(error)) throw error;
      throw unreachable();
    }
    if (reply.ok) return reply;
    const wait = Number(reply.headers.get("Retry-After"));
    const record = await reply.json().catch(() => ({}));
    if (reply.status === 503 && wait > 0 && tried < TRIES) {
      await pause(wait * 1000, signal);
      continue;
    }
    if (reply.status === 401) window.dispatchEvent(new CustomEvent("provnet:no-token"));
    throw new ApiError(reply.status, record.error);
  }
}

async function answer(reply) {
  const text = await reply.text();
  return text ? JSON.parse(text) : null;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
