// The energy map: its numbers are those of /v1/descent/trace, for every way to a cell, and for texts as long as a context.
import assert from "node:assert/strict";
import test from "node:test";
import { alert, inFrontOf, model, open, pane, PHONE, says, URL_OPEN } from "./support.mjs";

const TEXT = "ROMEO:\nBut, soft! what light through yonder window breaks?";
const readout = (page) => page.getByRole("complementary", { name: "Numbers of the cell" });
const map = (page) => page.getByRole("application");

async function trace(body) {
  const answer = await fetch(`${URL_OPEN}/v1/descent/trace`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()).traces[0].tokens;
}

async function traced(t, { text = TEXT, name, steps, url, ...how } = {}) {
  const page = await open(t, { view: "map", url, ...how });
  if (name) await model(page).selectOption(name);
  await page.locator("#map-text").fill(text);
  if (steps) await page.locator("#map-t").fill(String(steps));
  await page.getByRole("button", { name: "Trace" }).click();
  await map(page).locator("canvas").first().waitFor();
  return page;
}

// The number beside a name, as written on the page.
async function told(page, name) {
  const text = await readout(page).getByRole("row", { name, exact: false }).first().locator("td").innerText();
  return Number(text.replace("−", "-").replaceAll(",", ""));
}

function near(shown, exact) {
  assert.ok(Math.abs(shown - exact) <= 1e-3 * Math.abs(exact) + 1e-9, `${shown} is not ${exact}`);
}

// [[r, g, b], ...] of the first line's column of a token, one a row.
const column = (page, token, rows) => page.evaluate(([token, rows]) => {
  const canvas = document.querySelector(".map canvas");
  const scale = canvas.width / parseFloat(canvas.style.width);
  const pen = canvas.getContext("2d");
  return Array.from({ length: rows }, (_, row) => [...pen.getImageData((token * 13 + 4) * scale, (row * 11 + 5) * scale, 1, 1).data].join());
}, [token, rows]);

test("the keyboard reaches every cell, and its numbers are the server's", async (t) => {
  const page = await traced(t, { steps: 3 });
  const tokens = await trace({ model: "nrgpt-shakespeare", prompt: TEXT, top: 8, descent: { steps: 3 } });
  await map(page).focus();
  await says(readout(page), "R token 0, t = 3 of 3");
  for (let i = 0; i < 9; i++) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowUp");
  await says(readout(page), "token 9, t = 2 of 3");
  const own = tokens[9].trace.descents[0];
  near(await told(page, "energy E(t)"), own.energy.attention[2] + own.energy.feed_forward[2]);
  near(await told(page, "energy, attention"), own.energy.attention[2]);
  near(await told(page, "energy, feed-forward"), own.energy.feed_forward[2]);
  near(await told(page, "change of own energy"), own.own_change[1]);
  near(await told(page, "change by the history"), own.history_change[1]);
  near(await told(page, "r_t"), own.r[1]);
  near(await told(page, "update norm"), own.update_norm[1]);
  near(await told(page, "cosine"), own.cosine[2]);
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp"); // stays at the embedding
  await says(readout(page), "token 9, t = 0 of 3");
  assert.equal(await readout(page).getByRole("row", { name: "r_t" }).locator("td").innerText(), "–"); // no step led there
  await page.keyboard.press("Control+End");
  await says(readout(page), `token ${tokens.length - 1}, t = 0`);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Home");
  await page.keyboard.press("PageUp");
  await page.keyboard.press("PageDown");
  await page.keyboard.press("Control+Home");
  await page.keyboard.press("End");
  await says(readout(page), /token \d\d, t = 0/);
});

test("the likeliest next tokens, and what follows among them", async (t) => {
  const page = await traced(t, { steps: 4 });
  const tokens = await trace({ model: "nrgpt-shakespeare", prompt: TEXT, top: 8, descent: { steps: 4 } });
  const at = tokens.findIndex((token, i) => token.trace.guesses.some(({ token }) => token === tokens[i + 1]?.token));
  await map(page).focus();
  for (let i = 0; i < at; i++) await page.keyboard.press("ArrowRight");
  await says(readout(page), `token ${at},`);
  const listed = await readout(page).locator(".guesses li .value").allInnerTexts();
  assert.deepEqual(listed, tokens[at].trace.guesses.map(({ logprob }) => Math.exp(logprob).toFixed(3)));
  assert.match(await readout(page).locator(".guesses .right").innerText(), /is what follows/);
  await says(readout(page), "read at x(4)");
});

test("a pointer shows a cell, and a click keeps it", async (t) => {
  const page = await traced(t);
  await says(readout(page), "token 0, t = 4");
  await map(page).hover({ position: { x: 3 * 13 + 5, y: 11 + 3 } });
  await says(readout(page), "token 3, t = 1");
  await page.mouse.move(5, 5);
  await says(readout(page), "token 0, t = 4");
  await map(page).click({ position: { x: 5 * 13 + 5, y: 2 * 11 + 3 } });
  await page.mouse.move(5, 5);
  await says(readout(page), "token 5, t = 2");
});

