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
  connection.set("connecting");
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

// `used` is the key that was sent: what the server says of it counts only until the user gives another.
function refusal(status, reason, text, used) {
  let error = null;
  try {
    ({ error } = JSON.parse(text));
  } catch {
    // not from the server itself: a proxy's page
  }
  if (status === 401 && used === key.value) connection.set("key");
  const message = error?.message ?? `the server answered ${status} ${reason}`.trim();
  return new ApiError("refused", message, { status, code: error?.code, param: error?.param });
}

function headersFor(body) {
  const headers = {};
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return headers;
}

function unreachable() {
  lost();
  return new ApiError("lost", "The server cannot be reached.");
}

function cut() {
  lost();
  return new ApiError("cut", "The connection ended before the answer did.");
}

// The answer, whose status is 200. A GET, or a POST of `body`.
export async function request(path, { body, signal } = {}) {
  const used = key.value;
  const init = { method: body === undefined ? "GET" : "POST", headers: headersFor(body), signal, cache: "no-store" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), init);
  } catch (error) {
    throw signal?.aborted ? error : unreachable();
  }
  if (answer.ok) return answer;
  throw refusal(answer.status, answer.statusText, await answer.text().catch(() => ""), used);
}

export async function json(path, how) {
  const answer = await request(path, how);
  try {
    return await answer.json();
  } catch (error) {
    throw how?.signal?.aborted ? error : cut();
  }
}

// The lines of an answer as they come; an end that is none is thrown. By XMLHttpRequest: fetch throws away what has just arrived
// when a connection ends without its last chunk, and that is how a stream ends behind the event that says what went wrong.
async function* lines(path, body, signal) {
  const used = key.value;
  const ask = new XMLHttpRequest();
  const ready = [];
  let read = 0; // characters of the answer
  let status = 0; // which the request forgets when it fails
  let end = null;
  let wake = () => {};
  const take = () => {
    status = ask.status || status;
    const whole = status === 200 ? ask.responseText.lastIndexOf("\n") + 1 : 0;
    if (whole > read) {
      ready.push(...ask.responseText.slice(read, whole - 1).split("\n"));
      read = whole;
    }
    wake();
  };
  ask.addEventListener("readystatechange", take);
  ask.addEventListener("progress", take);
  for (const name of ["load", "error", "abort"])
    ask.addEventListener(name, () => {
      end = name;
      wake();
    });
  ask.open("POST", new URL(path, document.baseURI));
  for (const [name, value] of Object.entries(headersFor(body))) ask.setRequestHeader(name, value);
  const abort = () => ask.abort();
  signal.addEventListener("abort", abort);
  ask.send(JSON.stringify(body));
  try {
    for (;;) {
      yield* ready.splice(0);
      if (end) break;
      await new Promise((resolve) => (wake = resolve));
    }
    if (end === "abort") throw signal.reason;
    if (end === "error") throw status ? cut() : unreachable();
    if (status !== 200) throw refusal(status, ask.statusText, ask.responseText, used);
  } finally {
    signal.removeEventListener("abort", abort);
    if (!end) ask.abort();
  }
}

// The data of each event, parsed, until [DONE]. An error among them, or an end without [DONE], is thrown.
export async function* stream(path, body, signal) {
  for await (const line of lines(path, { ...body, stream: true }, signal)) {
    if (!line.startsWith("data:")) continue;
    const data = line.slice(5).trim();
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError("failed", event.error.message, event.error);
    yield event;
  }
  throw cut();
}

// ---- Whether the server is there ------------------------------------------------------------------------------------

let retry = 0;
let asked = null; // the AbortController of the question under way

// Asks what is served, and forgets a question that was under way, perhaps with another key; as long as nobody answers, or models
// are loading, again in a while.
export async function connect() {
  asked?.abort();
  const own = (asked = new AbortController());
  const { signal } = own;
  clearTimeout(retry);
  let state = "ready";
  try {
    const [list, limits] = await Promise.all([json("v1/models", { signal }), json("props", { signal })]);
    if (signal.aborted) return;
    models.set(list.data);
    props.set(limits);
  } catch (error) {
    if (signal.aborted) return;
    own.abort(); // one of the two has no answer: the other says nothing more
    state = { 401: "key", 503: "loading" }[error.status] ?? (error.status ? "refused" : "lost");
    if (state !== "key") retry = setTimeout(connect, RETRY_MS);
  }
  asked = null;
  connection.set(state);
}

function lost() {
  if (asked) return; // connect() says what that means
  connection.set("lost");
  clearTimeout(retry);
  retry = setTimeout(connect, RETRY_MS);
}
