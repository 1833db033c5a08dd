// The official `openai` package for Node: completions, chat, streams, logprobs, n, stop, T, errors, timeouts, aborting.
import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

import { LONG, MESSAGES, TEMPLATES, URL_FULL, URL_KEYED, URL_OPEN, idle, running, stopIn } from "./support.mjs";

function connect(url = URL_OPEN, options = {}) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 60_000, ...options });
}
const client = connect();

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

test("models", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  for (const template of TEMPLATES) assert.ok(ids.includes(template));
  assert.equal((await client.models.retrieve("plain@7")).id, "plain@7");
  await assert.rejects(client.models.retrieve("gpt-4"), OpenAI.NotFoundError);
});

test("a completion, its seed and its usage", async () => {
  const how = { model: "plain", prompt: "Once", max_tokens: 30 };
  const first = await client.completions.create(how);
  const again = await client.completions.create({ ...how, seed: first.descent.seed });
  assert.equal(again.choices[0].text, first.choices[0].text);
  assert.equal(first.usage.total_tokens, first.usage.prompt_tokens + first.usage.completion_tokens);
  const other = await client.completions.create({ ...how, seed: 1 });
  assert.notEqual(other.choices[0].text, first.choices[0].text);
});

test("n choices of several prompts", async () => {
  const how = { model: "llama3", n: 2, max_tokens: 12, seed: 3 };
  const done = await client.completions.create({ ...how, prompt: ["Once", "Twice"] });
  assert.deepEqual(done.choices.map((choice) => choice.index).sort(), [0, 1, 2, 3]);
  const texts = done.choices.sort((a, b) => a.index - b.index).map((choice) => choice.text);
  assert.equal(new Set(texts).size, 4);
  const alone = await client.completions.create({ ...how, prompt: "Once" });
  assert.deepEqual(alone.choices.map((choice) => choice.text), texts.slice(0, 2));
});

test("logprobs with echo", async () => {
  const how = { model: "nrgpt-shakespeare", prompt: "To be", max_tokens: 5, temperature: 0, logprobs: 2, echo: true };
  const { choices, usage } = await client.completions.create(how);
  const { tokens, token_logprobs, top_logprobs, text_offset } = choices[0].logprobs;
  assert.equal(tokens.length, usage.prompt_tokens + usage.completion_tokens);
  assert.equal(tokens.join(""), choices[0].text);
  assert.equal(token_logprobs[0], null);
  for (let i = 1; i < tokens.length; i++) {
    assert.ok(Object.values(top_logprobs[i]).includes(token_logprobs[i]));
    assert.equal(text_offset[i], text_offset[i - 1] + [...tokens[i - 1]].length);
  }
});

test("stop strings, whole and streamed", async () => {
  const how = { model: "plain", prompt: "Once", max_tokens: 60, seed: 5 };
  const whole = (await client.completions.create(how)).choices[0].text;
  const stop = stopIn(whole);
  const stopped = await client.completions.create({ ...how, stop });
  assert.equal(stopped.choices[0].text, whole.split(stop)[0]);
  assert.equal(stopped.choices[0].finish_reason, "stop");
  const chunks = await collect(await client.completions.create({ ...how, stop: [stop], stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), stopped.choices[0].text);
  assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
});

test("a stream with its usage", async () => {
  const how = { model: "plain", prompt: "Once", max_tokens: 40, seed: 6 };
  const whole = await client.completions.create(how);
  const stream = await client.completions.create({ ...how, stream: true, stream_options: { include_usage: true } });
  const chunks = await collect(stream);
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(chunks.every((chunk) => chunk.usage === null && chunk.id === last.id));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), whole.choices[0].text);
});

for (const model of TEMPLATES)
  test(`chat with ${model}, whole and streamed`, async () => {
    const how = { model, messages: MESSAGES, max_tokens: 24, seed: 9 };
    const answer = await client.chat.completions.create(how);
    assert.equal(answer.choices[0].message.role, "assistant");
    assert.ok(answer.choices[0].message.content);
    const [first, ...chunks] = await collect(await client.chat.completions.create({ ...how, stream: true }));
    assert.deepEqual([first.choices[0].delta.role, first.choices[0].delta.content], ["assistant", ""]);
    const text = chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join("");
    assert.equal(text, answer.choices[0].message.content);
    assert.equal(chunks.at(-1).choices[0].finish_reason, answer.choices[0].finish_reason);
  });