test("another quantity is other colours, in both schemes", async (t) => {
  const page = await traced(t);
  const energy = await column(page, 4, 5);
  assert.equal(new Set(energy).size > 2, true);
  await page.getByLabel("Quantity").selectOption("own_change");
  await page.waitForFunction(() => document.querySelector(".legend span").textContent.startsWith("−"));
  const change = await column(page, 4, 5);
  assert.ok(change[0].endsWith(",0"), "nothing is drawn where no step led"); // transparent
  assert.notDeepEqual(change.slice(1), energy.slice(1));
  const [low, high] = await page.locator(".legend span").allInnerTexts();
  assert.equal(low, `−${high}`); // zero is in the middle
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction((before) => {
    const canvas = document.querySelector(".map canvas");
    return [...canvas.getContext("2d").getImageData(56, 16, 1, 1).data].join() !== before;
  }, change[1]);
});

test("a CEM's sub-layers, all of them or one", async (t) => {
  const page = await traced(t, { name: "cem-kjv", text: "In the beginning God created the heaven" });
  const [first] = await trace({ model: "cem-kjv", prompt: "In the beginning God created the heaven" });
  const options = await page.getByLabel("Descent", { exact: true }).locator("option").allInnerTexts();
  assert.equal(options.length, first.trace.descents.length + 1);
  await says(readout(page), `layer ${first.trace.descents.at(-1).layer}`);
  await page.getByLabel("Descent", { exact: true }).selectOption("1");
  await says(readout(page), `layer ${first.trace.descents[1].layer}, ${first.trace.descents[1].kind}`);
  await map(page).focus();
  await page.keyboard.press("ArrowUp");
  await says(readout(page), "t = 1 of 2");
  const exact = first.trace.descents[1];
  near(await told(page, "energy E(t)"), Object.values(exact.energy).reduce((sum, term) => sum + term[1], 0));
});

test("a model without an energy shows what it has", async (t) => {
  const page = await traced(t, { name: "gpt", text: "abc" });
  const [first] = await trace({ model: "gpt", prompt: "abc", top: 8 });
  assert.deepEqual(await page.getByLabel("Quantity").locator("option").allInnerTexts(),
                   ["r_t = |Δg| / |g|", "update norm |Δx|", "cosine to the final state"]);
  await page.locator("#view-map").getByText("This model has no T").waitFor();
  assert.doesNotMatch(await page.locator(".hint").filter({ hasText: "token-steps" }).innerText(), /dE_own/);
  near(await told(page, "update norm"), first.trace.descents.at(-1).update_norm[0]);
  assert.equal(await readout(page).locator(".chart").count(), 0);
});

test("tokens that stop early end early", async (t) => {
  const page = await open(t, { view: "map" });
  await page.locator("#map-text").fill(TEXT);
  await page.locator("#map-t").fill("8");
  await page.getByText("More", { exact: true }).first().click();
  await page.locator("#map-more").fill('{"exit": {"criterion": "state", "threshold": 0.4}}');
  await page.getByRole("button", { name: "Trace" }).click();
  await map(page).waitFor();
  const tokens = await trace({ model: "nrgpt-shakespeare", prompt: TEXT, descent: { steps: 8, exit: { criterion: "state", threshold: 0.4 } } });
  const most = Math.max(...tokens.map(({ trace }) => trace.steps));
  const early = tokens.findIndex(({ trace }) => trace.steps < most);
  assert.ok(early >= 0 && early < 30);
  await map(page).focus();
  for (let i = 0; i < early; i++) await page.keyboard.press("ArrowRight");
  await says(readout(page), `token ${early}, t = ${most} of ${tokens[early].trace.steps}`);
  assert.equal(await readout(page).getByRole("row", { name: "energy E(t)" }).locator("td").innerText(), "–");
  assert.ok((await column(page, early, most + 1)).at(-1).endsWith(",0"));
});

test("tokens are generated behind the text, and the last of them does not descend", async (t) => {
  const page = await open(t, { view: "map" });
  await page.locator("#map-text").fill("ROMEO:");
  await page.getByLabel("Tokens to generate").fill("4");
  await page.getByRole("button", { name: "Trace" }).click();
  await says(page.locator(".hint"), "10 tokens, T = 4");
  await map(page).focus();
  await page.keyboard.press("Control+End");
  await says(readout(page), "does not descend");
});

