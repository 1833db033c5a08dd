// `@langchain/openai`: ChatOpenAI and OpenAI, whole, streamed and in batches, logprobs, stop, T, errors, timeouts, aborting.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ChatOpenAI, OpenAI } from "@langchain/openai";

import { LONG, MESSAGES, TEMPLATES, URL_FULL, URL_KEYED, URL_OPEN, idle, running, stopIn } from "./support.mjs";

function options(model, more = {}, url = URL_OPEN) {
  return { model, apiKey: "none", maxRetries: 0, maxTokens: 24, configuration: { baseURL: `${url}/v1` }, ...more };
}
const chat = (model, more, url) => new ChatOpenAI(options(model, { modelKwargs: { seed: 9 }, ...more }, url));
const completions = (model, more, url) => new OpenAI(options(model, { modelKwargs: { seed: 9 }, ...more }, url));

for (const model of TEMPLATES)
  test(`chat with ${model}, whole and streamed`, async () => {
    const whole = await chat(model).invoke(MESSAGES);
    assert.ok(whole.content);
    assert.equal(whole.usage_metadata.total_tokens, whole.usage_metadata.input_tokens + whole.usage_metadata.output_tokens);
    let all;
    let pieces = 0;
    for await (const chunk of await chat(model).stream(MESSAGES)) {
      all = all ? all.concat(chunk) : chunk;
      pieces += chunk.content !== "";
    }
    assert.equal(all.content, whole.content);
    assert.ok(pieces > 3);
    assert.equal(all.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
    assert.equal(all.response_metadata.finish_reason, whole.response_metadata.finish_reason);
  });

test("completions, whole, streamed and in a batch", async () => {
  const model = completions("plain");
  const whole = await model.invoke("Once upon");
  assert.ok(whole);
  let text = "";
  for await (const piece of await model.stream("Once upon")) text += piece;
  assert.equal(text, whole);
  const [first, second] = await model.batch(["Once upon", "a time"]);
  assert.equal(first, whole);
  assert.notEqual(second, whole);
});

test("n generations of a message", async () => {
  const { generations } = await chat("plain", { n: 3 }).generate([MESSAGES]);
  assert.equal(generations[0].length, 3);
  assert.equal(new Set(generations[0].map((one) => one.text)).size, 3);
});

test("logprobs", async () => {
  const answer = await chat("plain", { logprobs: true, topLogprobs: 2 }).invoke(MESSAGES);
  const { content } = answer.response_metadata.logprobs;
  assert.equal(content.length, answer.usage_metadata.output_tokens);
  assert.ok(content.every((entry) => entry.top_logprobs.length === 2 && entry.top_logprobs[0].logprob >= entry.logprob));
});

test("stop strings", async () => {
  const whole = (await chat("plain", { maxTokens: 60 }).invoke(MESSAGES)).content;
  const stop = stopIn(whole);
  const stopped = await chat("plain", { maxTokens: 60, stop: [stop] }).invoke(MESSAGES);
  assert.equal(stopped.content, whole.split(stop)[0]);
  assert.equal(stopped.response_metadata.finish_reason, "stop");
});

test("T by name and by the object", async () => {
  const text = async (model, more) => (await chat(model, { modelKwargs: { seed: 1, ...more } }).invoke(MESSAGES)).content;
  const trained = await text("plain@3");
  assert.equal(await text("plain"), trained);
  assert.equal(await text("plain@7", { descent: { steps: 3 } }), trained);
  assert.notEqual(await text("plain@1"), trained);
});

test("errors keep their status", async () => {
  const refused = (status, model) => assert.rejects(model.invoke("x"), (error) => error.status === status && !!error.message);
  await refused(400, chat("plain", { temperature: -1 }));
  await refused(400, completions("plain", { modelKwargs: { descent: { stepz: 1 } } }));
  await refused(401, chat("plain", { apiKey: "wrong" }, URL_KEYED));
  await refused(404, chat("gpt-4-none"));
  assert.ok((await chat("plain", { apiKey: "right-key" }, URL_KEYED).invoke("x")).usage_metadata.output_tokens);
});

test("a full queue is a 429, and the client comes again", async () => {
  const leaving = new AbortController();
  const body = JSON.stringify({ ...LONG, stream: true });
  const headers = { "content-type": "application/json" };
  await fetch(`${URL_FULL}/v1/completions`, { method: "POST", headers, body, signal: leaving.signal });
  await running(URL_FULL);
  await assert.rejects(chat("plain", {}, URL_FULL).invoke("x"), (error) => error.status === 429);
  leaving.abort();
  assert.ok((await chat("plain", { maxRetries: 5 }, URL_FULL).invoke("x")).usage_metadata.output_tokens);
});

test("a timeout and an abort free the rows", async () => {
  const long = { maxTokens: 1900, modelKwargs: { ignore_eos: true } };
  await assert.rejects(chat("plain@200", { ...long, timeout: 500 }).invoke(MESSAGES), /[Tt]ime|timed out/);
  await idle(URL_OPEN);

  const leaving = new AbortController();
  let seen = 0;
  await assert.rejects(async () => {
    for await (const chunk of await chat("plain@200", long).stream(MESSAGES, { signal: leaving.signal }))
      if (chunk.content && ++seen === 5) leaving.abort();
  });
  assert.ok(seen >= 5);
  await idle(URL_OPEN);
});
