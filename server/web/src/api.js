// What the page says to its server: requests, streams of events, the key, and what is known of the server. Paths are relative to
// the page, so that it works behind a proxy under any prefix.
import { store } from "./store.js";

const KEY = "descent-key";
const RETRY_MS = 2000;

// Where the tab may not keep anything, the key lives as long as the page.
function kept() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export const key = store(kept());
export const connection = store("connecting"); // connecting, ready, loading (models), key (wanted), refused, lost
export const models = store([]); // of /v1/models
export const props = store(null); // of /props

export function setKey(text) {
  key.set(text);
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    // kept in memory
  }
  connect();
}

// `kind`: refused (an answer that is an error), failed (an error in a stream), cut (a stream that ended too early), lost (no
// connection).
export class ApiError extends Error {
  constructor(kind, message, { status = 0, code = null, param = null } = {}) {
    super(message);
    Object.assign(this, { kind, status, code, param });
  }
}

async function refusal(answer) {
  const text = await answer.text().catch(() => "");
  let error = null;
  try {
    ({ error } = JSON.parse(text));
  } catch {
    // not from the server itself: a proxy's page
  }
  const message = error?.message ?? `the server answered ${answer.status} ${answer.statusText}`.trim();
  return new ApiError("refused", message, { status: answer.status, code: error?.code, param: error?.param });
}

// The answer, whose status is 200. A GET, or a POST of `body`.
export async function request(path, { body, signal } = {}) {
  const headers = {};
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init = { method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), init);
  } catch (error) {
    if (signal?.aborted) throw error;
    lost();
    throw new ApiError("lost", "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const error = await refusal(answer);
  if (error.status === 401) connection.set("key");
  throw error;
}

export async function json(path, how) {
  const answer = await request(path, how);
  try {
    return await answer.json();
  } catch (error) {
    if (how?.signal?.aborted) throw error;
    lost();
    throw new ApiError("cut", "The connection ended before the answer did.");
  }
}

// The data of each event, parsed, until [DONE]. An error among them, or an end without [DONE], is thrown.
export async function* stream(path, body, signal) {
  const answer = await request(path, { body: { ...body, stream: true }, signal });
  const cut = () => new ApiError("cut", "The connection ended before the answer did.");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (signal?.aborted) throw error;
      lost();
      throw cut();
    }
    if (piece.done) {
      lost();
      throw cut();
    }
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError("failed", event.error.message, event.error);
      yield event;
    }
  }
}

// ---- Whether the server is there ------------------------------------------------------------------------------------

let retry = 0;
let asking = false;

// Asks what is served; as long as nobody answers, or models are loading, again in a while.
export async function connect() {
  if (asking) return;
  asking = true;
  clearTimeout(retry);
  try {
    const [list, limits] = await Promise.all([json("v1/models"), json("props")]);
    models.set(list.data);
    props.set(limits);
    connection.set("ready");
  } catch (error) {
    const state = { 401: "key", 503: "loading" }[error.status] ?? (error.status ? "refused" : "lost");
    connection.set(state);
    if (state !== "key") retry = setTimeout(connect, RETRY_MS);
  } finally {
    asking = false;
  }
}

function lost() {
  if (asking) return; // connect() says what that means
  connection.set("lost");
  clearTimeout(retry);
  retry = setTimeout(connect, RETRY_MS);
}
