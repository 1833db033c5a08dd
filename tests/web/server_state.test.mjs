// The server's state: figures of /metrics as they are, asked for only while somebody looks.
import assert from "node:assert/strict";
import test from "node:test";
import { alert, given, handOver, inFrontOf, open, says } from "./support.mjs";

const URL_OPEN = given("DESCENT_URL_QUIET"); // nobody else asks it anything

const card = (page, name) => page.locator(".cards > div").filter({ hasText: name }).locator("dd").first();

async function metrics() {
  const text = await (await fetch(`${URL_OPEN}/metrics`)).text();
  return (name) => Number(text.split("\n").find((line) => line.startsWith(`${name} `)).split(" ")[1]);
}

async function busy(tokens) {
  const body = { model: "long", prompt: "a b c", max_tokens: tokens, ignore_eos: true, descent: { steps: 100 } };
  const leave = new AbortController();
  const answer = fetch(`${URL_OPEN}/v1/completions`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal: leave.signal });
  return { leave: () => leave.abort(), over: answer.catch(() => {}) };
}

test("figures are those of /metrics, and follow what the server does", async (t) => {
  const page = await open(t, { view: "server", url: URL_OPEN });
  await says(card(page, "Running"), "0");
  const get = await metrics();
  const mebibytes = get("descent_cache_bytes") / 2 ** 20;
  assert.ok(Math.abs(parseFloat(await card(page, "Cache").innerText()) * (/KiB/.test(await card(page, "Cache").innerText()) ? 1 / 1024 : 1) - mebibytes) < 0.1 + mebibytes / 50);
  assert.equal(await card(page, "Preemptions").innerText(), "0");
  const one = await busy(2000);
  await says(card(page, "Running"), "1");
  await says(card(page, "Row-steps/s"), /[1-9]/);
  await says(card(page, "Rows a step"), /[1-9]/);
  one.leave();
  await one.over;
  await says(card(page, "Running"), "0");
  await says(page.locator("figure").filter({ hasText: "T of requests" }), /65–128\s*1/);
});

test("the batch by t is what the last ten seconds added", async (t) => {
  const real = await (await fetch(`${URL_OPEN}/metrics`)).text();
  // Ten steps of the batch between two readings, of 30 rows: 20 at t = 1, 4 at 3 and 4, 6 beyond 1,024.
  const added = (reading) => {
    const counts = { count: 7 + 10 * reading, sum: 9 + 30 * reading, steps: [5 + 20 * reading, 5 + 20 * reading, 6 + 24 * reading], all: 9 + 30 * reading };
    const bounds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    return real.split("\n").map((line) => {
      const bound = /^descent_row_step_bucket\{le="(.*)"\}/.exec(line)?.[1];
      if (bound) return line.replace(/\S+$/, bound === "+Inf" ? counts.all : counts.steps[Math.min(bounds.indexOf(Number(bound)), 2)]);
      return line.replace(/^(descent_batch_rows_count) .*/, `$1 ${counts.count}`).replace(/^(descent_batch_rows_sum) .*/, `$1 ${counts.sum}`);
    }).join("\n");
  };
  // A reading is answered when the test has looked at what the one before it shows.
  const readings = handOver();
  const { url } = await inFrontOf({ "/metrics": async (request, response) => response.end(added(await readings.take())) });
  const page = await open(t, { view: "server", url });
  const figure = page.locator("figure").filter({ hasText: "Batch by t" });
  readings.give(0);
  await says(figure, /–$/); // one reading says nothing yet
  readings.give(1);
  const bars = figure.getByRole("listitem");
  await bars.first().waitFor();
  assert.deepEqual((await bars.allInnerTexts()).filter((text) => !/\D0$/.test(text)).map((text) => text.replace(/\s+/g, " ")),
                   ["1 2", "3–4 0.4", "over 1024 0.6"]);
  assert.equal(await card(page, "Rows a step").innerText(), "3");
  readings.give(0.5); // a new start, that has done more than the oldest reading
  await says(figure, /–$/);
  await says(card(page, "Row-steps/s"), "–");
});

test("requests by endpoint and status, and what is served", async (t) => {
  const page = await open(t, { view: "server", url: URL_OPEN });
  await page.locator(".cards").waitFor();
  await says(page.getByRole("region", { name: "Requests" }), /\/metrics\s*200/);
  const models = page.getByRole("region", { name: "Models" });
  const { data } = await (await fetch(`${URL_OPEN}/v1/models`)).json();
  for (const { id, descent } of data)
    await says(models.getByRole("row").filter({ hasText: id }), new RegExp(`${descent.family}.*${descent.quantization}.*${descent.system_fingerprint}`));
  await says(models.getByRole("row").filter({ hasText: "cem-kjv" }), "2 × 2");
  assert.equal(await page.locator(".chart canvas").count(), 4);
});

test("nothing is asked while another view is looked at", async (t) => {
  const page = await open(t, { view: "server", url: URL_OPEN });
  await page.locator(".cards").waitFor();
  await page.getByRole("link", { name: "Scaling" }).click();
  await page.clock.install();
  let asked = 0;
  page.on("request", (request) => (asked += request.url().endsWith("/metrics")));
  await page.clock.runFor(20_000);
  assert.equal(asked, 0);
  const again = page.waitForRequest("**/metrics");
  await page.getByRole("link", { name: "Server" }).click();
  await again;
});

test("figures that cannot be had are a message, and come back", async (t) => {
  let gone = false;
  const { url } = await inFrontOf({
    "/metrics": async (request, response) => (gone ? response.destroy() : response.end(await (await fetch(`${URL_OPEN}/metrics`)).text())),
  });
  const page = await open(t, { view: "server", url });
  await page.locator(".cards").waitFor();
  gone = true;
  await says(alert(page), "The server cannot be reached.");
  assert.ok(await page.locator(".cards").isVisible()); // what was known stays
  gone = false;
  await page.waitForFunction(() => !document.querySelector(".problem"));
});
