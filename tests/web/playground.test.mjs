// The playground: what it sends, what it shows, and how it bears a server that fails.
import assert from "node:assert/strict";
import test from "node:test";
import { alert, begin, event, given, idle, inFrontOf, model, open, pane, piece, says, shownText, textOf, URL_OPEN } from "./support.mjs";

const generate = (page) => page.getByRole("button", { name: "Generate" });
const stop = (page) => page.getByRole("button", { name: "Stop" });

// The bodies of the requests that follow.
function sent(page, path = "/v1/completions") {
  const bodies = [];
  page.on("request", (request) => {
    if (request.url().endsWith(path)) bodies.push(request.postDataJSON());
  });
  return bodies;
}

async function ask(body, path = "/v1/completions") {
  const answer = await fetch(URL_OPEN + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  assert.equal(answer.status, 200, await answer.clone().text());
  return answer.json();
}

// A random model ends its texts anywhere.
async function goOn(page) {
  await page.getByText("Sampler").click();
  await page.getByLabel("Go on behind the end of text").check();
}

// Texts that take longer than any test.
async function endless(page) {
  await goOn(page);
  await page.getByLabel("Most tokens").fill("2000");
  for (const i of [0, 1]) await page.getByLabel("T, as a number").nth(i).fill("200");
}

async function settled(page) {
  await generate(page).waitFor();
}

test("two panes show what the server gives at their T with the same seed", async (t) => {
  const page = await open(t);
  await page.getByLabel("Prompt").fill("JULIET:\n");
  await page.getByLabel("Seed").fill("11");
  await page.getByLabel("Most tokens").fill("60");
  await page.locator("#t0").fill("2");
  await page.getByLabel("T, as a number").nth(1).fill("6");
  await page.getByLabel("T, as a number").nth(1).blur();
  await generate(page).click();
  await says(page.getByRole("status"), /Seed 11\. Characters in common at the beginning: \d+\./);
  for (const [number, steps] of [[1, 2], [2, 6]]) {
    const answer = await ask({ model: "nrgpt-shakespeare", prompt: "JULIET:\n", seed: 11, max_tokens: 60, temperature: 0.7, descent: { steps } });
    assert.equal(await textOf(page, number), answer.choices[0].text);
    assert.equal(await shownText(page, number).locator(".given").innerText(), "JULIET:\n");
    const told = await pane(page, number).locator(".stats").innerText();
    assert.match(told, /first token\s+[\d.]+ m?s\s+tokens\/s\s+[\d,.]+\s+tokens\s+60\s+token-steps\s+\d+\s+end\s+length/);
  }
  const [first, second] = [await textOf(page, 1), await textOf(page, 2)];
  const common = Number(/beginning: (\d+)/.exec(await page.locator("p[role=status]").innerText())[1]);
  assert.equal(first.slice(0, common), second.slice(0, common));
  assert.notEqual(first[common], second[common]);
  assert.equal(await page.locator("mark").count(), 2);
});

test("the same T gives the same text, and a random seed is told", async (t) => {
  const page = await open(t);
  const bodies = sent(page);
  await page.locator("#t0").fill("4");
  await page.getByLabel("Most tokens").fill("40");
  await generate(page).click();
  await says(page.getByRole("status"), "Both texts are the same.");
  assert.equal(bodies[0].seed, bodies[1].seed);
  await says(page.getByRole("status"), `Seed ${bodies[0].seed}.`);
  assert.equal(await page.locator("mark").count(), 0);
});

test("every setting is sent, and defaults are not", async (t) => {
  const page = await open(t);
  const bodies = sent(page);
  await page.getByLabel("Compare two T").uncheck();
  assert.equal(await page.getByRole("article").count(), 1);
  await page.getByLabel("Most tokens").fill("3");
  await generate(page).click();
  await says(pane(page, 2), "length");
  const { seed, ...plain } = bodies[0];
  assert.ok(Number.isInteger(seed));
  assert.deepEqual(plain, { model: "nrgpt-shakespeare", prompt: "ROMEO:\n", temperature: 0.7, max_tokens: 3, stream: true,
                            stream_options: { include_usage: true }, descent: { steps: 4 } });
  await page.getByText("Sampler").click();
  const values = { top_p: 0.9, top_k: 20, min_p: 0.05, typical_p: 0.95, repetition_penalty: 1.1, presence_penalty: 0.2, frequency_penalty: 0.3 };
  for (const [name, value] of Object.entries(values)) await page.getByLabel(name).fill(String(value));
  await page.getByLabel("Temperature").fill("0.4");
  await page.getByLabel("Seed").fill("-7");
  await page.getByLabel(/^Stop strings/).fill("KING\n\\n\\n");
  await page.getByLabel("Go on behind the end of text").check();
  await page.locator("#more").fill('{"exit": {"criterion": "state", "threshold": 0.2}}');
  await settled(page);
  await generate(page).click();
  await says(pane(page, 2), "length");
  assert.deepEqual(bodies[1], { ...plain, ...values, seed: -7, temperature: 0.4, stop: ["KING", "\n\n"], ignore_eos: true,
                                descent: { steps: 4, exit: { criterion: "state", threshold: 0.2 } } });
  await page.locator("#more").fill("[1]");
  await settled(page);
  await generate(page).click();
  await says(alert(page), "Other fields of descent: not an object");
  assert.equal(bodies.length, 2);
});

test("numbers are typed digit by digit", async (t) => {
  const page = await open(t);
  const bodies = sent(page);
  await page.getByText("Sampler").click();
  const type = async (field, text) => {
    await field.click();
    await page.keyboard.press("ControlOrMeta+a");
    for (const key of text) {
      await page.keyboard.press(key);
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(drawn)));
    }
    assert.equal(await field.inputValue(), text);
  };
  const values = { top_p: "0.95", min_p: "0.05", typical_p: "0.9005", repetition_penalty: "1.05", presence_penalty: "-0.5" };
  for (const [name, text] of Object.entries(values)) await type(page.getByLabel(name), text);
  await type(page.getByLabel("Temperature"), "0.45");
  await type(page.getByLabel("Most tokens"), "3");
  await page.getByLabel("top_k").fill("40");
  await page.getByLabel("top_k").fill(""); // as the server has it
  assert.equal(await page.getByLabel("top_k").inputValue(), "");
  await generate(page).click();
  await says(pane(page, 2), "length");
  const { seed, ...body } = bodies[1];
  assert.deepEqual(body, { model: "nrgpt-shakespeare", prompt: "ROMEO:\n", temperature: 0.45, max_tokens: 3, top_p: 0.95, min_p: 0.05, typical_p: 0.9005,
                           repetition_penalty: 1.05, presence_penalty: -0.5, stream: true, stream_options: { include_usage: true }, descent: { steps: 4 } });
  await page.getByLabel("Seed").click();
  await page.keyboard.type("1e"); // no number yet
  await page.getByText("Sampler").click();
  await page.getByLabel("Prompt").press("Control+Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "seed");
  await page.keyboard.type("3");
  await page.getByLabel("Temperature").fill("-1");
  await page.keyboard.press("Enter");
  await says(pane(page, 2).getByRole("alert"), /Refused\..*temperature/);
  assert.deepEqual([bodies.length, bodies[3].seed], [4, 1000]);
});

