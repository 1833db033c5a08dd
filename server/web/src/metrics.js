// Prometheus' text as numbers.

// { "name{labels}": value }, in order.
export function parse(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#") continue;
    const at = line.lastIndexOf(" ");
    values.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return values;
}

// [[upper bound, count up to it]] of a histogram.
export function buckets(values, name) {
  const found = [];
  for (const [key, value] of values) {
    if (!key.startsWith(`${name}_bucket{`)) continue;
    const bound = /le="([^"]+)"/.exec(key)[1];
    found.push([bound === "+Inf" ? Infinity : Number(bound), value]);
  }
  return found;
}

// The bound below which a share of the observations is; null without any.
export function quantile(list, share) {
  const total = list.at(-1)?.[1] ?? 0;
  if (!total) return null;
  let below = 0;
  let counted = 0;
  for (const [bound, count] of list) {
    if (count >= share * total) {
      if (bound === Infinity) return below;
      return below + ((share * total - counted) / (count - counted)) * (bound - below);
    }
    below = bound;
    counted = count;
  }
  return null;
}

// Observations of each bucket by itself.
export const apart = (list) => list.map(([bound, count], i) => [bound, count - (i ? list[i - 1][1] : 0)]);

// Whether the server began anew between two readings: some counter fell.
const COUNTER = /^\w+_(total|count|sum|bucket)(\{|$)/;
export const began = (before, now) => [...before].some(([key, value]) => COUNTER.test(key) && !(now.get(key) >= value));
