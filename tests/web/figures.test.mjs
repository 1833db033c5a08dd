// What the page computes itself: lists of T, inputs, CSV, the picture, and figures of /metrics. In Node, without a browser.
import assert from "node:assert/strict";
import test from "node:test";
import { apart, began, buckets, parse, quantile } from "../../server/web/src/metrics.js";
import { csv, curves, present, readDepths, readInputs, suggested } from "../../server/web/src/scaling_data.js";
import { svg, ticks } from "../../server/web/src/scaling_svg.js";

test("lists of T", () => {
  assert.deepEqual(readDepths("4, 1 2", 256), [1, 2, 4]);
  assert.deepEqual(readDepths("1-4,8-32:8", 256), [1, 2, 3, 4, 8, 16, 24, 32]);
  assert.deepEqual(readDepths("3,3,2-3", 256), [2, 3]);
  for (const [text, words] of [["", "no depth"], ["x", "neither a number"], ["0", "within 1 and 8"], ["9", "within 1 and 8"], ["4-2", "within"],
                               ["1.5", "neither"], ["1-8:0", "within"]])
    assert.throws(() => readDepths(text, 8), new RegExp(words), text);
  assert.throws(() => readDepths("1-100", 256), /more than 64/);
  assert.equal(suggested(4, 256), "1, 2, 4, 6, 8, 12, 16");
  assert.equal(suggested(1, 256), "1, 2, 3, 4");
  assert.equal(suggested(5, 8), "1, 3, 5, 8");
});

test("inputs: a text, texts, records", () => {
  assert.deepEqual(readInputs(" \n"), { kind: "none", count: 0 });
  assert.deepEqual(readInputs("a\tb c\nd\te"), { kind: "records", count: 2, fields: { records: [{ prompt: "a", answer: "b c" }, { prompt: "d", answer: "e" }] } });
  assert.deepEqual(readInputs("a\tb\nc").fields, { texts: ["a\tb\nc"] });
  assert.deepEqual(readInputs('{"text": "a"}\n\n{"text": "b"}\n').fields, { texts: ["a", "b"] });
  const record = { prompt: "a", choices: ["b", "c"], answer: 1 };
  assert.deepEqual(readInputs(JSON.stringify(record)), { kind: "records", count: 1, fields: { records: [record] } });
  assert.throws(() => readInputs('{"prompt": "a", "answer": "b"}\n{'), /Record 2/);
});

const ROWS = [1, 2, 4].map((steps) => ({
  steps, inputs: 3, predictions: 90, tokens: 93, loss: 2 / steps, accuracy: null, energy: -10 * steps, tokens_per_second: null, token_steps: 93 * steps,
  intervals: { loss: [2 / steps - 0.25, 2 / steps + 0.25], accuracy: [null, null], energy: [null, null] },
  difference: { loss: { value: 2 / steps - 0.5, low: -0.1, high: 0.1 }, accuracy: { value: null, low: null, high: null } },
}));

test("rows as CSV: what exists, with its interval and its difference", () => {
  assert.deepEqual(present(ROWS).map(({ id }) => id), ["loss", "energy", "token_steps"]);
  const lines = csv(ROWS).trimEnd().split("\n");
  assert.equal(lines[0], "steps,inputs,predictions,tokens,loss,loss_low,loss_high,loss_difference,loss_difference_low,loss_difference_high,energy,token_steps");
  assert.equal(lines[2], "2,3,90,93,1,0.75,1.25,0.5,-0.1,0.1,-20,186");
  assert.equal(lines.length, 4);
  assert.match(csv([{ steps: { attention: 3, mlp: 2 }, loss: 1, intervals: {}, difference: {} }]), /\n3x2,,,,1\n/);
});

test("a grid is a line for each T of the MLP", () => {
  const rows = [[2, 1, 5], [1, 1, 6], [1, 2, 4]].map(([attention, mlp, loss]) => ({ steps: { attention, mlp }, loss, intervals: {} }));
  const { positions, lines } = curves(rows, "loss");
  assert.deepEqual(positions, [1, 2]);
  assert.deepEqual(lines.map(({ name, points }) => [name, points.map(({ x, y }) => [x, y])]), [["MLP T = 1", [[1, 6], [2, 5]]], ["MLP T = 2", [[1, 4]]]]);
});

