// Calls of the JSON API, and loops that repeat them until the page is left.

export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

const GONE = new ApiError(0, "Unreachable", "the server does not answer");
const listeners = { signedOut: () => {}, connection: () => {} };
export const listen = (name, listener) => (listeners[name] = listener);

async function call(path, options) {
  let response;
  let answer;
  try {
    response = await fetch(`/console/api/${path}`, { credentials: "same-origin", cache: "no-store", ...options });
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw GONE; // there was no answer, or none of ours
  }
  if (response.ok) return answer;
  const error = new ApiError(response.status, answer.error, answer.message);
  if (error.status === 401 && path !== "session") listeners.signedOut(error);
  throw error;
}

const query = (params) => {
  const given = Object.entries(params ?? {}).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const get = (path, params, signal) => call(`${path}${query(params)}`, { signal });
export const send = (path, body, method = "POST") =>
  call(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
export const downloadUrl = (pointer) => `/console/api/event/data${query({ pointer })}`;

const isPassing = (error) => error.status === 0 || error.status === 429 || error.status >= 500;
const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
const visible = () =>
  document.hidden
    ? new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }))
    : Promise.resolve();

// Ask again and again. A server that is away is asked until it is back; any other error ends the loop.
export async function repeat(everyMs, signal, ask, failed) {
  let wait = 500;
  while (!signal.aborted) {
    await visible();
    try {
      const next = await ask(signal);
      listeners.connection(true);
      wait = 500;
      await pause(typeof next === "number" ? next : everyMs, signal);
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      if (!isPassing(error)) {
        listeners.connection(true);
        if (error.status !== 401) failed(error);
        return;
      }
      listeners.connection(false, error);
      await pause(wait, signal);
      wait = Math.min(wait * 2, 4000);
    }
  }
}
