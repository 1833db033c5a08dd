// The server as it is: queue, batch, speed, memory, read from /metrics every two seconds while this view is looked at.
import { useEffect, useMemo, useState } from "preact/hooks";
import { connection, models, props, request } from "./api.js";
import { axis, Chart, Lines } from "./chart.jsx";
import { series } from "./colors.js";
import { Problem } from "./fields.jsx";
import { bytes, count, depth as depthText, integer, number, rough, seconds } from "./format.js";
import { apart, began, buckets, parse, quantile } from "./metrics.js";
import { useStore } from "./store.js";

const PERIOD = 2000;
const TEN_SECONDS = 10_000;
const KEPT = 150; // samples: five minutes

// Samples, newest last: [{ at (s), values, anew: the server began after the sample before }]. Nothing is asked while nobody looks.
function useSamples(active, state) {
  const [samples, setSamples] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!active || state !== "ready") return undefined;
    let over = false;
    let timer = 0;
    const ask = async () => {
      if (!document.hidden) {
        try {
          const values = parse(await (await request("metrics")).text());
          if (over) return;
          setSamples((old) => {
            const anew = old.length > 0 && began(old.at(-1).values, values);
            return [...old.slice(1 - KEPT), { at: Date.now() / 1000, values, anew }];
          });
          setError(null);
        } catch (problem) {
          if (over) return;
          setError(problem);
        }
      }
      timer = setTimeout(ask, PERIOD);
    };
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [active, state]);
  return [samples, error];
}

// The sample that the newest is held against: ten seconds older, or the first since the server began; undefined where the newest is
// the first.
function past(samples) {
  const recent = samples.slice(-1 - TEN_SECONDS / PERIOD);
  const since = recent.slice(Math.max(0, recent.findLastIndex(({ anew }) => anew)));
  return since.length > 1 ? since[0] : undefined;
}

// What a counter grew by a second between two samples.
function rate(name, before, now) {
  if (!before || now.at <= before.at) return null;
  return (now.values.get(name) - before.values.get(name)) / (now.at - before.at);
}

// What a step of the batch advanced between two samples, on average.
function rowsAStep(before, now) {
  if (!before) return null;
  const grown = (name) => now.values.get(name) - before.values.get(name);
  const steps = grown("descent_batch_rows_count");
  return steps > 0 ? grown("descent_batch_rows_sum") / steps : 0;
}

// The same by the step t that the rows were at: [[upper bound, rows]].
function rowsByStep(before, now) {
  if (!before) return null;
  const steps = now.values.get("descent_batch_rows_count") - before.values.get("descent_batch_rows_count");
  const [old, list] = [before, now].map(({ values }) => apart(buckets(values, "descent_row_step")));
  return list.map(([bound, n], i) => [bound, steps ? (n - old[i][1]) / steps : 0]);
}

