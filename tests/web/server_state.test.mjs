// The server's state: figures of /metrics as they are, asked for only while somebody looks.
import assert from "node:assert/strict";
import test from "node:test";
import { alert, given, handOver, inFrontOf, open, says } from "./support.mjs";

const URL_OPEN = given("DESCENT_URL_QUIET"); // nobody else asks it anything

const card = (page, name) => page.locator(".cards > div").filter({ has: page.locator("dt").getByText(name, { exact: true }) }).locator("dd").first();

async function metrics() {
  const text = await (await fetch(`${URL_OPEN}/metrics`)).text();
  return (name) => Number(text.split("\n").find((line) => line.startsWith(`${name} `)).split(" ")[1]);
}

// Eight sequences, which the page sees however fast the machine is: it looks every two seconds, and one alone may be over by then.
async function busy() {
  const body = { model: "long", prompt: "a b c", n: 8, max_tokens: 2000, ignore_eos: true, descent: { steps: 100 } };
  const leave = new AbortController();
  const answer = fetch(`${URL_OPEN}/v1/completions`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal: leave.signal });
  return { leave: () => leave.abort(), over: answer.catch(() => {}) };
}

test("figures are those of /metrics, and follow what the server does", async (t) => {
  const page = await open(t, { view: "server", url: URL_OPEN });
  await says(card(page, "Running"), "0");
  const get = await metrics();
  const [amount, unit] = (await card(page, "Cache").innerText()).split(" ");
  const held = Number(amount.replaceAll(",", "")) * 1024 ** ["B", "KiB", "MiB", "GiB"].indexOf(unit);
  assert.ok(Math.abs(held - get("descent_cache_bytes")) <= 0.005 * get("descent_cache_bytes"), `${held} bytes`);
  assert.equal(await card(page, "Preemptions").innerText(), "0");
  const one = await busy();
  await says(card(page, "Running"), "8");
  await says(card(page, "Row-steps/s"), /[1-9]/);
  await says(card(page, "Rows a step"), /[1-9]/);
  one.leave();
  await one.over;
  await says(card(page, "Running"), "0");
  await says(page.locator("figure").filter({ hasText: "T of requests" }), /65–128\s*1/);
});

test("the cache's share of its limit is drawn in the page's own colours", async (t) => {
  const figures = (await (await fetch(`${URL_OPEN}/metrics`)).text()).replace(/^descent_cache_limit_bytes .*$/m, "descent_cache_limit_bytes 4096")
    .replace(/^descent_cache_bytes .*$/m, "descent_cache_bytes 3072");
  const { url } = await inFrontOf({ "/metrics": (request, response) => response.end(figures) }, URL_OPEN);
  const page = await open(t, { view: "server", url, scheme: "dark" });
  const meter = page.getByRole("meter", { name: "Cache, share of its limit" });
  assert.equal(await meter.getAttribute("aria-valuenow"), "0.75");
  const [whole, part, empty, line] = await meter.evaluate((bar) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = "var(--line)";
    return [bar.clientWidth, bar.firstElementChild.clientWidth, getComputedStyle(bar).backgroundColor, getComputedStyle(probe).color];
  });
  assert.ok(whole > 100 && Math.abs(part - 0.75 * whole) <= 1, `${part} of ${whole}`);
  assert.equal(empty, line);
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