test("T is typed while texts come", async (t) => {
  let go;
  const { url } = await inFrontOf({
    "/v1/completions": (request, response) => {
      begin(response);
      go = () => event(response, piece("more "));
      go();
    },
  });
  const page = await open(t, { url });
  await page.getByLabel("Compare two T").uncheck();
  await generate(page).click();
  await says(shownText(page, 2), "more");
  const field = pane(page, 2).getByLabel("T, as a number");
  await field.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("1");
  go();
  await says(shownText(page, 2), "more more");
  await page.keyboard.press("2");
  assert.equal(await field.inputValue(), "12");
  await page.keyboard.press("Tab");
  assert.equal(await page.locator("#t1").inputValue(), "12");
  for (const [text, value] of [["999", "256"], ["0", "256"], ["", "256"], ["5", "5"]]) {
    await field.fill(text);
    await field.blur();
    await page.waitForFunction(([element, value]) => element.value === value, [await field.elementHandle(), value]);
  }
  assert.equal(await page.locator("#t1").inputValue(), "5");
});

test("a T is sent from its own field", async (t) => {
  const page = await open(t);
  const bodies = sent(page);
  await page.getByLabel("Compare two T").uncheck();
  await page.getByLabel("Most tokens").fill("3");
  const field = pane(page, 2).getByLabel("T, as a number");
  for (const [text, steps] of [["9", 9], ["12", 12]]) {
    await field.click();
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type(text);
    await page.keyboard.press("Control+Enter");
    await says(pane(page, 2), "length");
    assert.equal(bodies.at(-1).descent.steps, steps);
    assert.equal(await page.locator("#t1").inputValue(), String(steps));
    await settled(page);
  }
  for (const text of ["0", "1e", "3.5"]) { // no T: nothing is sent
    await field.click();
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type(text);
    await page.keyboard.press("Control+Enter");
    assert.ok(await field.evaluate((element) => element.matches(":invalid:focus")));
  }
  await page.getByLabel("Prompt").press("Control+Enter"); // the nearest, which the field then says
  await says(pane(page, 2), "length");
  await settled(page);
  assert.equal(await field.inputValue(), "4");
  assert.deepEqual(bodies.map(({ descent }) => descent.steps), [9, 12, 4]);
});