test("the client's own stream helper", async () => {
  const how = { model: "chatml", messages: MESSAGES, max_tokens: 24, seed: 9 };
  const answer = await client.chat.completions.create(how);
  const stream = client.chat.completions.stream(how);
  assert.equal(await stream.finalContent(), answer.choices[0].message.content);
});

test("chat logprobs and choices", async () => {
  const how = { model: "chatml", messages: MESSAGES, max_tokens: 10, seed: 2, n: 2, logprobs: true, top_logprobs: 2 };
  const answer = await client.chat.completions.create(how);
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
  for (const { logprobs, message } of answer.choices) {
    const bytes = logprobs.content.flatMap((entry) => entry.bytes);
    assert.equal(new TextDecoder().decode(Uint8Array.from(bytes)), message.content);
    for (const entry of logprobs.content) {
      assert.equal(entry.top_logprobs.length, 2);
      assert.ok(entry.top_logprobs[0].logprob >= entry.logprob);
    }
  }
});

test("T by name, by the object and by effort", async () => {
  const steps = async (more) => {
    const answer = await client.chat.completions.create({ model: "plain", messages: MESSAGES, max_tokens: 3, ...more });
    return answer.descent.steps;
  };
  assert.equal(await steps({}), 3);
  assert.equal(await steps({ model: "plain@5" }), 5);
  assert.equal(await steps({ model: "plain@5", descent: { steps: 9 } }), 9);
  assert.equal(await steps({ reasoning_effort: "high" }), 6);
});

test("each error is its class", async () => {
  const ask = (more, from = client) => from.completions.create({ model: "plain", prompt: "x", max_tokens: 1, ...more });
  await assert.rejects(ask({ temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.status, error.param, error.type], [400, "temperature", "invalid_request_error"]);
    return true;
  });
  await assert.rejects(ask({}, connect(URL_KEYED, { apiKey: "wrong" })), OpenAI.AuthenticationError);
  await ask({}, connect(URL_KEYED, { apiKey: "right-key" }));
  await assert.rejects(ask({ model: "gpt-4" }), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create({ model: "plain", input: "x" }), /chat\/completions/);
  await assert.rejects(connect("http://127.0.0.1:9").models.list(), OpenAI.APIConnectionError);
});

test("a body that is too large is answered, though 5 MB of it are sent first", async () => {
  const asked = connect(URL_FULL).completions.create({ model: "plain", prompt: "x".repeat(5_000_000) });
  await assert.rejects(asked, (error) => error instanceof OpenAI.APIError && error.status === 413);
});

test("a full queue is a 429, and the client comes again", async () => {
  const full = connect(URL_FULL);
  const stream = await full.completions.create({ ...LONG, stream: true });
  await running(URL_FULL);
  await assert.rejects(full.completions.create({ model: "plain", prompt: "x" }), OpenAI.RateLimitError);
  stream.controller.abort();
  const later = await full.completions.create({ model: "plain", prompt: "x" }, { maxRetries: 5 });
  assert.ok(later.choices.length);
});

test("a timeout frees the rows", async () => {
  await assert.rejects(client.completions.create(LONG, { timeout: 500 }), OpenAI.APIConnectionTimeoutError);
  await idle(URL_OPEN);
});

test("aborting frees the rows, streaming or not", async () => {
  const stream = await client.completions.create({ ...LONG, n: 2, stream: true });
  let seen = 0;
  for await (const chunk of stream) if (chunk.choices.length && ++seen === 5) break; // leaving the loop aborts
  assert.equal(seen, 5);
  await idle(URL_OPEN);

  const controller = new AbortController();
  const asked = client.completions.create(LONG, { signal: controller.signal });
  const left = assert.rejects(asked, OpenAI.APIUserAbortError);
  await running(URL_OPEN);
  controller.abort();
  await left;
  await idle(URL_OPEN);
});
