// What the page's tests share: chromium, the servers that pytest started for them, a server that stands before one of these and
// answers some requests itself, and axe.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { after, before } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

export function given(name) {
  assert.ok(process.env[name], `${name} is not set: test_web.py starts these tests`);
  return process.env[name];
}

export const URL_OPEN = given("DESCENT_URL"); // the models that ship, chat among them, and "long", with a context of 2,048
export const KEY = "right-key"; // of the server at DESCENT_URL_KEYED

let browser;
const closers = [];
before(async () => {
  // As root, as in containers, chromium's sandbox does not start.
  browser = await chromium.launch({ executablePath: given("DESCENT_CHROMIUM"), args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
});
after(async () => {
  for (const close of closers) await close();
  await browser?.close();
});

const WIDE = { width: 1280, height: 860 };
export const PHONE = { width: 360, height: 740 };

// A page of its own at `url`; `view` as the address says it. A test fails where the page throws, is kept from something by its
// policy, or asks anybody but its server.
export async function open(t, { url = URL_OPEN, view = "playground", viewport = WIDE, scheme = "light" } = {}) {
  const context = await browser.newContext({ viewport, colorScheme: scheme, reducedMotion: "reduce", acceptDownloads: true });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000); // on a busy machine one step of a page may take seconds
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(error.stack));
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (!/^(blob|data):/.test(request.url()) && new URL(request.url()).origin !== new URL(url).origin) wrong.push(request.url());
  });
  t.after(async () => {
    await context.close();
    assert.deepEqual(wrong, []);
  });
  await page.goto(`${url}/#${view}`);
  return page;
}

export const model = (page) => page.getByLabel("Model", { exact: true });
export const pane = (page, number) => page.getByRole("article", { name: `Pane ${number}` });
export const textOf = (page, number) => pane(page, number).locator(".made").innerText();
export const shownText = (page, number) => page.getByRole("region", { name: `Text of pane ${number}` });
export const alert = (page) => page.getByRole("alert").filter({ hasText: /./ });

// Waits until the text of a locator fits.
export async function says(locator, pattern) {
  await locator.filter({ hasText: pattern }).first().waitFor();
}

// Waits until no sequence runs or waits: what a text that was stopped must bring about.
export async function idle(url = URL_OPEN) {
  const end = Date.now() + 30_000;
  const active = (text) => ["running", "waiting"].some((state) => !text.includes(`\ndescent_requests_${state} 0\n`));
  while (active(await (await fetch(`${url}/metrics`)).text())) {
    assert.ok(Date.now() < end, "sequences are still running");
    await sleep(20);
  }
}

// What axe-core calls serious or critical.
export async function serious(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("\n")}`);
}

// Before the server at `url`: what `answers` has for a path ({path: (request, response, body) => ...}) it says itself, all else it
// passes on. { url }
export async function inFrontOf(answers, url = URL_OPEN) {
  const server = createServer((request, response) => {
    const own = answers[request.url];
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const body = Buffer.concat(pieces);
      if (own) return own(request, response, body.length ? JSON.parse(body) : null);
      const passed = ask(url + request.url, { method: request.method, headers: request.headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      passed.on("error", () => response.destroy());
      passed.end(body);
    });
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}` };
}

// What a test gives, one by one, to whoever takes it; a take waits until there is something.
export function handOver() {
  const given = [];
  const waiting = [];
  return {
    give: (value) => (waiting.length ? waiting.shift()(value) : given.push(value)),
    take: () => (given.length ? Promise.resolve(given.shift()) : new Promise((taken) => waiting.push(taken))),
  };
}

// Events of a stream, as the server writes them.
export const begin = (response) => response.writeHead(200, { "content-type": "text/event-stream" });
export const event = (response, data) => response.write(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
export const piece = (text, fields = {}) => ({ id: "cmpl-1", object: "text_completion", created: 1, model: "m", choices: [{ index: 0, text, logprobs: null, finish_reason: null }], ...fields });