test("a CEM has T of attention and of MLP, and goes back to the trained one", async (t) => {
  const page = await open(t);
  const bodies = sent(page);
  await model(page).selectOption("cem-kjv");
  await page.getByLabel("Most tokens").fill("3");
  await page.locator("#t1-attention").fill("3");
  await page.locator("#t1-mlp").fill("1");
  await generate(page).click();
  await says(pane(page, 2), "length");
  assert.deepEqual(bodies.map(({ descent }) => descent.steps), [{ attention: 1, mlp: 1 }, { attention: 3, mlp: 1 }]);
  await settled(page);
  await pane(page, 2).getByRole("button", { name: "trained at 2" }).first().click();
  assert.equal(await page.locator("#t1-attention").inputValue(), "2");
  await page.locator("#t1-attention").press("ArrowRight");
  assert.equal(await page.getByLabel("T, attention, as a number").nth(1).inputValue(), "3");
});

test("a text is stopped, keeps what is there, and frees the server", async (t) => {
  const page = await open(t);
  await model(page).selectOption("long");
  await page.getByLabel("Prompt").fill("a b c");
  await endless(page);
  await page.getByLabel("Prompt").press("Control+Enter");
  await page.waitForFunction(() => document.querySelectorAll(".made")[1].textContent.length > 3);
  await stop(page).click();
  await says(pane(page, 2), "stopped");
  assert.ok((await textOf(page, 2)).length > 3);
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  assert.equal(await focused(), "Generate"); // the button that stopped it, which keeps the focus
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".made")[1].textContent.length > 3);
  await page.keyboard.press("Escape");
  await says(pane(page, 1), "stopped");
  await idle();
});

test("another model ends what the one before was doing", async (t) => {
  const page = await open(t);
  await model(page).selectOption("long");
  await page.getByLabel("Prompt").fill("a b c");
  await endless(page);
  await generate(page).click();
  await page.waitForFunction(() => document.querySelectorAll(".made")[1].textContent.length > 3);
  await model(page).selectOption("nrgpt-shakespeare");
  await settled(page);
  for (const number of [1, 2]) assert.equal(await textOf(page, number), "");
  await idle();
});