test("the picture: points and intervals where the numbers are, axes with units, the trained T", () => {
  const metric = { id: "loss", label: "loss", unit: "nats a token" };
  const text = svg(ROWS, metric, { model: "a<b&\"c\"", trained: 2, about: "one text" });
  assert.match(text, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"/);
  assert.match(text, /loss \(nats a token\)<\/text>/);
  assert.match(text, /trained T<\/text>/);
  assert.match(text, /a&#60;b&#38;&#34;c&#34;: loss against T/);
  const [points] = /polyline points="([^"]+)"/.exec(text).slice(1);
  const at = points.split(" ").map((pair) => pair.split(",").map(Number));
  assert.equal(at.length, 3);
  assert.ok(Math.abs(at[1][0] - at[0][0] - (at[2][0] - at[1][0])) < 0.2); // 1, 2, 4: equal distances
  assert.ok(Math.abs((at[1][1] - at[0][1]) / (at[2][1] - at[1][1]) - 2) < 0.02); // 2, 1, 0.5
  const labels = [...text.matchAll(/<text x="76" y="([\d.]+)" text-anchor="end">([\d.]+)<\/text>/g)].map(([, y, value]) => [Number(y) - 4, Number(value)]);
  const [[y0, v0], [y1, v1]] = [labels[0], labels.at(-1)];
  for (const [i, value] of [2, 1, 0.5].entries()) assert.ok(Math.abs(at[i][1] - (y0 + ((value - v0) * (y1 - y0)) / (v1 - v0))) < 0.3);
  assert.equal(text.match(/h8M/g).length, 3); // an interval each
  const many = Array.from({ length: 32 }, (_, i) => ({ steps: i + 1, loss: 1, intervals: {} }));
  const marks = [...svg(many, metric, { model: "m", trained: 4, about: "" }).matchAll(/x="([\d.]+)" y="374" text-anchor="middle">(\d+)</g)];
  assert.deepEqual(marks.slice(0, 4).map(([, , steps]) => steps), ["1", "2", "3", "4"]);
  for (const [i, [, at]] of marks.entries()) assert.ok(!i || at - marks[i - 1][1] >= 21.9); // room for each
  assert.doesNotMatch(svg(ROWS, metric, { model: "m", trained: 64, about: "" }), /trained T/);
  assert.match(svg(ROWS.slice(0, 1), metric, { model: "m", trained: 1, about: "" }), /cx="392.0"/);
});

test("ticks are round and within", () => {
  assert.deepEqual(ticks(0, 10), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(-0.31, 0.29).map((tick) => tick.toFixed(1)), ["-0.2", "0.0", "0.2"]);
  assert.ok(ticks(5, 5).length);
});

test("figures of /metrics", () => {
  const values = parse('# HELP a b\na 3\nb{x="y z"} 4\nh_bucket{le="1"} 2\nh_bucket{le="2"} 6\nh_bucket{le="+Inf"} 8\nh_sum 20\nh_count 8\n');
  assert.equal(values.get("a"), 3);
  assert.equal(values.get('b{x="y z"}'), 4);
  const list = buckets(values, "h");
  assert.deepEqual(list, [[1, 2], [2, 6], [Infinity, 8]]);
  assert.deepEqual(apart(list), [[1, 2], [2, 4], [Infinity, 2]]);
  assert.equal(quantile(list, 0.5), 1.5);
  assert.equal(quantile(list, 0.25), 1);
  assert.equal(quantile(list, 0.99), 2);
  assert.equal(quantile([], 0.5), null);
  assert.equal(quantile([[1, 0]], 0.5), null);
});

test("a server that began anew has counters that fell", () => {
  const before = parse('now 3\na_total{x="y"} 3\nb_count 2\nb_bucket{le="1"} 2\n');
  for (const [text, fell] of [['now 1\na_total{x="y"} 3\nb_count 2\nb_bucket{le="1"} 2\n', false], ['now 3\na_total{x="y"} 4\nb_count 2\nb_bucket{le="1"} 2\nc_total 0\n', false],
                              ['now 3\na_total{x="y"} 2\nb_count 2\nb_bucket{le="1"} 2\n', true], ['now 3\na_total{x="y"} 3\nb_count 2\nb_bucket{le="1"} 1\n', true],
                              ['now 3\nb_count 2\nb_bucket{le="1"} 2\n', true]])
    assert.equal(began(before, parse(text)), fell, text);
});
