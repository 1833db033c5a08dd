// What the Node clients' tests share: the servers that pytest started for them, and what these say of themselves.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

function server(name) {
  assert.ok(process.env[name], `${name} is not set: test_node.py starts these tests`);
  return process.env[name];
}

export const URL_OPEN = server("DESCENT_URL"); // no keys
export const URL_KEYED = server("DESCENT_URL_KEYED"); // the key is "right-key"
export const URL_FULL = server("DESCENT_URL_FULL"); // one sequence at a time, none waits; bodies of 100,000 bytes

export const TEMPLATES = ["plain", "chatml", "llama2", "llama3"];
export const MESSAGES = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "Who goes there?" },
  { role: "assistant", content: "A friend." },
  { role: "user", content: "What friend?" },
];

// More than a test waits for: who asks this leaves.
export const LONG = { model: "plain@200", prompt: "Once", max_tokens: 1900, ignore_eos: true };

// The sum of metrics, of one moment, over their labels.
export async function metric(url, ...names) {
  const answer = await fetch(`${url}/metrics`);
  assert.equal(answer.status, 200);
  const lines = (await answer.text()).split("\n");
  const sumOf = (name) => {
    const values = lines.filter((line) => line.startsWith(name + "{") || line.startsWith(name + " "));
    assert.ok(values.length, `/metrics has no ${name}`);
    return values.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
  };
  return names.reduce((sum, name) => sum + sumOf(name), 0);
}

async function until(true_, complaint) {
  for (const end = Date.now() + 30_000; !(await true_()); await sleep(5)) assert.ok(Date.now() < end, complaint);
}

// Nothing runs or waits: what a client that left must bring about.
export function idle(url) {
  const active = () => metric(url, "descent_requests_running", "descent_requests_waiting");
  return until(async () => (await active()) === 0, "rows are still running or waiting");
}

export function running(url, count = 1) {
  return until(async () => (await metric(url, "descent_requests_running")) >= count, `fewer than ${count} sequences run`);
}

export async function completion(body, url = URL_OPEN) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/completions`, { method: "POST", headers, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, await answer.clone().text());
  return answer.json();
}

// A string of several tokens in the middle of a text.
export function stopIn(text) {
  const half = Math.floor(text.length / 2);
  return text.slice(half, half + 4);
}
