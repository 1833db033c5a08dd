// What the energy map makes of an answer of /v1/descent/trace: which descents a token has, which quantities may be drawn, and
// the value of one at (token, descent, t). A value that is not there (a token that stopped early) is undefined.

// E(t), and what is of a state x(t), has T+1 values; what is of a step from t-1 to t has T, and stands at t.
const state = (list) => (descent, t) => list(descent)?.[t];
const step = (list) => (descent, t) => (t === 0 ? undefined : list(descent)?.[t - 1]);

// undefined where a sub-layer has no energy.
export function energy(descent, t) {
  const terms = Object.values(descent.energy);
  let sum = terms.length ? 0 : undefined;
  for (const term of terms) {
    if (term[t] === undefined) return undefined;
    sum += term[t];
  }
  return sum;
}

const BASE = [
  { id: "energy", label: "energy E(t)", of: energy },
  { id: "above", label: "E(t) − E(T)", of: (d, t) => difference(energy(d, t), energy(d, d.steps)) },
];
const LISTS = [
  { id: "own_change", label: "change of own energy, dE_own", make: step, diverging: true },
  { id: "history_change", label: "change by the history, dE_history", make: step, diverging: true },
  { id: "slope", label: "slope, grad · J R grad", make: step, diverging: true },
  { id: "r", label: "r_t = |Δg| / |g|", make: step },
  { id: "update_norm", label: "update norm |Δx|", make: step },
  { id: "cosine", label: "cosine to the final state", make: state },
  { id: "guesses", label: "logprob of the likeliest next token", make: (list) => (d, t) => (list(d)?.length > 1 ? list(d)[t]?.[0]?.logprob : undefined) },
];

const difference = (a, b) => (a === undefined || b === undefined ? undefined : a - b);
const name = (term) => term.replaceAll("_", "-");

export function readTrace(answer) {
  const tokens = answer.traces[0].tokens;
  const first = tokens.find((token) => token.trace)?.trace;
  const descents = (first?.descents ?? []).map((descent, index) => ({
    label: first.descents.length === 1 ? descent.kind : `layer ${descent.layer}, ${descent.kind}`,
    steps: tokens.reduce((most, token) => Math.max(most, token.trace?.descents[index]?.steps ?? 0), 0),
  }));
  const sums = first?.descents.some(({ energy }) => Object.keys(energy).length > 1);
  const terms = sums ? [...new Set(first.descents.flatMap(({ energy }) => Object.keys(energy)))] : [];
  const quantities = [
    ...BASE,
    ...terms.map((term) => ({ id: `energy.${term}`, label: `energy, ${name(term)}`, of: state((d) => d.energy[term]) })),
    ...LISTS.map(({ id, label, make, diverging }) => ({ id, label, diverging, of: make((d) => d[id]) })),
  ].filter(({ of }) => first?.descents.some((d) => Array.from({ length: d.steps + 1 }, (_, t) => of(d, t)).some(Number.isFinite)));
  return { tokens, descents, quantities, usage: answer.usage, depth: answer.descent.steps };
}

// The rows of the map: (descent, t) from top to bottom.
export function rowsOf(trace, chosen) {
  const list = chosen === "all" ? trace.descents.map((_, index) => index) : [Number(chosen)];
  return list.flatMap((descent) => Array.from({ length: trace.descents[descent].steps + 1 }, (_, t) => ({ descent, t })));
}

// [low, high] of each descent that is drawn, without the outermost percent on either side; about zero where it may be negative.
export function rangesOf(trace, quantity, rows) {
  const values = new Map();
  for (const { descent, t } of rows) {
    if (!values.has(descent)) values.set(descent, []);
    for (const { trace: own } of trace.tokens) {
      const value = own && quantity.of(own.descents[descent], t);
      if (Number.isFinite(value)) values.get(descent).push(value);
    }
  }
  return new Map([...values].map(([descent, list]) => [descent, range(list, quantity.diverging)]));
}

function range(list, diverging) {
  if (!list.length) return [0, 1];
  list.sort((a, b) => a - b);
  const at = (share) => list[Math.round(share * (list.length - 1))];
  const [low, high] = [at(0.01), at(0.99)];
  if (!diverging) return low === high ? [low, low + 1] : [low, high];
  const most = Math.max(-low, high) || 1;
  return [-most, most];
}

// The likeliest next tokens, and the step whose state they were read from: each step's where one block is applied T times, a
// sub-layer's last state elsewhere, or, where nothing was read on the way, the token's final state.
export function guessesAt(token, descent, t) {
  const own = token.trace?.descents[descent];
  const read = own?.guesses;
  if (read?.length === own?.steps + 1) return { list: read[Math.min(t, own.steps)], at: Math.min(t, own.steps) };
  if (read?.length) return { list: read.at(-1), at: own.steps };
  return { list: token.trace?.guesses ?? [], at: token.trace?.steps ?? null };
}

// What a descent comes to: how often the own energy rises, and the mean loss.
export function summary(trace) {
  let steps = 0;
  let rises = 0;
  let loss = 0;
  let scored = 0;
  for (const { trace: own, logprob } of trace.tokens) {
    if (Number.isFinite(logprob)) {
      loss -= logprob;
      scored++;
    }
    for (const descent of own?.descents ?? []) {
      for (const change of descent.own_change.filter(Number.isFinite)) {
        steps++;
        if (change > 0) rises++;
      }
    }
  }
  return { rises: steps ? rises / steps : null, loss: scored ? loss / scored : null, scored };
}
