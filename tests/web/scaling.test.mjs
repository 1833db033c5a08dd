// The scaling view: inputs, the request, rows as they come, the files it makes, and failures in between.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { alert, begin, event, inFrontOf, model, open, says, URL_OPEN } from "./support.mjs";

const measure = (page) => page.getByRole("button", { name: "Measure" });
const input = (page) => page.locator("#scaling-text");
const table = (page) => page.getByRole("region", { name: "Table of all metrics" });

const row = (steps, loss, more = {}) => ({
  steps, inputs: 2, diverged: 0, predictions: 40, bytes: 40, items: 0, right: 0, tokens: 42, token_steps: 42 * (steps.attention ?? steps),
  multiply_adds: 123456789, loss, perplexity: Math.exp(loss), bits_per_byte: loss / Math.LN2, accuracy: null, energy: -100, relative_change: 0.25,
  converged: 0.5, tokens_per_second: null, joules: null,
  intervals: { loss: [loss - 0.1, loss + 0.1], perplexity: [1, 9], bits_per_byte: [null, null], accuracy: [null, null] },
  difference: { loss: { value: loss - 2, low: -0.2, high: 0.2 } }, ...more,
});

// A page whose experiments are answered by `answer(response, body)`; the bodies that came.
async function experiment(t, answer) {
  const bodies = [];
  const { url } = await inFrontOf({
    "/v1/descent/scaling": (request, response, body) => {
      bodies.push(body);
      begin(response);
      response.write(": admitted\n\n");
      answer(response, body);
    },
  });
  return [await open(t, { view: "scaling", url }), bodies];
}

// The numbers of a row as the table has them.
async function numbers(page, steps) {
  const cells = await table(page).locator("tbody tr").filter({ has: page.getByRole("rowheader", { name: steps, exact: true }) }).locator("td").allInnerTexts();
  const heads = await table(page).locator("thead th").allInnerTexts();
  return Object.fromEntries(cells.map((cell, i) => [heads[i + 1], Number(cell.split("\n")[0].replace("−", "-").replaceAll(",", ""))]));
}

async function ask(body) {
  const answer = await fetch(`${URL_OPEN}/v1/descent/scaling`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, await answer.clone().text());
  return answer.json();
}

test("a text's numbers are the server's", async (t) => {
  const page = await open(t, { view: "scaling" });
  const text = "ROMEO:\nBut, soft! what light through yonder window breaks?\n".repeat(12);
  await input(page).fill(text);
  await page.locator("#depths").fill("1,4");
  await measure(page).click();
  await says(page.getByRole("status"), "Done.");
  const { rows, descent } = await ask({ model: "nrgpt-shakespeare", texts: [text], steps: [1, 4] });
  assert.equal(descent.reference, 4);
  for (const row of rows) {
    const told = await numbers(page, String(row.steps));
    for (const [label, name] of [["loss", "loss"], ["bits per byte", "bits_per_byte"], ["accuracy", "accuracy"], ["energy E(T)", "energy"]])
      assert.ok(Math.abs(told[label] - row[name]) <= 1e-3 * Math.abs(row[name]), `${label}: ${told[label]}, ${row[name]}`);
  }
  const difference = (await numbers(page, "1"))["loss, less that at T = 4"];
  assert.ok(Math.abs(difference - rows[0].difference.loss.value) < 1e-3 * Math.abs(difference));
});

test("records of a model that ships, and a grid", async (t) => {
  const page = await open(t, { view: "scaling" });
  const record = { prompt: "ROMEO:\nI ", choices: ["am", "zq"], answer: 0 };
  await input(page).fill(JSON.stringify(record));
  await page.locator("#depths").fill("4");
  await measure(page).click();
  await says(page.getByRole("status"), "Done.");
  assert.equal((await numbers(page, "4")).accuracy, 1);
  await model(page).selectOption("cem-kjv");
  await input(page).fill("In the beginning God created the heaven and the earth.");
  await page.getByLabel("T of attention").fill("1,2");
  await page.getByLabel("T of MLP").fill("2");
  await measure(page).click();
  await says(table(page), "2 × 2");
  await model(page).selectOption("gpt"); // has no T
  await measure(page).click();
  await says(page.getByRole("status"), "Done.");
  await says(table(page), /none/);
  assert.equal(await page.locator("#view-scaling .chart").count(), 0);
});