test("a text of 2,000 tokens, where the context has room for it", async (t) => {
  const text = "abcdefghij ".repeat(700);
  const tokens = await (await fetch(`${URL_OPEN}/tokenize`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model: "long", prompt: text }) })).json();
  const ids = tokens.tokens.slice(0, 2000);
  assert.equal(ids.length, 2000);
  const cut = await (await fetch(`${URL_OPEN}/detokenize`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model: "long", tokens: ids }) })).json();
  for (const viewport of [undefined, PHONE]) {
    const page = await traced(t, { name: "long", text: cut.content, viewport });
    await says(page.locator(".hint"), /[12],\d\d\d tokens, T = 3/);
    const shown = Number(/([\d,]+) tokens, T/.exec(await page.locator(".hint").filter({ hasText: "tokens, T" }).innerText())[1].replace(",", ""));
    assert.ok(Math.abs(shown - 2000) <= 2, `${shown} tokens`);
    await map(page).focus();
    await page.keyboard.press("Control+End");
    await says(readout(page), `token ${shown - 1}, t = 3 of 3`);
    const [painted, within] = await page.evaluate(() => [
      [...document.querySelectorAll(".map canvas")].every((canvas) => canvas.width && canvas.getContext("2d").getImageData(4, 4, 1, 1).data[3]),
      document.documentElement.scrollWidth <= innerWidth,
    ]);
    assert.ok(painted && within);
  }
});

test("a text of 2,000 tokens, where it has not", async (t) => {
  const page = await open(t, { view: "map" });
  await page.locator("#map-text").fill("a".repeat(2000));
  await page.getByRole("button", { name: "Trace" }).click();
  await says(alert(page), /2000.*256/);
  await page.locator("#map-text").fill(TEXT);
  await page.getByRole("button", { name: "Trace" }).click();
  await map(page).waitFor();
  assert.equal(await alert(page).count(), 0);
});

test("a text of the playground is handed over with its T", async (t) => {
  const page = await open(t);
  await page.getByLabel("Most tokens").fill("20");
  await page.locator("#t1").fill("6");
  await page.getByRole("button", { name: "Generate" }).click();
  await says(pane(page, 2), "length");
  await pane(page, 2).getByRole("button", { name: "Energy map of this text" }).click();
  await says(page.locator(".hint"), "27 tokens, T = 6");
});

// A trace of one token, read at these states.
const answered = (guesses) => ({
  traces: [{ index: 0, text: "", finish_reason: "length", tokens: [{ token: 1, text: "a", logprob: null, trace: {
    position: 0, steps: 2, guesses: guesses.at(-1), track: [],
    descents: [{ layer: 0, kind: "block", steps: 2, energy: { attention: [3, 2, 1] }, own_change: [-1, -1], history_change: [0, 0], r: [0.5, 0.25],
                 update_norm: [2, 1], cosine: [0, 0.5, 1], slope: [4, 0.0000015], guesses }],
  } }] }],
  usage: { descent_steps: 2 }, descent: { steps: 2, seed: 1 },
});
const guess = (text, logprob) => ({ token: text.charCodeAt(0), text, logprob });

test("guesses of every step, and the slope", async (t) => {
  const { url } = await inFrontOf({
    "/v1/descent/trace": (request, response, { prompt }) =>
      response.end(JSON.stringify(answered(prompt === "end" ? [[guess("e", -3)]] : [[guess("x", -1)], [guess("y", -2)], [guess("z", -0.5)]]))),
  });
  const page = await traced(t, { url });
  await map(page).focus();
  await says(readout(page), /read at x\(2\)[\s\S]*z/);
  await page.keyboard.press("ArrowUp");
  await says(readout(page), /read at x\(1\)[\s\S]*y/);
  near(await told(page, "slope"), 4);
  near(await told(page, "logprob of the likeliest"), -2);
  await page.keyboard.press("ArrowDown");
  assert.equal(await readout(page).getByRole("row", { name: "slope" }).locator("td").innerText(), "1.50e-6");
  await page.locator("#map-text").fill("end"); // read at the end of a sub-layer only
  await page.getByRole("button", { name: "Trace" }).click();
  await says(readout(page), Math.exp(-3).toFixed(3)); // the answer is there
  await map(page).focus();
  await says(readout(page), "t = 2 of 2");
  await page.keyboard.press("ArrowUp");
  await says(readout(page), /t = 1 of 2[\s\S]*read at x\(2\)/);
  assert.equal(await readout(page).getByRole("row", { name: "logprob of the likeliest" }).count(), 0);
});

test("a trace is stopped, and a cut one is told", async (t) => {
  let answer = () => {};
  const { url } = await inFrontOf({ "/v1/descent/trace": (request, response) => answer(response) });
  const page = await open(t, { view: "map", url });
  await page.locator("#map-text").fill("abc");
  await page.getByRole("button", { name: "Trace" }).click();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Trace" }).waitFor();
  assert.equal(await alert(page).count(), 0);
  answer = (response) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": 1000 });
    response.write('{"traces": [');
    response.socket.end();
  };
  await page.getByRole("button", { name: "Trace" }).click();
  await says(alert(page), "The connection ended before the answer did.");
  answer = (response) => {
    response.writeHead(500, { "content-type": "application/json" });
    response.end('{"error": {"message": "no memory for the trace", "type": "server_error", "param": null, "code": null}}');
  };
  await page.getByRole("button", { name: "Trace" }).click();
  await says(alert(page), "no memory for the trace");
});
