// What does T buy on my text? The curve of loss against T, asked with the stock `openai` client plus three lines.
//
//     node tools/examples/curve.mjs nrgpt-shakespeare text.txt 1,2,4,8 [http://127.0.0.1:8080/v1]
//
// Prints a line for each T: the loss in nats a token, its 95% interval, and how much it is above the loss at the trained T.
import { readFile } from 'node:fs/promises';
import OpenAI from 'openai';

const [model, path, list = '1,2,4,8', baseURL = 'http://127.0.0.1:8080/v1'] = process.argv.slice(2);
if (!path) {
  console.error('usage: node curve.mjs MODEL FILE [T,T,...] [URL]');
  process.exit(2);
}
const client = new OpenAI({ baseURL, apiKey: process.env.OPENAI_API_KEY ?? 'none' });
const texts = [await readFile(path, 'utf8')];

// The three lines: a request of our own, sent by the client as any other.
const body = { model, texts, steps: list.split(',').map(Number) };
const answer = await client.post('/descent/scaling', { body });
const rows = answer.rows;

for (const row of rows) {
  const [low, high] = row.intervals.loss;
  const interval = low === null ? '' : ` (${low.toFixed(5)} to ${high.toFixed(5)})`;
  const above = row.difference.loss.value;
  const sign = above < 0 ? '' : '+';
  console.log(`T ${String(row.steps).padStart(3)}  loss ${row.loss.toFixed(5)}${interval}  ${sign}${above.toFixed(5)}`);
}