export function ServerState({ active }) {
  const state = useStore(connection);
  const [samples, error] = useSamples(active, state);
  const now = samples.at(-1);
  return (
    <>
      <Problem error={error} />
      {now ? <Figures samples={samples} now={now} /> : !error && <p class="empty">The server's figures are on their way.</p>}
      <Served />
    </>
  );
}

function Figures({ samples, now }) {
  const before = past(samples);
  const get = (name) => now.values.get(name);
  const limit = get("descent_cache_limit_bytes");
  const wait = buckets(now.values, "descent_time_to_first_token_seconds");
  const cards = [
    ["Running", integer(get("descent_requests_running")), "sequences that hold cache"],
    ["Waiting", integer(get("descent_requests_waiting")), "sequences in the queue"],
    ["Rows a step", number(rowsAStep(before, now)), "tokens advanced together, last 10 s"],
    ["Row-steps/s", count(rate("descent_batch_rows_sum", before, now)), "steps of tokens, last 10 s"],
    ["Tokens/s", number(rate("descent_generated_tokens_total", before, now)), "of texts that ended in the last 10 s"],
    ["First token", seconds(quantile(wait, 0.5)), `median since the start; 99%: ${seconds(quantile(wait, 0.99))}`],
    ["Cache", bytes(get("descent_cache_bytes")), `of ${bytes(limit)}`, get("descent_cache_bytes") / limit],
    ["Preemptions", integer(get("descent_preemptions_total")), "since the start"],
  ];
  return (
    <>
      <dl class="cards">
        {cards.map(([name, value, about, share]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
            {share !== undefined && <dd class="share"><Share value={share} label={`${name}, share of its limit`} /></dd>}
            <dd class="hint">{about}</dd>
          </div>
        ))}
      </dl>
      <div class="charts">
        <Line title="Rows a step" samples={samples} of={rowsAStep} />
        <Line title="Row-steps/s" samples={samples} of={(before, sample) => rate("descent_batch_rows_sum", before, sample)} />
        <Line title="Running and waiting sequences" samples={samples} names={["running", "waiting"]}
              of={(_, sample) => sample.values.get("descent_requests_running")}
              and={(_, sample) => sample.values.get("descent_requests_waiting")} />
        <Line title="Cache, MiB" samples={samples} of={(_, sample) => sample.values.get("descent_cache_bytes") / 2 ** 20} />
      </div>
      <div class="charts">
        <Bars title="Batch by t: rows at each step of their descent, last 10 s" list={rowsByStep(before, now)} value={rough} />
        <Bars title="Rows of each step, since the start" list={apart(buckets(now.values, "descent_batch_rows"))} value={integer} />
        <Bars title="T of requests, since the start" list={apart(buckets(now.values, "descent_request_steps"))} value={integer} />
      </div>
      <Requests values={now.values} />
    </>
  );
}

// Not a <meter>: what is empty of one is white in Firefox where the page is dark, and looks full.
function Share({ value, label }) {
  const share = Math.min(Math.max(value || 0, 0), 1);
  const percent = `${(100 * share).toFixed(1)}%`;
  return (
    <div class="bar" role="meter" aria-label={label} aria-valuemin="0" aria-valuemax="1" aria-valuenow={share} aria-valuetext={percent}>
      <span style={{ width: percent }} />
    </div>
  );
}

function Line({ title, samples, of, and, names = [title] }) {
  const data = useMemo(() => {
    const list = (value) => samples.map((sample, i) => value(sample.anew ? undefined : samples[i - 1], sample) ?? null);
    return [samples.map(({ at }) => at - samples.at(-1).at), list(of), ...(and ? [list(and)] : [])];
  }, [samples]);
  const options = () => ({
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: (_, low) => [Math.min(low, -60), 0] }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [axis({ size: 28, values: (_, ticks) => ticks.map((at) => (at ? `${number(at)} s` : "now")) }), axis({ size: 56, values: (_, ticks) => ticks.map(rough) })],
    series: [{}, ...names.map((label, i) => ({ label, stroke: series(i), width: 2, points: { show: samples.length < 3 } }))],
  });
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <Chart options={options} shape={`${title}${samples.length < 3}`} data={data} height={150} label={`${title} over the last minutes`} />
      {names.length > 1 && <Lines names={names} />}
    </figure>
  );
}

// Bars of [[upper bound, number]] up to the last that is not 0; null: not known.
function Bars({ title, list, value }) {
  const last = list?.findLastIndex(([, n]) => n) ?? -1;
  const most = last < 0 ? 0 : Math.max(...list.map(([, n]) => n));
  return (
    <figure>
      <figcaption>{title}</figcaption>
      {last < 0 && <p class="hint">{list ? "none" : "–"}</p>}
      <ol class="bars">
        {list?.slice(0, last + 1).map(([bound, n], i) => (
          <li key={bound}>
            <span class="name">{bound === Infinity ? `over ${list[i - 1][0]}` : i && list[i - 1][0] + 1 < bound ? `${list[i - 1][0] + 1}–${bound}` : bound}</span>
            <span class="bar"><span style={{ width: `${(100 * n) / most}%` }} /></span>
            <span class="value">{value(n)}</span>
          </li>
        ))}
      </ol>
    </figure>
  );
}

function Requests({ values }) {
  const rows = [];
  for (const [key, n] of values) {
    const found = /^descent_requests_total\{endpoint="([^"]+)",code="([^"]+)"\}/.exec(key);
    if (found && n) rows.push([found[1], found[2] === "0" ? "left" : found[2], n]);
  }
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Requests">
      <table class="rows">
        <caption>Requests since the start</caption>
        <thead><tr><th scope="col">endpoint</th><th scope="col">status</th><th scope="col">requests</th></tr></thead>
        <tbody>
          {rows.map(([endpoint, code, n]) => <tr key={endpoint + code}><th scope="row">{endpoint}</th><td>{code}</td><td>{integer(n)}</td></tr>)}
        </tbody>
      </table>
    </div>
  );
}

function Served() {
  const served = useStore(models);
  const facts = useStore(props);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Models">
      <table class="rows">
        <caption>Models, {facts?.build_info}</caption>
        <thead>
          <tr>{["model", "family", "trained T", "context", "vocabulary", "parameters", "weights", "chat", "fingerprint"].map((name) => <th key={name} scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {served.map(({ id, descent }) => (
            <tr key={id}>
              <th scope="row">{id}</th><td>{descent.family}</td><td>{depthText(descent.trained_steps)}</td><td>{integer(descent.context)}</td>
              <td>{integer(descent.vocabulary)}</td><td>{count(descent.parameters)}</td><td>{descent.quantization}</td>
              <td>{descent.chat_template ?? "–"}</td><td><code>{descent.system_fingerprint}</code></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
