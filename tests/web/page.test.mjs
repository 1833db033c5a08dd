// The page as a whole: its views, the key, a server that loads, a narrow screen, and what axe-core says of each view.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { alert, given, handOver, inFrontOf, KEY, model, open, pane, PHONE, says, serious, textOf } from "./support.mjs";

const VIEWS = [["Playground", "#prompt"], ["Energy map", "#map-text"], ["Scaling", "#scaling-text"], ["Server", ".cards"]];

// Every view with something in it.
async function fill(page) {
  await page.getByLabel("Most tokens").fill("30");
  await page.getByRole("button", { name: "Generate" }).click();
  await says(pane(page, 2), "length");
  await page.getByText("Sampler").click();
  await pane(page, 2).getByRole("button", { name: "Energy map of this text" }).click();
  await page.locator(".map canvas").first().waitFor();
  await page.getByRole("link", { name: "Scaling" }).click();
  await page.getByLabel("Text, or records").fill("{");
  await page.getByRole("button", { name: "Measure" }).click();
  await says(alert(page), "Record 1");
  await page.getByRole("link", { name: "Server" }).click();
  await page.locator(".cards").waitFor();
}

test("each view has an address, and the keyboard reaches it", async (t) => {
  const page = await open(t);
  for (const [name, part] of VIEWS) {
    await page.getByRole("link", { name }).focus();
    await page.keyboard.press("Enter");
    await page.locator(part).waitFor();
    assert.equal(await page.getByRole("link", { name }).getAttribute("aria-current"), "page");
    assert.equal(await page.locator("main section:not([hidden])").count(), 1);
  }
  await page.goBack();
  await page.locator("#scaling-text").waitFor();
  await page.reload();
  await page.locator("#scaling-text").waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
});

test("a model is chosen for all views, and T begins as it was trained", async (t) => {
  const page = await open(t);
  await model(page).selectOption("cem-kjv");
  assert.equal(await page.locator("#t1-attention").inputValue(), "2");
  assert.equal(await page.locator("#t1-mlp").inputValue(), "2");
  assert.equal(await page.locator("#prompt").inputValue(), "In the beginning");
  await page.getByRole("link", { name: "Energy map" }).click();
  assert.equal(await model(page).inputValue(), "cem-kjv");
  await model(page).selectOption("long");
  assert.equal(await page.locator("#map-t").inputValue(), "3");
});

for (const scheme of ["light", "dark"])
  test(`axe-core finds nothing serious, ${scheme}`, async (t) => {
    const page = await open(t, { scheme });
    await fill(page);
    for (const [name] of VIEWS) {
      await page.getByRole("link", { name }).click();
      assert.deepEqual(await serious(page), [], name);
    }
    await page.getByRole("button", { name: "Key" }).click();
    assert.deepEqual(await serious(page), [], "with the field for a key");
    assert.match(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), scheme === "dark" ? /rgb\(2\d,/ : /rgb\(25\d,/);
  });

test("nothing is wider than a phone", async (t) => {
  const page = await open(t, { viewport: PHONE });
  await fill(page);
  for (const [name] of VIEWS) {
    await page.getByRole("link", { name }).click();
    const [wide, within] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(wide <= within && within === PHONE.width, `${name}: ${wide} > ${within}`);
    const outside = await page.evaluate(() => [...document.querySelectorAll("section:not([hidden]) :is(button, input, select, textarea, canvas)")]
      .filter((e) => !e.closest(".scroll, .sr") && !e.matches(".sr") && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML));
    assert.deepEqual(outside, [], name);
  }
});

test("a server with keys is used with one", async (t) => {
  const page = await open(t, { url: given("DESCENT_URL_KEYED") });
  const notice = page.getByRole("status").filter({ hasText: "key" });
  await says(notice, "This server wants an API key.");
  await page.getByLabel("API key").fill("not it");
  assert.ok(await page.getByRole("button", { name: "Use key" }).isDisabled()); // a key has no spaces
  await page.getByLabel("API key").fill("wrong-key");
  await page.getByRole("button", { name: "Use key" }).click();
  await says(notice, "The server does not know this key.");
  await page.getByRole("button", { name: "Enter key" }).click();
  await page.waitForFunction(() => document.activeElement.id === "key");
  await page.getByLabel("API key").fill(KEY);
  await page.keyboard.press("Enter");
  await page.locator("#prompt").waitFor();
  await page.getByLabel("Most tokens").fill("5");
  await page.getByRole("button", { name: "Generate" }).click();
  await says(pane(page, 2), "length");
  assert.equal((await textOf(page, 2)).length > 0, true);
  await page.reload(); // the tab keeps it
  await page.locator("#prompt").waitFor();
  await page.getByRole("button", { name: "Key", exact: true }).click();
  await page.getByLabel("API key").fill("");
  await page.getByRole("button", { name: "Forget key" }).click();
  await says(notice, "This server wants an API key.");
  assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 0);
});

