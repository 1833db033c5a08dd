// The curve as a picture that reads by itself: axes with units, intervals, the trained T shaded. Always on white, for papers.
import { number } from "./format.js";
import { curves, labelled } from "./scaling_data.js";

const WIDTH = 720;
const HEIGHT = 420;
const LEFT = 84;
const RIGHT = 700;
const TOP = 56;
const BOTTOM = 356;
const COLORS = ["#1f5f8b", "#b0541e", "#2d7a4f", "#7a4a9e", "#9c2b4b", "#5c6670"];

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.codePointAt(0)};`);

// About five round numbers from low to high.
export function ticks(low, high) {
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  const list = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) list.push(k * step || 0); // no -0
  return list;
}

export function svg(rows, metric, { model, trained, about }) {
  const { positions, lines } = curves(rows, metric.id);
  const values = lines.flatMap(({ points }) => points.flatMap(({ y, low, high }) => [y, low ?? y, high ?? y]));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = (most - least || Math.abs(most) || 1) * 0.08;
  const [bottom, top] = [least - room, most + room];
  const [from, to] = [Math.log2(positions[0]), Math.log2(positions.at(-1))];
  const x = (steps) => (from === to ? (LEFT + RIGHT) / 2 : LEFT + 16 + ((Math.log2(steps) - from) / (to - from)) * (RIGHT - LEFT - 32));
  const y = (value) => BOTTOM - ((value - bottom) / (top - bottom)) * (BOTTOM - TOP);
  const f = (value) => value.toFixed(1);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" ` +
      `font-family="sans-serif" font-size="12" fill="#222">`,
    `<title>${escaped(`${model}: ${metric.label} against T`)}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    `<text x="${LEFT}" y="24" font-size="15" font-weight="bold">${escaped(`${model}: ${metric.label} against T`)}</text>`,
    `<text x="${LEFT}" y="43" fill="#555">${escaped(about)}</text>`,
  ];
  const at = trained === null ? null : typeof trained === "object" ? trained.attention : trained;
  if (at !== null && at >= positions[0] && at <= positions.at(-1)) {
    out.push(`<rect x="${f(x(at) - 14)}" y="${TOP}" width="28" height="${BOTTOM - TOP}" fill="#1f5f8b" fill-opacity="0.1"/>`);
    out.push(`<text x="${f(x(at))}" y="${TOP + 14}" text-anchor="middle" fill="#1f5f8b">trained T</text>`);
  }
  for (const tick of ticks(bottom, top)) {
    out.push(`<path d="M${LEFT} ${f(y(tick))}H${RIGHT}" stroke="#ddd"/>`);
    out.push(`<text x="${LEFT - 8}" y="${f(y(tick) + 4)}" text-anchor="end">${number(tick)}</text>`);
  }
  for (const steps of labelled(positions, x))
    out.push(`<text x="${f(x(steps))}" y="${BOTTOM + 18}" text-anchor="middle">${steps}</text>`);
  out.push(`<path d="M${LEFT} ${TOP}V${BOTTOM}H${RIGHT}" fill="none" stroke="#222"/>`);
  const axis = typeof trained === "object" && trained ? "T of attention (steps)" : "recursion depth T (steps)";
  out.push(`<text x="${(LEFT + RIGHT) / 2}" y="${BOTTOM + 40}" text-anchor="middle">${axis}, logarithmic</text>`);
  const unit = metric.unit ? `${metric.label} (${metric.unit})` : metric.label;
  out.push(`<text transform="translate(20 ${(TOP + BOTTOM) / 2}) rotate(-90)" text-anchor="middle">${escaped(unit)}</text>`);
  lines.forEach(({ name, points }, i) => {
    const stroke = COLORS[i % COLORS.length];
    out.push(`<polyline points="${points.map((p) => `${f(x(p.x))},${f(y(p.y))}`).join(" ")}" fill="none" stroke="${stroke}" stroke-width="2"/>`);
    for (const p of points) {
      if (p.low !== null) {
        const [cx, a, b] = [x(p.x), y(p.low), y(p.high)];
        out.push(`<path d="M${f(cx)} ${f(a)}V${f(b)}M${f(cx - 4)} ${f(a)}h8M${f(cx - 4)} ${f(b)}h8" stroke="${stroke}"/>`);
      }
      out.push(`<circle cx="${f(x(p.x))}" cy="${f(y(p.y))}" r="3.5" fill="${stroke}"><title>T = ${p.x}: ${number(p.y)}</title></circle>`);
    }
    if (name) {
      const left = LEFT + i * 104;
      out.push(`<circle cx="${left}" cy="${HEIGHT - 10}" r="4" fill="${stroke}"/>`);
      out.push(`<text x="${left + 9}" y="${HEIGHT - 6}">${escaped(name)}</text>`);
    }
  });
  return `${out.join("\n")}\n</svg>\n`;
}
