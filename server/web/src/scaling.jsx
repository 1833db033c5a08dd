// What T buys on the user's own data: one experiment, its rows as they come, a curve with intervals, a table, and files.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { stream } from "./api.js";
import { axis, Chart, Lines } from "./chart.jsx";
import { color, series } from "./colors.js";
import { Choice, Controls, descentField, Field, Go, MoreDescent, NumberField, Problem, useOfModel } from "./fields.jsx";
import { aligned, count, depth as depthText, download, integer, number, seconds } from "./format.js";
import { csv, curves, intervalOf, labelled, METRICS, present, readDepths, readInputs, spelled, suggested } from "./scaling_data.js";
import { svg } from "./scaling_svg.js";

const MOST_FILE = 8 << 20; // bytes; the server has a limit of its own

export function Scaling({ model, most }) {
  const trained = model.descent.trained_steps;
  const kinds = trained && typeof trained === "object" ? Object.keys(trained) : null;
  const [text, setText] = useState("");
  const [file, setFile] = useState(null);
  const [lists, setLists] = useOfModel(model, () =>
    kinds ? Object.fromEntries(kinds.map((kind) => [kind, `1-${Math.min(4, most)}`])) : { T: trained ? suggested(trained, most) : "" });
  const [threshold, setThreshold] = useState(null);
  const [more, setMore] = useState("");
  const [busy, setBusy] = useState(null); // an AbortController
  const [error, setError] = useState(null);
  const [result, setResult] = useState(null); // { rows, progress, about, model, trained, reference, ended }
  const data = file?.text ?? text;

  const inputs = useMemo(() => {
    try {
      return readInputs(data);
    } catch (problem) {
      return { kind: "wrong", problem };
    }
  }, [data]);

  async function start() {
    const controller = new AbortController();
    setError(null);
    let body;
    try {
      if (inputs.problem) throw inputs.problem;
      body = { model: model.id, ...inputs.fields };
      if (kinds) body.steps = Object.fromEntries(kinds.map((kind) => [kind, readDepths(lists[kind], most)]));
      else if (trained !== null) body.steps = readDepths(lists.T, most);
      if (threshold !== null) body.threshold = threshold;
      if (more.trim()) body.descent = descentField(null, more);
    } catch (problem) {
      setError(problem);
      return;
    }
    setBusy(controller);
    const named = inputs.kind === "records" ? `${integer(inputs.count)} records` : inputs.count === 1 ? "one text" : `${integer(inputs.count)} texts`;
    let now = { rows: [], progress: null, about: file ? `${file.name}, ${named}` : named, model: model.id, trained, reference: null, ended: false };
    setResult(now);
    try {
      for await (const event of stream("v1/descent/scaling", body, controller.signal)) {
        now = withEvent(now, event);
        setResult(now);
      }
      setResult({ ...now, ended: true });
    } catch (problem) {
      if (!controller.signal.aborted) setError(problem);
    } finally {
      setBusy(null);
    }
  }

  return (
    <div class="split">
      <Controls label="Experiment" busy={busy !== null} onStart={start} onStop={() => busy.abort()}>
        <Inputs text={text} onText={setText} file={file} onFile={setFile} onProblem={setError} />
        <p class="hint" id="inputs-said">{said(inputs)}</p>
        {kinds ? (
          <div class="pair">
            {kinds.map((kind) => <Depths key={kind} id={`depths-${kind}`} label={`T of ${kind === "mlp" ? "MLP" : kind}`} value={lists[kind]}
                                         onChange={(value) => setLists({ ...lists, [kind]: value })} />)}
          </div>
        ) : trained === null ? <p class="hint">This model has no T: its layers are applied once.</p>
          : <Depths id="depths" label="T" value={lists.T} onChange={(value) => setLists({ T: value })} />}
        <details>
          <summary>More</summary>
          <NumberField id="threshold" label="Converged where r_t is below" value={threshold} onChange={setThreshold} min={0} step={0.01}
                       hint="empty: 0.03" />
          <MoreDescent id="scaling-more" value={more} onChange={setMore} />
        </details>
        <div class="actions">
          <Go busy={busy !== null} disabled={inputs.kind === "none"}>Measure</Go>
        </div>
        <Problem error={error} />
      </Controls>
      <div aria-busy={busy !== null}>
        {result ? <Result {...result} busy={busy !== null} /> : (
          <p class="empty">Loss, accuracy, energy and cost of your own text at each T, with intervals: a text is read window by window,
            records are prompts with an answer, or with choices.</p>
        )}
      </div>
    </div>
  );
}