function refuseKey(response) {
  response.writeHead(401, { "content-type": "application/json" });
  response.end('{"error": {"message": "the API key is none of this server\'s", "type": "authentication_error", "param": null, "code": "invalid_api_key"}}');
}

test("a key that is withdrawn is asked for again", async (t) => {
  let valid = true;
  const answer = (request, response, body, url = given("DESCENT_URL")) =>
    valid ? fetch(url + request.url).then(async (passed) => response.end(await passed.text())) : refuseKey(response);
  const { url } = await inFrontOf({ "/v1/models": answer, "/props": answer, "/v1/completions": answer });
  const page = await open(t, { url });
  await page.locator("#prompt").waitFor();
  valid = false;
  await page.getByRole("button", { name: "Generate" }).click();
  await says(alert(page), /none of this server's.*invalid_api_key/);
  await page.getByLabel("API key").waitFor();
  assert.ok(await page.getByRole("button", { name: "Generate" }).isEnabled());
});

test("what the server says of a key does not count for the next one", async (t) => {
  const late = handOver(); // answers that the test gives
  const { url } = await inFrontOf({
    "/v1/models": async (request, response) => {
      if (request.headers.authorization) response.end(await (await fetch(given("DESCENT_URL") + request.url)).text());
      else late.give(response);
    },
    "/v1/completions": (request, response) => late.give(response),
  });
  const page = await open(t, { url });
  const use = async (key) => {
    await page.getByRole("button", { name: "Key", exact: true }).click();
    await page.getByLabel("API key").fill(key);
    await page.getByRole("button", { name: "Use key" }).click();
    await says(page.locator(".state"), "ready");
  };
  const first = await late.take();
  await use("one"); // while the question without a key has no answer
  refuseKey(first);
  await page.getByLabel("Compare two T").uncheck();
  await page.getByRole("button", { name: "Generate" }).click();
  const second = await late.take();
  await use("two");
  refuseKey(second);
  await says(alert(page), "invalid_api_key"); // which is true of that text
  await says(page.locator(".state"), "ready");
  assert.equal(await page.getByRole("status").filter({ hasText: "key" }).count(), 0);
});

test("of two questions at the start, one that fails ends both", async (t) => {
  const left = handOver();
  const { url } = await inFrontOf({
    "/v1/models": (request, response) => refuseKey(response),
    "/props": (request, response) => response.on("close", () => left.give(!response.writableEnded)), // which is never answered
  });
  const page = await open(t, { url });
  await says(page.getByRole("status"), "wants an API key");
  assert.ok(await Promise.race([left.take(), sleep(30_000, false, { ref: false })]), "the page still waits for the second");
  await says(page.locator(".state"), "key wanted");
});

test("a server that loads is waited for", async (t) => {
  let loading = true;
  const answer = (request, response) => {
    if (!loading) return fetch(given("DESCENT_URL") + request.url).then(async (passed) => response.end(await passed.text()));
    response.writeHead(503, { "content-type": "application/json", "retry-after": "2" });
    return response.end('{"error": {"message": "the models are still being loaded", "type": "server_error", "param": null, "code": "loading"}}');
  };
  const { url } = await inFrontOf({ "/v1/models": answer, "/props": answer });
  const page = await open(t, { url });
  await says(page.getByRole("status"), "loading its models");
  loading = false;
  await page.locator("#prompt").waitFor();
  await says(page.locator(".state"), "ready");
});

test("the keyboard sees where it is on the way to a file", async (t) => {
  const page = await open(t, { view: "scaling" });
  await page.locator("#scaling-text").focus();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "file");
  const outline = await page.getByText("Choose a file").evaluate((label) => getComputedStyle(label).outline);
  assert.match(outline, /solid 2px/);
});

// What the bundler does not translate for the oldest browsers that server/web/build.mjs names: Firefox 115, Safari 16, Chrome 117.
test("nothing that is known to be missing in the oldest browsers is used", () => {
  const built = (name) => readFileSync(new URL(`../../server/web/dist/${name}`, import.meta.url), "utf8");
  const style = [/:has\(/, /color-mix\(/, /light-dark\(/, /@scope\b/, /@starting-style\b/, /field-sizing/, /text-wrap/, /anchor-name/, /transition-behavior/];
  const script = [/\.(toSorted|toReversed|toSpliced|union|intersection|isSubsetOf|isWellFormed)\(/, /\b(Object|Map)\.groupBy\b/, /\bArray\.fromAsync\b/,
    /\bPromise\.(withResolvers|try)\b/, /\bAbortSignal\.any\b/, /\bURL\.(canParse|parse)\b/, /\bIterator\.from\b/, /\bRegExp\.escape\b/, /\(\?<[=!]/,
    /\bfor await\([^)]*\.body\b/, /\bshow(Open|SaveFile|Directory)Picker\b/, /\b(requestIdleCallback|startViewTransition)\b|\bscheduler\.(postTask|yield)\b/, /\bDurationFormat\b/];
  assert.deepEqual(style.filter((pattern) => pattern.test(built("app.css"))), []);
  assert.deepEqual(script.filter((pattern) => pattern.test(built("app.js"))), []);
});
