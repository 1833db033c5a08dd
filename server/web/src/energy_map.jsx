// A text's descents: tokens by steps, a colour for each value, and the numbers of the cell under the pointer or the arrow keys.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { json } from "./api.js";
import { Chart, axis } from "./chart.jsx";
import { color, ramp, scheme, series } from "./colors.js";
import { Choice, Controls, Depth, descentField, Field, Go, MoreDescent, NumberField, Problem, useOfModel } from "./fields.jsx";
import { depth as depthText, integer, number, rough, seconds, shown } from "./format.js";
import { boxOf, cellAt, layOut, lineOf, paintLine } from "./map_canvas.js";
import { isSample, textFor } from "./samples.js";
import { useStore } from "./store.js";
import { energy, guessesAt, rangesOf, readTrace, rowsOf, summary } from "./trace_data.js";

const TOP = 8;
const NOTHING = { id: "nothing", label: "", of: () => undefined };

export function EnergyMap({ model, most, passed }) {
  const [text, setText] = useState("");
  const [depth, setDepth] = useOfModel(model, () => model.descent.trained_steps);
  const [behind, setBehind] = useState(0);
  const [more, setMore] = useState("");
  const [asking, setAsking] = useState(null); // an AbortController
  const [error, setError] = useState(null);
  const [found, setFound] = useState(null);

  async function ask(prompt, steps) {
    const controller = new AbortController();
    setError(null);
    setAsking(controller);
    const sent = performance.now();
    try {
      const body = { model: model.id, prompt, max_tokens: behind ?? 0, top: TOP, descent: descentField(steps, more) };
      const answer = await json("v1/descent/trace", { body, signal: controller.signal });
      setFound({ trace: readTrace(answer), ms: performance.now() - sent });
    } catch (problem) {
      if (!controller.signal.aborted) setError(problem);
    } finally {
      setAsking(null);
    }
  }

  useEffect(() => {
    if (!passed) return;
    setText(passed.text);
    setDepth(passed.depth);
    void ask(passed.text, passed.depth);
  }, [passed]);
  useEffect(() => {
    asking?.abort();
    setFound(null);
    setText((old) => (isSample(old) ? textFor(model.id) : old));
  }, [model.id]);

  return (
    <div class="split">
      <Controls label="Text" busy={asking !== null} onStart={() => ask(text, depth)} onStop={() => asking.abort()}>
        <Field id="map-text" label="Text">
          <textarea id="map-text" class="mono" rows="8" spellcheck={false} value={text} onInput={(event) => setText(event.target.value)} />
        </Field>
        <Depth id="map-t" model={model} most={most} value={depth} onChange={setDepth} />
        <div class="pair">
          <NumberField id="behind" label="Tokens to generate" value={behind} onChange={setBehind} min={0} step={1} />
        </div>
        <details>
          <summary>More</summary>
          <MoreDescent id="map-more" value={more} onChange={setMore} />
        </details>
        <div class="actions">
          <Go busy={asking !== null} disabled={!text}>Trace</Go>
        </div>
        <Problem error={error} />
      </Controls>
      <div aria-busy={asking !== null}>
        {asking && <p class="hint" role="status">The server traces the text.</p>}
        {found ? <Found key={found.ms} {...found} /> : !asking && <p class="empty">Each token of a text descends its energy in T steps. This map
          shows a quantity of every token at every step: columns are tokens, rows steps, from the embedding (t = 0, top) to
          x(T).</p>}
      </div>
    </div>
  );
}