test("a chat goes on with each pane's own answers", async (t) => {
  const page = await open(t);
  const bodies = sent(page, "/v1/chat/completions");
  await model(page).selectOption("long");
  await page.getByLabel("Form").selectOption("chat");
  await page.getByLabel("System message").fill("Be brief.");
  await goOn(page);
  await page.getByLabel("Most tokens").fill("8");
  const say = async (text) => {
    await page.getByLabel("Message", { exact: true }).fill(text);
    await page.getByRole("button", { name: "Send" }).click();
    await says(pane(page, 1), "length");
    await says(pane(page, 2), "length");
    await page.getByRole("button", { name: "Send" }).waitFor();
  };
  await say("Who goes there?");
  const answers = [await textOf(page, 1), await textOf(page, 2)];
  await say("What friend?");
  assert.deepEqual(bodies.slice(0, 2).map(({ messages }) => messages),
                   Array(2).fill([{ role: "system", content: "Be brief." }, { role: "user", content: "Who goes there?" }]));
  for (const i of [0, 1]) {
    const [, first, answer, second] = bodies[2 + i].messages;
    assert.deepEqual([first.content, answer.role, second.content], ["Who goes there?", "assistant", "What friend?"]);
    assert.equal(answer.content.replace(/\s+/g, ""), answers[i].replace(/\s+/g, ""));
  }
  await says(shownText(page, 1), /Who goes there\?[\s\S]*What friend\?/);
  await page.getByRole("button", { name: "New conversation" }).click();
  assert.equal(await shownText(page, 1).innerText(), "");
});

test("a refusal is shown with its code", async (t) => {
  const page = await open(t);
  await page.getByLabel("Prompt").fill("ROM\u00c9O");
  await generate(page).click();
  await says(pane(page, 1).getByRole("alert"), /Refused\..*prompt/);
  await page.getByLabel("Prompt").fill("a".repeat(300));
  await settled(page);
  await generate(page).click();
  await says(pane(page, 2).getByRole("alert"), /300.*256/);
});

test("a server killed in the middle of a text leaves what came, says so, and is waited for", async (t) => {
  const page = await open(t, { url: given("DESCENT_URL_DOOMED") });
  await page.getByLabel("Prompt").fill("a b c");
  await endless(page);
  await generate(page).click();
  await page.waitForFunction(() => document.querySelectorAll(".made")[1].textContent.length > 3);
  process.kill(Number(given("DESCENT_PID_DOOMED")), "SIGKILL");
  await says(pane(page, 2).getByRole("alert"), "The connection ended before the answer did.");
  assert.ok((await textOf(page, 2)).length > 3);
  await says(page.locator(".notice"), "cannot be reached");
  await says(page.locator(".state"), "not reachable");
  await generate(page).click(); // no hang: it fails at once
  await says(pane(page, 2).getByRole("alert"), "The server cannot be reached.");
  await settled(page);
});

test("an error in a stream, and an end without [DONE], are told", async (t) => {
  let end;
  const { url } = await inFrontOf({
    "/v1/completions": (request, response) => {
      begin(response);
      response.write(": admitted\n\n");
      event(response, piece("Once \u00e9"));
      end(response);
    },
  });
  const page = await open(t, { url });
  await page.getByLabel("Compare two T").uncheck();
  end = (response) => {
    event(response, { error: { message: "the state diverged at token 7, step 3", type: "invalid_request_error", param: null, code: "descent_diverged" } });
    response.socket.end(); // no final chunk
  };
  await generate(page).click();
  await says(pane(page, 2).getByRole("alert"), /The server failed\. the state diverged at token 7, step 3 descent_diverged/);
  assert.equal(await textOf(page, 2), "Once \u00e9");
  end = (response) => response.end();
  await settled(page);
  await generate(page).click();
  await says(pane(page, 2).getByRole("alert"), "Cut off.");
  end = (response) => {
    event(response, "[DONE]");
    response.end();
  };
  await settled(page);
  await generate(page).click();
  await page.waitForFunction(() => !document.querySelector(".problem"));
  await says(shownText(page, 2), "Once \u00e9"); // of this run: the page says no problem
  await settled(page);
  assert.equal(await textOf(page, 2), "Once \u00e9");
  assert.equal(await alert(page).count(), 0);
});

test("an answer that is not the server's own is told as what it is", async (t) => {
  const { url } = await inFrontOf({
    "/v1/completions": (request, response) => {
      response.writeHead(502, { "content-type": "text/html" });
      response.end("<h1>Bad Gateway</h1>");
    },
  });
  const page = await open(t, { url });
  await generate(page).click();
  await says(pane(page, 1).getByRole("alert"), "the server answered 502 Bad Gateway");
});