// A text to type or paste, or a file to choose or drop, which then stands in its place.
function Inputs({ text, onText, file, onFile, onProblem }) {
  const [over, setOver] = useState(false);
  async function take(from) {
    onProblem(null);
    if (!from) return;
    if (from.size > MOST_FILE) onProblem(new Error(`${from.name} has ${integer(from.size)} bytes; at most ${integer(MOST_FILE)} are taken`));
    else onFile({ name: from.name, text: await from.text() });
  }
  const drag = (entered) => (event) => {
    event.preventDefault();
    setOver(entered);
  };
  const drop = (event) => {
    drag(false)(event);
    void take(event.dataTransfer.files[0]);
  };
  return (
    <div class={`drop ${over ? "over" : ""}`} onDragOver={drag(true)} onDragLeave={drag(false)} onDrop={drop}>
      {file ? (
        <p class="file"><code>{file.name}</code> <button type="button" class="link" onClick={() => onFile(null)}>remove</button></p>
      ) : (
        <Field id="scaling-text" label="Text, or records">
          <textarea id="scaling-text" class="mono" rows="7" spellcheck={false} value={text} aria-describedby="inputs-said"
                    onInput={(event) => onText(event.target.value)} />
        </Field>
      )}
      <div class="actions">
        <input id="file" class="sr" type="file" accept=".txt,.tsv,.jsonl,.json,text/*" onChange={(event) => {
          void take(event.target.files[0]);
          event.target.value = "";
        }} />
        <label class="button" for="file">Choose a file</label>
        <span class="hint">or drop one here</span>
      </div>
    </div>
  );
}

function Depths({ id, label, value, onChange }) {
  return (
    <Field id={id} label={label} hint="1, 2, 4-8, 8-32:8">
      <input id={id} type="text" inputmode="text" value={value} aria-describedby={`${id}-hint`} onInput={(event) => onChange(event.target.value)} />
    </Field>
  );
}

const said = (inputs) => ({
  none: "A text; lines of prompt, tab, answer; or lines of JSON: {\"prompt\", \"answer\"}, {\"prompt\", \"choices\", \"answer\"}.",
  wrong: inputs.problem?.message,
  texts: inputs.count === 1 ? "One text." : `${integer(inputs.count)} texts.`,
  records: `${integer(inputs.count)} records.`,
})[inputs.kind];

// Rows come again as more inputs are read: the newest of a depth counts.
export function withEvent(result, event) {
  const rows = new Map(result.rows.map((row) => [spelled(row.steps), row]));
  for (const row of event.rows) rows.set(spelled(row.steps), row);
  const reference = event.descent?.reference ?? result.reference;
  return { ...result, rows: [...rows.values()], progress: event.progress ?? result.progress, reference };
}

function Progress({ progress, busy, ended }) {
  const share = progress?.total ? progress.done / progress.total : null;
  if (!busy) return <p class="hint" role="status">{ended ? "Done." : "Stopped: what is shown is of the inputs read so far."}</p>;
  return (
    <div class="progress">
      <progress aria-label="Inputs measured" max="1" value={share ?? undefined} />
      <span class="hint">
        {share === null ? "waiting" : `${integer(progress.done)} of ${integer(progress.total)}`}
        {Number.isFinite(progress?.seconds_left) && `, ${seconds(progress.seconds_left)} left`}
      </span>
    </div>
  );
}

function Result({ rows, progress, about, model, trained, reference, busy, ended }) {
  const shownMetrics = present(rows);
  const [chosen, setChosen] = useState(null);
  const metric = shownMetrics.find(({ id }) => id === chosen) ?? shownMetrics[0] ?? METRICS[0];
  const name = `${model}-${metric.id}`;
  const curved = rows.some(({ steps }) => steps !== null);
  return (
    <>
      <Progress progress={progress} busy={busy} ended={ended} />
      {rows.length > 0 && (
        <>
          <div class="toolbar">
            <Choice id="metric" label="Metric" value={metric.id} onChange={setChosen} options={shownMetrics.map(({ id, label }) => [id, label])} />
            <div class="actions">
              <button type="button" onClick={() => download(`${model}.csv`, "text/csv", csv(rows))}>CSV</button>
              {curved && <button type="button" onClick={() => download(`${name}.svg`, "image/svg+xml", svg(rows, metric, { model, trained, about }))}>SVG</button>}
              <button type="button" onClick={() => download(`${model}.json`, "application/json", JSON.stringify(rows, null, 1))}>JSON</button>
            </div>
          </div>
          {curved && <Curve rows={rows} metric={metric} trained={trained} />}
          <Table rows={rows} metrics={shownMetrics} chosen={metric} trained={trained} reference={reference} />
        </>
      )}
    </>
  );
}