function Found({ trace, ms }) {
  const [chosen, setChosen] = useState(null);
  const [descent, setDescent] = useState(trace.descents.length > 1 ? "all" : "0");
  const quantity = trace.quantities.find(({ id }) => id === chosen) ?? trace.quantities[0] ?? NOTHING;
  const rows = useMemo(() => rowsOf(trace, descent), [trace, descent]);
  const ranges = useMemo(() => rangesOf(trace, quantity, rows), [trace, quantity, rows]);
  const [pinned, setPinned] = useState({ token: 0, row: rows.length - 1 });
  const [over, setOver] = useState(null);
  useEffect(() => setPinned((old) => ({ token: old.token, row: rows.length - 1 })), [rows]);
  if (!trace.quantities.length) return <p class="empty">There is no token whose steps could be shown.</p>;
  const cell = over ?? pinned;
  const inside = { token: cell.token, row: Math.min(cell.row, rows.length - 1) };
  const about = summary(trace);
  return (
    <>
      <div class="toolbar">
        <Choice id="quantity" label="Quantity" value={quantity.id} onChange={setChosen}
                options={trace.quantities.map(({ id, label }) => [id, label])} />
        {trace.descents.length > 1 && (
          <Choice id="descent" label="Descent" value={descent} onChange={setDescent}
                  options={[["all", "all, each on a scale of its own"], ...trace.descents.map(({ label }, i) => [String(i), label])]} />
        )}
        <Legend quantity={quantity} range={descent === "all" ? null : ranges.get(Number(descent))} />
      </div>
      <p class="hint">
        {integer(trace.tokens.length)} tokens, T = {depthText(trace.depth)}, {integer(trace.usage.descent_steps)} token-steps,{" "}
        {seconds(ms / 1000)}
        {about.loss !== null && <>; {number(about.loss)} nats a token over {integer(about.scored)}</>}
        {about.rises !== null && <>; dE_own &gt; 0 in {rough(100 * about.rises)}% of steps</>}
      </p>
      <div class="map-and-readout">
        <Map trace={trace} rows={rows} quantity={quantity} ranges={ranges} cell={inside} onPin={setPinned} onOver={setOver} />
        <Readout trace={trace} rows={rows} cell={inside} quantity={quantity} />
      </div>
    </>
  );
}

function Legend({ quantity, range }) {
  const theme = useStore(scheme);
  const place = useRef(null);
  useLayoutEffect(() => {
    const colors = ramp(quantity.diverging ? "diverging" : "sequential", theme);
    const pen = place.current.getContext("2d");
    colors.forEach((fill, x) => {
      pen.fillStyle = fill;
      pen.fillRect(x, 0, 1, 1);
    });
  }, [theme, quantity.diverging]);
  return (
    <div class="legend">
      <span>{range ? number(range[0]) : "low"}</span>
      <canvas ref={place} width="256" height="1" aria-hidden="true" />
      <span>{range ? number(range[1]) : "high"}</span>
    </div>
  );
}

