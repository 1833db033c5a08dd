// Vercel's `ai` with `@ai-sdk/openai-compatible`: chat and completion models, whole and streamed, errors, aborting.
import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, streamText } from "ai";

import { MESSAGES, TEMPLATES, URL_FULL, URL_KEYED, URL_OPEN, completion, idle, running, stopIn, LONG } from "./support.mjs";

function provide(url = URL_OPEN, apiKey = "none") {
  return createOpenAICompatible({ name: "descent", baseURL: `${url}/v1`, apiKey, includeUsage: true });
}
const provider = provide();
const quiet = { onError: () => {}, maxRetries: 0 };

for (const model of TEMPLATES)
  test(`chat with ${model}, whole and streamed`, async () => {
    const how = { model: provider(model), messages: MESSAGES, maxOutputTokens: 24, seed: 9, maxRetries: 0 };
    const whole = await generateText(how);
    assert.ok(whole.text);
    assert.equal(whole.usage.inputTokens + whole.usage.outputTokens, whole.usage.totalTokens);
    const streamed = streamText({ ...how, ...quiet });
    const pieces = [];
    for await (const piece of streamed.textStream) pieces.push(piece);
    assert.equal(pieces.join(""), whole.text);
    assert.ok(pieces.length > 3);
    assert.equal(await streamed.finishReason, whole.finishReason);
    assert.deepEqual((await streamed.usage).outputTokens, whole.usage.outputTokens);
  });

test("a completion model, whole and streamed", async () => {
  const how = { model: provider.completionModel("plain"), prompt: "Once upon", maxOutputTokens: 24, seed: 4, maxRetries: 0 };
  const whole = await generateText(how);
  assert.ok(whole.text);
  const streamed = streamText({ ...how, ...quiet });
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, whole.text);
  assert.equal((await streamed.usage).outputTokens, whole.usage.outputTokens);
});

test("stop sequences", async () => {
  const how = { model: provider("plain"), messages: MESSAGES, maxOutputTokens: 60, seed: 4, maxRetries: 0 };
  const whole = await generateText(how);
  assert.equal(whole.finishReason, "length");
  const stop = stopIn(whole.text);
  const stopped = await generateText({ ...how, stopSequences: [stop] });
  assert.equal(stopped.text, whole.text.split(stop)[0]);
  assert.equal(stopped.finishReason, "stop");
});

test("T by name, by the object and by effort", async () => {
  const steps = async (model, descent) => {
    const how = { model: provider(model), messages: MESSAGES, maxOutputTokens: 3, maxRetries: 0 };
    const done = await generateText({ ...how, providerOptions: { descent } });
    return done.response.body.descent.steps;
  };
  assert.equal(await steps("plain", {}), 3);
  assert.equal(await steps("plain@5", {}), 5);
  assert.equal(await steps("plain@5", { descent: { steps: 9 } }), 9);
  assert.equal(await steps("plain", { reasoningEffort: "high" }), 6);
});

test("logprobs come with the raw answer", async () => {
  const how = { model: provider("plain"), messages: MESSAGES, maxOutputTokens: 5, maxRetries: 0 };
  const done = await generateText({ ...how, providerOptions: { descent: { logprobs: true, top_logprobs: 2 } } });
  assert.equal(done.response.body.choices[0].logprobs.content.length, done.usage.outputTokens);
});

test("errors keep status and message", async () => {
  const refused = (status, model, more = {}) =>
    assert.rejects(generateText({ model, prompt: "x", maxRetries: 0, ...more }), (error) => {
      assert.ok(APICallError.isInstance(error), String(error));
      assert.equal(error.statusCode, status);
      assert.notEqual(error.message, "");
      assert.equal(error.message, error.data.error.message);
      return true;
    });
  await refused(400, provider("plain"), { temperature: -1 });
  await refused(400, provider("plain"), { providerOptions: { descent: { descent: { stepz: 1 } } } });
  await refused(401, provide(URL_KEYED, "wrong")("plain"));
  await refused(404, provider("gpt-4"));
  await generateText({ model: provide(URL_KEYED, "right-key")("plain"), prompt: "x", maxOutputTokens: 1, maxRetries: 0 });
});

test("a full queue is a 429 that may be tried again", async () => {
  const leaving = new AbortController();
  const body = JSON.stringify({ ...LONG, stream: true });
  const headers = { "content-type": "application/json" };
  await fetch(`${URL_FULL}/v1/completions`, { method: "POST", headers, body, signal: leaving.signal });
  await running(URL_FULL);
  const ask = (maxRetries) => generateText({ model: provide(URL_FULL)("plain"), prompt: "x", maxOutputTokens: 2, maxRetries });
  await assert.rejects(ask(0), (error) => error.statusCode === 429 && error.isRetryable);
  leaving.abort();
  assert.ok((await ask(5)).usage.outputTokens > 0);
});

test("aborting frees the rows, streaming or not", async () => {
  const long = { model: provider("plain@200"), prompt: "x", maxOutputTokens: 1900, maxRetries: 0 };
  const options = { providerOptions: { descent: { ignore_eos: true } } };

  const leaving = new AbortController();
  const streamed = streamText({ ...long, ...options, ...quiet, abortSignal: leaving.signal });
  let seen = 0;
  for await (const part of streamed.fullStream) if (part.type === "text-delta" && ++seen === 5) leaving.abort();
  assert.ok(seen >= 5);
  await idle(URL_OPEN);

  const signal = AbortSignal.timeout(500);
  await assert.rejects(generateText({ ...long, ...options, abortSignal: signal }), { name: "TimeoutError" });
  await idle(URL_OPEN);
});

test("the text is what the server says to anyone", async () => {
  const how = { model: provider.completionModel("plain"), prompt: "Once", maxOutputTokens: 16, seed: 3, maxRetries: 0 };
  const done = await generateText(how);
  const sent = done.request.body;
  const plain = await completion(typeof sent === "string" ? JSON.parse(sent) : sent);
  assert.equal(done.text, plain.choices[0].text);
});