// Points at powers of the same distance, whatever T: half as deep is as far as twice.
function Curve({ rows, metric, trained }) {
  const { positions, lines } = useMemo(() => curves(rows, metric.id), [rows, metric.id]);
  const at = trained && typeof trained === "object" ? trained.attention : trained;
  const data = useMemo(() => {
    const of = (points, key) => positions.map((x) => points.find((point) => point.x === x)?.[key] ?? null);
    return [positions, ...lines.flatMap(({ points }) => [of(points, "y"), of(points, "low"), of(points, "high")])];
  }, [positions, lines]);
  const drawn = useRef(null);
  drawn.current = { lines, positions };
  const options = () => ({
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 9 } },
    scales: { x: { time: false, distr: 3, log: 2, range: (_, low, high) => [low / 1.2, high * 1.2] } },
    axes: [
      axis({ label: trained && typeof trained === "object" ? "T of attention" : "T", size: 34, labelSize: 18, splits: () => drawn.current.positions,
             filter: (_, splits) => splits, values: spaced }),
      axis({ label: metric.unit ? `${metric.label}, ${metric.unit}` : metric.label, size: 62, labelSize: 18, values: (_, list) => list.map(number) }),
    ],
    series: [
      { label: "T" },
      ...lines.flatMap(({ name }, i) => [
        { label: name || metric.label, stroke: series(i), width: 2, points: { show: true, size: 7, fill: series(i) }, value: (_, value) => number(value) },
        { show: true, stroke: "transparent", points: { show: false }, label: "low" },
        { show: true, stroke: "transparent", points: { show: false }, label: "high" },
      ]),
    ],
    hooks: { drawClear: [(plot) => shade(plot, at)], draw: [(plot) => bars(plot, lines.length), (plot) => name(plot, at)] },
  });
  const shape = [metric.id, at, ...lines.map(({ name }) => name)].join("|");
  const told = lines.map(({ name, points }) => `${name} ${points.map(({ x, y }) => `${x}: ${number(y)}`).join(", ")}`).join("; ");
  return (
    <>
      <Chart options={options} shape={shape} data={data} height={320} label={`${metric.label} against T: ${told}`} />
      {lines.length > 1 && <Lines names={lines.map(({ name }) => name)} />}
    </>
  );
}

function spaced(plot, splits) {
  const kept = labelled(splits, (steps) => plot.valToPos(steps, "x"));
  return splits.map((steps) => (kept.includes(steps) ? String(steps) : ""));
}

const within = (plot, at) => at && at >= plot.scales.x.min && at <= plot.scales.x.max;

function shade(plot, at) {
  if (!within(plot, at)) return;
  const { left, top, width, height } = plot.bbox;
  const middle = plot.valToPos(at, "x", true);
  const half = 14 * devicePixelRatio;
  const pen = plot.ctx;
  pen.save();
  pen.fillStyle = color("shade");
  const from = Math.max(left, middle - half);
  pen.fillRect(from, top, Math.min(left + width, middle + half) - from, height);
  pen.restore();
}

function name(plot, at) {
  if (!within(plot, at)) return;
  const pen = plot.ctx;
  pen.save();
  pen.fillStyle = color("ink-2");
  pen.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.fillText("trained", plot.valToPos(at, "x", true), plot.bbox.top + 14 * devicePixelRatio);
  pen.restore();
}

function bars(plot, count) {
  const pen = plot.ctx;
  const cap = 4 * devicePixelRatio;
  pen.save();
  pen.lineWidth = 1.5 * devicePixelRatio;
  for (let i = 0; i < count; i++) {
    pen.strokeStyle = series(i);
    pen.beginPath();
    plot.data[0].forEach((x, k) => {
      const [low, high] = [plot.data[3 * i + 2][k], plot.data[3 * i + 3][k]];
      if (low === null || low === undefined) return;
      const at = plot.valToPos(x, "x", true) + (i - (count - 1) / 2) * cap; // of several lines side by side
      const [from, to] = [plot.valToPos(low, "y", true), plot.valToPos(high, "y", true)];
      pen.moveTo(at, from);
      pen.lineTo(at, to);
      pen.moveTo(at - cap, from);
      pen.lineTo(at + cap, from);
      pen.moveTo(at - cap, to);
      pen.lineTo(at + cap, to);
    });
    pen.stroke();
  }
  pen.restore();
}

function Table({ rows, metrics, chosen, trained, reference }) {
  const compared = reference !== null && rows.length > 1 && rows.some((row) => Number.isFinite(row.difference[chosen.id]?.value));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of all metrics">
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">T</th>
            {compared && <th scope="col">{chosen.label}, less that at T = {depthText(reference)}</th>}
            {metrics.map(({ id, label }) => <th key={id} scope="col">{label}</th>)}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={spelled(row.steps)} class={spelled(row.steps) === spelled(trained) ? "chosen" : ""}>
              <th scope="row">{depthText(row.steps)}</th>
              {compared && <Difference {...row.difference[chosen.id]} />}
              {metrics.map(({ id }) => <Cell key={id} row={row} metric={id} />)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Difference({ value, low, high }) {
  return <td>{signed(value)}{Number.isFinite(low) && low !== high && <small>{signed(low)} to {signed(high)}</small>}</td>;
}

const signed = (value) => (value > 0 ? `+${number(value)}` : number(value));

function Cell({ row, metric }) {
  const interval = intervalOf(row, metric);
  const write = ["token_steps", "multiply_adds"].includes(metric) ? count : aligned;
  return <td>{write(row[metric])}{interval && <small>{number(interval[0])} to {number(interval[1])}</small>}</td>;
}