test("what the server refuses is told", async (t) => {
  const page = await open(t, { view: "scaling" });
  await input(page).fill('{"prompt": "a"}');
  await measure(page).click();
  await says(alert(page), /Refused\..*record/i);
});

// A response in whose hands the test is.
function held() {
  let take;
  const response = new Promise((resolve) => (take = resolve));
  return [(answer) => take(answer), response];
}

async function saved(page, name) {
  const coming = page.waitForEvent("download");
  await page.getByRole("button", { name, exact: true }).click();
  const download = await coming;
  return [download.suggestedFilename(), await readFile(await download.path(), "utf8")];
}

test("rows build the curve, the table and the files", async (t) => {
  const [answer, response] = held();
  const [page, bodies] = await experiment(t, answer);
  await input(page).fill("To be, or not to be\nthat is the question");
  await says(page.locator("#inputs-said"), "One text.");
  await page.locator("#depths").fill("1, 2, 4-8:4");
  await measure(page).click();
  const stream = await response;
  const { stream: streams, ...body } = bodies[0];
  assert.equal(streams, true);
  assert.deepEqual(body, { model: "nrgpt-shakespeare", texts: ["To be, or not to be\nthat is the question"], steps: [1, 2, 4, 8] });
  await says(page.locator(".progress"), "waiting");
  event(stream, { progress: { done: 1, total: 4, seconds_left: 90 }, rows: [row(1, 3), row(2, 2.5)] });
  await says(page.locator(".progress"), "1 of 4, 90 s left");
  await says(table(page), /1\s*3\s*2\.9 to 3\.1/);
  assert.equal(await table(page).locator("tbody tr").count(), 2);
  event(stream, { progress: { done: 4, total: 4, seconds_left: null }, rows: [1, 2, 4, 8].map((steps) => row(steps, 3 - Math.log2(steps) / 2)),
                  descent: { reference: 4, threshold: 0.03, resamples: 1000, level: 0.95, seed: 0 } });
  await page.waitForFunction(() => document.querySelectorAll(".rows tbody tr").length >= 4);
  event(stream, "[DONE]");
  stream.end();
  await says(page.getByRole("status"), "Done.");
  assert.equal(await page.locator(".chart canvas").count(), 1);
  assert.match(await page.locator(".chart").getAttribute("aria-label"), /loss against T.*1: 3, 2: 2\.5, 4: 2, 8: 1\.5/);
  assert.equal(await table(page).locator("tr.chosen th").innerText(), "4"); // the trained one
  await says(table(page), /loss, less that at T = 4[\s\S]*1\s*\+1\s*−0\.2 to \+0\.2\s*3/);
  await page.getByLabel("Metric", { exact: true }).selectOption("converged");
  assert.match(await page.locator(".chart").getAttribute("aria-label"), /converged against T/);
  assert.deepEqual(await page.getByLabel("Metric", { exact: true }).locator("option").allInnerTexts(),
                   ["loss", "perplexity", "bits per byte", "energy E(T)", "r_t of the last step", "converged", "token-steps", "multiply-adds"]);
  await page.getByLabel("Metric", { exact: true }).selectOption("loss");
  const [csvName, csv] = await saved(page, "CSV");
  assert.equal(csvName, "nrgpt-shakespeare.csv");
  assert.match(csv, /^steps,inputs,predictions,tokens,loss,loss_low,loss_high,/);
  assert.match(csv, /\n8,2,40,42,1\.5,1\.4,1\.6,-0\.5,/);
  const [svgName, svg] = await saved(page, "SVG");
  assert.equal(svgName, "nrgpt-shakespeare-loss.svg");
  assert.match(svg, /loss \(nats a token\)/);
  assert.equal(await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("circle").length, svg), 4);
  assert.deepEqual(JSON.parse((await saved(page, "JSON"))[1])[3].loss, 1.5);
});

test("a grid of a CEM's depths", async (t) => {
  const [page, bodies] = await experiment(t, (response, { steps }) => {
    const depths = steps.attention.flatMap((attention) => steps.mlp.map((mlp) => ({ attention, mlp })));
    event(response, { rows: depths.map((depth) => row(depth, 4 - 0.1 * depth.attention * depth.mlp)) });
    event(response, "[DONE]");
    response.end();
  });
  await model(page).selectOption("cem-kjv");
  await input(page).fill("In the beginning");
  await page.getByLabel("T of attention").fill("1,2");
  await page.getByLabel("T of MLP").fill("2-3");
  await measure(page).click();
  await says(page.getByRole("status"), "Done.");
  assert.deepEqual(bodies[0].steps, { attention: [1, 2], mlp: [2, 3] });
  await says(table(page), "2 × 3");
  await says(page.locator(".lines"), /MLP T = 2[\s\S]*MLP T = 3/);
});

