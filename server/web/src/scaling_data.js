// What goes into a scaling experiment and what comes out: inputs of a pasted or dropped text, lists of T, the metrics of a row,
// and rows as CSV.

export const METRICS = [
  { id: "loss", label: "loss", unit: "nats a token" },
  { id: "perplexity", label: "perplexity", unit: "" },
  { id: "bits_per_byte", label: "bits per byte", unit: "bits" },
  { id: "accuracy", label: "accuracy", unit: "share right" },
  { id: "accuracy_by_bytes", label: "accuracy by likelihood a byte", unit: "share right" },
  { id: "energy", label: "energy E(T)", unit: "model units" },
  { id: "relative_change", label: "r_t of the last step", unit: "" },
  { id: "converged", label: "converged", unit: "share of tokens" },
  { id: "token_steps", label: "token-steps", unit: "" },
  { id: "multiply_adds", label: "multiply-adds", unit: "counted" },
  { id: "tokens_per_second", label: "tokens/s", unit: "" },
  { id: "joules", label: "energy used", unit: "J" },
];

// Records are lines of JSON with a prompt, or lines of prompt, tab, answer; anything else is a text.
export function readInputs(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  if (!lines.length) return { kind: "none", count: 0 };
  if (lines[0].trimStart().startsWith("{")) {
    const records = [];
    for (const [index, line] of lines.entries()) {
      try {
        records.push(JSON.parse(line));
      } catch (error) {
        throw new Error(`Record ${index + 1}: ${error.message}`);
      }
    }
    if (records.every((record) => typeof record.text === "string"))
      return { kind: "texts", count: records.length, fields: { texts: records.map((record) => record.text) } };
    return { kind: "records", count: records.length, fields: { records } };
  }
  if (lines.every((line) => line.split("\t").length === 2)) {
    const records = lines.map((line) => line.split("\t")).map(([prompt, answer]) => ({ prompt, answer }));
    return { kind: "records", count: records.length, fields: { records } };
  }
  return { kind: "texts", count: 1, fields: { texts: [text] } };
}

const MOST_DEPTHS = 64;

// "1, 2, 4-8, 8-32:8" as numbers, in order, each once.
export function readDepths(text, most) {
  const list = new Set();
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const range = /^(\d+)(?:-(\d+)(?::(\d+))?)?$/.exec(part);
    if (!range) throw new Error(`T: "${part}" is neither a number nor a range such as 1-8 or 8-32:8`);
    const [first, last, by] = [Number(range[1]), Number(range[2] ?? range[1]), Number(range[3] ?? 1)];
    if (first < 1 || last < first || by < 1 || last > most) throw new Error(`T: "${part}" is not within 1 and ${most}`);
    for (let steps = first; steps <= last && list.size <= MOST_DEPTHS; steps += by) list.add(steps);
  }
  if (!list.size) throw new Error("T: no depth is named");
  if (list.size > MOST_DEPTHS) throw new Error(`T: more than ${MOST_DEPTHS} depths`);
  return [...list].sort((a, b) => a - b);
}

// Depths around the trained one.
export function suggested(trained, most) {
  const around = [1, trained / 2, trained, 1.5 * trained, 2 * trained, 3 * trained, 4 * trained];
  return [...new Set(around.map((steps) => Math.min(most, Math.max(1, Math.ceil(steps)))))].sort((a, b) => a - b).join(", ");
}

// A depth as text: 4, 3x2, or none.
export function spelled(steps) {
  if (steps === null) return "none";
  return typeof steps === "object" ? `${steps.attention}x${steps.mlp}` : String(steps);
}

// A row's depth as the position on the axis, and the line it belongs to: an attention T each on the line of its MLP's T.
const positionOf = (steps) => steps?.attention ?? steps;
const lineOf = (steps) => (steps?.mlp ? `MLP T = ${steps.mlp}` : "");

export const intervalOf = (row, metric) => {
  const [low, high] = row.intervals[metric] ?? [null, null];
  return low === null || high === null ? null : [low, high];
};

export const present = (rows) => METRICS.filter(({ id }) => rows.some((row) => Number.isFinite(row[id])));

// { positions, lines: [{ name, points: [{ x, y, low, high }] }] } of one metric.
export function curves(rows, metric) {
  const lines = new Map();
  for (const row of rows) {
    if (!Number.isFinite(row[metric]) || row.steps === null) continue;
    const name = lineOf(row.steps);
    if (!lines.has(name)) lines.set(name, []);
    const interval = intervalOf(row, metric);
    lines.get(name).push({ x: positionOf(row.steps), y: row[metric], low: interval?.[0] ?? null, high: interval?.[1] ?? null });
  }
  const named = [...lines].map(([name, points]) => ({ name, points: points.sort((a, b) => a.x - b.x) }));
  return { positions: [...new Set(named.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b), lines: named };
}

// Of positions in order, those whose labels have room on the axis; `place` gives pixels.
export function labelled(positions, place) {
  const kept = [];
  for (const position of positions) if (!kept.length || place(position) - place(kept.at(-1)) >= 22) kept.push(position);
  return kept;
}

const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
const plain = (value) => (value === null || value === undefined ? "" : quoted(String(value)));

// A line a row; an interval is two columns, a difference three.
export function csv(rows) {
  const metrics = present(rows).map(({ id }) => id);
  const header = ["steps", "inputs", "predictions", "tokens"];
  const body = rows.map((row) => [spelled(row.steps), row.inputs, row.predictions, row.tokens]);
  for (const metric of metrics) {
    const bounded = rows.some((row) => intervalOf(row, metric));
    const compared = rows.some((row) => Number.isFinite(row.difference[metric]?.value));
    header.push(metric, ...(bounded ? [`${metric}_low`, `${metric}_high`] : []));
    if (compared) header.push(`${metric}_difference`, `${metric}_difference_low`, `${metric}_difference_high`);
    rows.forEach((row, i) => {
      const difference = row.difference[metric];
      body[i].push(row[metric], ...(bounded ? (intervalOf(row, metric) ?? [null, null]) : []));
      if (compared) body[i].push(difference?.value, difference?.low, difference?.high);
    });
  }
  return [header, ...body].map((line) => line.map(plain).join(",")).join("\n") + "\n";
}