// The drawing, and the ways to a cell of it: pointer, and arrow keys.
function Map({ trace, rows, quantity, ranges, cell, onPin, onOver }) {
  const place = useRef(null);
  const canvases = useRef([]);
  const [width, setWidth] = useState(0);
  const theme = useStore(scheme);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(120, Math.floor(place.current.clientWidth)));
    measure();
    const observer = new ResizeObserver(() => place.current?.clientWidth && measure());
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  const layout = useMemo(() => (width ? layOut(trace.tokens, rows, width) : null), [trace, rows, width]);
  useLayoutEffect(() => {
    layout?.lines.forEach((line, n) => paintLine(canvases.current[n], line, layout, rows, trace.tokens, quantity, ranges));
  }, [layout, quantity, ranges, theme]);

  const at = (event) => {
    const box = place.current.getBoundingClientRect();
    return layout && cellAt(layout, rows, event.clientX - box.left, event.clientY - box.top);
  };
  const move = (token, row) => {
    const next = { token: Math.min(Math.max(token, 0), trace.tokens.length - 1), row: Math.min(Math.max(row, 0), rows.length - 1) };
    onOver(null);
    onPin(next);
    const box = boxOf(layout, next);
    const top = place.current.getBoundingClientRect().top + box.y;
    if (top < 60 || top > innerHeight - 120) scrollBy({ top: top - innerHeight / 2 });
  };
  const keys = (event) => {
    const { token, row } = cell;
    const line = layout.lines[lineOf(layout, token)];
    const to = {
      ArrowLeft: [token - 1, row],
      ArrowRight: [token + 1, row],
      ArrowUp: [token, row - 1],
      ArrowDown: [token, row + 1],
      Home: [event.ctrlKey ? 0 : line.first, row],
      End: [event.ctrlKey ? trace.tokens.length - 1 : line.first + line.x.length - 1, row],
      PageUp: [token - line.x.length, row],
      PageDown: [token + line.x.length, row],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    move(...to);
  };
  const box = layout && boxOf(layout, cell);
  return (
    <div class="map" ref={place} tabIndex={0} role="application" aria-roledescription="map of tokens by steps"
         aria-label="Energy map. Arrow keys go from token to token and from step to step." aria-describedby="readout"
         onKeyDown={keys} onPointerMove={(event) => event.pointerType === "mouse" && onOver(at(event))}
         onPointerLeave={() => onOver(null)} onClick={(event) => {
           const hit = at(event);
           if (hit) onPin(hit);
         }}>
      {layout?.lines.map((line, n) => (
        <canvas key={n} ref={(canvas) => (canvases.current[n] = canvas)} aria-hidden="true" />
      ))}
      {box && <div class="cursor" style={{ left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` }} />}
    </div>
  );
}

function Readout({ trace, rows, cell, quantity }) {
  const token = trace.tokens[cell.token];
  const { descent, t } = rows[cell.row];
  const own = token.trace?.descents[descent];
  const next = trace.tokens[cell.token + 1];
  return (
    <aside class="readout" id="readout" aria-live="polite" aria-label="Numbers of the cell">
      <p class="cell-name">
        <span class="token">{shown(token.text)}</span> token {cell.token}, t = {t}{own && ` of ${own.steps}`}
        {trace.descents.length > 1 && <>, {trace.descents[descent].label}</>}
      </p>
      {own ? (
        <>
          <table class="numbers">
            <tbody>
              {trace.quantities.map((one) => (
                <tr key={one.id} class={one.id === quantity.id ? "chosen" : ""}>
                  <th scope="row">{one.label}</th>
                  <td>{number(one.of(own, t))}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <Guesses token={token} descent={descent} t={t} next={next} />
          {energy(own, 0) !== undefined && <Path own={own} t={t} />}
        </>
      ) : <p class="hint">The last token that was chosen does not descend.</p>}
    </aside>
  );
}

function Guesses({ token, descent, t, next }) {
  const { list, at } = guessesAt(token, descent, t);
  if (!list.length) return null;
  return (
    <>
      <h3>Likeliest next tokens, read at x({at})</h3>
      <ol class="guesses">
        {list.map((guess) => {
          const share = Math.exp(guess.logprob ?? -Infinity);
          const right = next && guess.token === next.token;
          return (
            <li key={guess.token} class={right ? "right" : ""}>
              <span class="token">{shown(guess.text)}</span>
              <span class="bar"><span style={{ width: `${100 * share}%` }} /></span>
              <span class="value">{share.toFixed(3)}</span>
              {right && <span class="sr">is what follows</span>}
            </li>
          );
        })}
      </ol>
    </>
  );
}

// The energy of this token alone over its steps.
function Path({ own, t }) {
  const data = useMemo(() => {
    const steps = Array.from({ length: own.steps + 1 }, (_, k) => k);
    const values = steps.map((k) => energy(own, k) ?? null);
    return [steps, values, steps.map((k) => (k === t ? values[k] : null))];
  }, [own, t]);
  const options = () => ({
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false } },
    axes: [axis({ label: "t", labelSize: 16, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100] }), axis({ size: 52, values: (_, ticks) => ticks.map(number) })],
    series: [{}, { stroke: series(0), width: 2, points: { show: own.steps <= 16, size: 5 } },
      { stroke: color("ink"), points: { show: true, size: 9, fill: color("paper") } }],
  });
  return <Chart options={options} shape={`path${own.steps <= 16}`} data={data} height={150} label={`Energy of this token at t = 0 to ${own.steps}`} />;
}
