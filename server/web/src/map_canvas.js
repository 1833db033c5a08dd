// Draws the energy map: tokens run like text, in lines that wrap; above each token its column, a cell for each row (descent, t),
// t downwards. A canvas a line, since one for all would be too tall for long texts. Knows where a cell lies, and what lies where.
import { color, ramp } from "./colors.js";
import { shown } from "./format.js";

const LABEL = 20;
const GAP = 10;
const FONT = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
const LEAST_WIDTH = 13;
const MOST_LABEL = 18; // characters

// { lines: [{ first, count, x: [...], width }], cell, breaks, height } of tokens in a width.
export function layOut(tokens, rows, width) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = FONT;
  const cell = rows.length <= 10 ? 11 : rows.length <= 20 ? 8 : rows.length <= 40 ? 5 : 3;
  const tops = [];
  let y = 0;
  rows.forEach((row, i) => {
    if (i && row.descent !== rows[i - 1].descent) y += 3;
    tops.push(y);
    y += cell;
  });
  const lines = [];
  let line = null;
  tokens.forEach((token, index) => {
    const label = clipped(shown(token.text));
    const wide = Math.max(LEAST_WIDTH, Math.ceil(pen.measureText(label).width) + 5);
    if (!line || line.width + wide > width) {
      line = { first: index, labels: [], x: [], width: 0 };
      lines.push(line);
    }
    line.x.push(line.width);
    line.labels.push(label);
    line.width += wide;
  });
  return { lines, tops, cell, cells: y, height: y + LABEL, pitch: y + LABEL + GAP };
}

const clipped = (text) => (text.length > MOST_LABEL ? `${text.slice(0, MOST_LABEL - 1)}…` : text);

export function paintLine(canvas, line, layout, rows, tokens, quantity, ranges) {
  const scale = Math.min(devicePixelRatio || 1, 2);
  canvas.width = Math.ceil(line.width * scale);
  canvas.height = Math.ceil(layout.height * scale);
  canvas.style.width = `${line.width}px`;
  canvas.style.height = `${layout.height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const colors = ramp(quantity.diverging ? "diverging" : "sequential");
  const ink = color("ink-2");
  pen.font = FONT;
  pen.textBaseline = "middle";
  line.x.forEach((x, k) => {
    const token = tokens[line.first + k];
    const wide = (line.x[k + 1] ?? line.width) - x;
    rows.forEach(({ descent, t }, row) => {
      const value = token.trace && quantity.of(token.trace.descents[descent], t);
      if (!Number.isFinite(value)) return;
      const [low, high] = ranges.get(descent);
      const level = Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low))));
      pen.fillStyle = colors[level];
      pen.fillRect(x, layout.tops[row], wide - 1, layout.cell);
    });
    pen.fillStyle = ink;
    pen.fillText(line.labels[k], x + 2, layout.cells + LABEL / 2 + 1);
  });
}

// The cell under a point of the whole map, or null.
export function cellAt(layout, rows, x, y) {
  const n = Math.floor(y / layout.pitch);
  const line = layout.lines[n];
  if (!line || x < 0 || x >= line.width) return null;
  let k = 0;
  while (k + 1 < line.x.length && line.x[k + 1] <= x) k++;
  const inside = y - n * layout.pitch;
  let row = 0;
  while (row + 1 < rows.length && layout.tops[row + 1] <= inside) row++;
  return { token: line.first + k, row };
}

// { x, y, width, height } of a cell in the whole map.
export function boxOf(layout, { token, row }) {
  const n = lineOf(layout, token);
  const line = layout.lines[n];
  const k = token - line.first;
  const x = line.x[k];
  return { x, y: n * layout.pitch + layout.tops[row], width: (line.x[k + 1] ?? line.width) - x - 1, height: layout.cell };
}

export function lineOf(layout, token) {
  let n = layout.lines.length - 1;
  while (n > 0 && layout.lines[n].first > token) n--;
  return n;
}