test("records, from a file that is chosen or dropped", async (t) => {
  const [page, bodies] = await experiment(t, (response) => {
    event(response, { rows: [row(1, 3, { accuracy: 0.75, intervals: { accuracy: [0.5, 1] } })] });
    event(response, "[DONE]");
    response.end();
  });
  await page.locator("#file").setInputFiles({ name: "items.tsv", mimeType: "text/plain", buffer: Buffer.from("1+1=\t2\n1+2=\t3\n") });
  await says(page.locator(".file"), "items.tsv");
  await says(page.locator("#inputs-said"), "2 records.");
  await page.getByText("More", { exact: true }).nth(1).click();
  await page.getByLabel("Converged where r_t is below").fill("0.1");
  await page.locator("#scaling-more").fill('{"exit": {"criterion": "state"}}');
  await measure(page).click();
  await says(page.getByRole("status"), "Done.");
  const { steps, stream, ...body } = bodies[0];
  assert.deepEqual(body, { model: "nrgpt-shakespeare", records: [{ prompt: "1+1=", answer: "2" }, { prompt: "1+2=", answer: "3" }], threshold: 0.1,
                           descent: { exit: { criterion: "state" } } });
  assert.ok(stream && steps.includes(4));
  await says(table(page), /0\.7500\s*0\.5 to 1/);
  await page.getByRole("button", { name: "remove" }).click();
  await input(page).waitFor();
  const dropped = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(['{"prompt": "a", "choices": ["b", "c"], "answer": 0}\n'], "choices.jsonl"));
    return transfer;
  });
  await page.locator(".drop").dispatchEvent("dragover", { dataTransfer: dropped });
  await page.locator(".drop.over").waitFor();
  await page.locator(".drop").dispatchEvent("drop", { dataTransfer: dropped });
  await says(page.locator(".file"), "choices.jsonl");
  await says(page.locator("#inputs-said"), "1 records.");
  await page.locator("#file").setInputFiles({ name: "huge.txt", mimeType: "text/plain", buffer: Buffer.alloc((8 << 20) + 1, "a") });
  await says(alert(page), /huge\.txt has 8,388,609 bytes; at most 8,388,608/);
});

test("what is no input and no depth is said before anything is sent", async (t) => {
  const [page, bodies] = await experiment(t, () => {});
  assert.ok(await measure(page).isDisabled());
  await input(page).fill('{"prompt": 1}\nx');
  await measure(page).click();
  await says(alert(page), "Record 2");
  await input(page).fill("text");
  for (const [depths, words] of [["4-2", "is not within 1 and 256"], ["300", "is not within 1 and 256"], ["many", "neither a number nor a range"], ["", "no depth"]]) {
    await page.locator("#depths").fill(depths);
    await measure(page).click();
    await says(alert(page), words);
  }
  assert.equal(bodies.length, 0);
});

test("an error, a cut and a stop leave the rows that came", async (t) => {
  let end;
  const [page] = await experiment(t, (response) => {
    event(response, { progress: { done: 1, total: 9 }, rows: [row(1, 3), row(2, 2.5)] });
    end(response);
  });
  await input(page).fill("text");
  end = (response) => {
    event(response, { error: { message: "the server is about to end", type: "server_error", param: null, code: "draining" } });
    response.socket.end();
  };
  await measure(page).click();
  await says(alert(page), /The server failed\. the server is about to end draining/);
  assert.equal(await table(page).locator("tbody tr").count(), 2);
  await says(page.getByRole("status"), "Stopped: what is shown is of the inputs read so far.");
  end = (response) => response.socket.end();
  await measure(page).click();
  await says(alert(page), "Cut off.");
  end = () => {};
  await measure(page).click();
  await says(page.locator(".progress"), "1 of 9");
  await page.getByRole("button", { name: "Stop" }).click();
  await says(page.getByRole("status"), "Stopped");
  assert.equal(await alert(page).count(), 0);
  assert.equal(await table(page).locator("tbody tr").count(), 2);
});
