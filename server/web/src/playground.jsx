// Generating: one prompt, two panes that differ in T and in nothing else, the same seed among them.
import { useEffect, useRef, useState } from "preact/hooks";
import { Check, Choice, Controls, Depth, descentField, Field, Go, Problem, useOfModel } from "./fields.jsx";
import { integer, number, seconds } from "./format.js";
import { createRun } from "./run.js";
import { isSample, promptFor } from "./samples.js";
import { Settings, SETTINGS, settingFields } from "./settings.jsx";
import { useStore } from "./store.js";

const scaled = (steps, by) =>
  steps === null || typeof steps === "number"
    ? steps && Math.max(1, Math.ceil(steps * by))
    : Object.fromEntries(Object.entries(steps).map(([kind, n]) => [kind, Math.max(1, Math.ceil(n * by))]));

function commonLength(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return /[\ud800-\udbff]/.test(a[n - 1] ?? "") ? n - 1 : n; // not within a character
}

function Stats({ run }) {
  const live = run.phase === "streaming";
  const rate = live ? (run.tokens - 1) / ((run.ms - run.firstMs) / 1000) : run.timings?.predicted_per_second;
  const told = [
    ["first token", run.firstMs === null ? "–" : seconds(run.firstMs / 1000)],
    ["tokens/s", Number.isFinite(rate) && rate > 0 ? number(rate) : "–"],
    ["tokens", integer(run.usage?.completion_tokens ?? run.tokens)],
    ["token-steps", integer(run.usage?.descent_steps)],
    ["end", run.finish ?? (run.phase === "stopped" ? "stopped" : "–")],
  ];
  return (
    <dl class="stats">
      {told.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

// A text, and where it begins to be another one than its neighbour's.
function Text({ text, common }) {
  if (common === null || common >= text.length) return text;
  const [first] = text.slice(common);
  return <>{text.slice(0, common)}<mark class={first === "\n" ? "line" : ""}>{first}</mark>{text.slice(common + first.length)}</>;
}

function Pane({ index, model, most, depth, onDepth, run, prompt, turns, common, onMap }) {
  const state = useStore(run.state);
  const busy = state.phase === "waiting" || state.phase === "streaming";
  return (
    <article class="pane" aria-label={`Pane ${index + 1}`} aria-busy={busy}>
      <Depth id={`t${index}`} model={model} most={most} value={depth} onChange={onDepth} />
      <div class="text" tabIndex={0} role="region" aria-label={`Text of pane ${index + 1}`}>
        {turns ? <Turns turns={turns} index={index} /> : <span class="given">{prompt}</span>}
        <span class={`made ${busy ? "busy" : ""}`}><Text text={state.text} common={common} /></span>
      </div>
      <Stats run={state} />
      <Problem error={state.error} />
      {!turns && state.text && !busy && (
        <button type="button" class="link" onClick={() => onMap(prompt + state.text, depth)}>Energy map of this text</button>
      )}
    </article>
  );
}

function Turns({ turns, index }) {
  return turns.map(({ user, answers }, n) => (
    <div key={n}>
      <p class="said"><span class="who">user</span> {user}</p>
      {answers && <p class="said">{answers[index]}</p>}
    </div>
  ));
}

// The messages of a pane: each has its own answers to the same questions.
function messagesOf(system, turns, index) {
  const messages = system.trim() ? [{ role: "system", content: system }] : [];
  for (const { user, answers } of turns) {
    messages.push({ role: "user", content: user });
    if (answers) messages.push({ role: "assistant", content: answers[index] });
  }
  return messages;
}

export function Playground({ model, most, defaults, onMap }) {
  const trained = model.descent.trained_steps;
  const runs = useRef(null);
  runs.current ??= [createRun(), createRun()];
  const states = runs.current.map((run) => useStore(run.state));
  const [mode, setMode] = useState("completion");
  const [compare, setCompare] = useState(true);
  const [depths, setDepths] = useOfModel(model, () => [scaled(trained, 0.25), trained]);
  const [prompt, setPrompt] = useState("");
  const [asked, setAsked] = useState("");
  const [system, setSystem] = useState("");
  const [turns, setTurns] = useState([]);
  const [settings, setSettings] = useState(SETTINGS);
  const [usedSeed, setUsedSeed] = useState(null);
  const [error, setError] = useState(null);

  useEffect(() => {
    setPrompt((old) => (isSample(old) ? promptFor(model.id) : old));
    setMode("completion");
    setTurns([]);
    for (const run of runs.current) run.clear();
  }, [model.id]);

  const busy = states.some(({ phase }) => phase === "waiting" || phase === "streaming");
  const chat = mode === "chat";
  const panes = compare ? [0, 1] : [1];
  const over = compare && states.every(({ phase, text }) => ["done", "stopped"].includes(phase) && text);
  const common = over ? commonLength(states[0].text, states[1].text) : null;

  // The turns so far, the last with its answers. A question that some pane has no answer to is dropped.
  function settled() {
    const last = turns.at(-1);
    if (!last || last.answers) return turns;
    const answers = runs.current.map((run) => run.state.value.text || null);
    if (panes.some((i) => answers[i] === null)) return turns.slice(0, -1);
    return [...turns.slice(0, -1), { ...last, answers: answers.map((answer, i) => answer ?? answers[1 - i]) }];
  }

  function start() {
    const seed = settings.seed ?? Math.floor(Math.random() * 2 ** 31);
    let bodies;
    try {
      const fields = { model: model.id, ...settingFields(settings, defaults), seed };
      bodies = panes.map((i) => ({ ...fields, descent: descentField(depths[i], settings.more) }));
    } catch (problem) {
      setError(problem);
      return;
    }
    setError(null);
    setUsedSeed(seed);
    if (!compare) runs.current[0].clear();
    if (chat) {
      const now = [...settled(), { user: prompt, answers: null }];
      setTurns(now);
      setPrompt("");
      panes.forEach((i, n) => runs.current[i].start("v1/chat/completions", { ...bodies[n], messages: messagesOf(system, now, i) }));
    } else {
      setAsked(prompt);
      panes.forEach((i, n) => runs.current[i].start("v1/completions", { ...bodies[n], prompt }));
    }
  }
  const stopAll = () => runs.current.forEach((run) => run.stop());
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !busy) {
      event.preventDefault();
      // T stands outside of the form, which checks its own fields.
      if (event.target.matches("input:invalid") && !event.target.form) event.target.reportValidity();
      else event.currentTarget.querySelector("form").requestSubmit();
    } else if (event.key === "Escape" && busy) {
      stopAll();
    }
  };
  const changeMode = (next) => {
    runs.current.forEach((run) => run.clear());
    setTurns([]);
    setMode(next);
    setPrompt(next === "chat" ? "" : promptFor(model.id));
  };

  return (
    <div class="split" onKeyDown={keys}>
      <Controls label="Request" busy={busy} onStart={start} onStop={stopAll}>
        {model.descent.chat_template && (
          <Choice id="mode" label="Form" value={mode} onChange={changeMode}
                  options={[["completion", "completion"], ["chat", `chat (${model.descent.chat_template})`]]} />
        )}
        {chat && (
          <Field id="system" label="System message">
            <textarea id="system" rows="2" value={system} onInput={(event) => setSystem(event.target.value)} />
          </Field>
        )}
        <Field id="prompt" label={chat ? "Message" : "Prompt"}>
          <textarea id="prompt" class="mono" rows={chat ? 3 : 5} spellcheck={false} value={prompt}
                    onInput={(event) => setPrompt(event.target.value)} />
        </Field>
        <div class="actions">
          <Go busy={busy} disabled={!prompt}>{chat ? "Send" : "Generate"}</Go>
          {chat && turns.length > 0 && !busy && (
            <button type="button" onClick={() => {
              setTurns([]);
              runs.current.forEach((run) => run.clear());
            }}>New conversation</button>
          )}
          <Check id="compare" label="Compare two T" value={compare} onChange={setCompare} disabled={busy} />
        </div>
        <Settings value={settings} defaults={defaults} onChange={setSettings} />
        <Problem error={error} />
      </Controls>
      <div>
        <div class={compare ? "panes two" : "panes"}>
          {panes.map((i) => (
            <Pane key={i} index={i} model={model} most={most} depth={depths[i]} run={runs.current[i]} onMap={onMap}
                  onDepth={(depth) => setDepths(depths.map((old, k) => (k === i ? depth : old)))}
                  prompt={asked} turns={chat ? turns : null} common={common} />
          ))}
        </div>
        <p class="hint" role="status">
          {usedSeed !== null && `Seed ${usedSeed}. `}
          {common !== null && (common === states[0].text.length && common === states[1].text.length
            ? "Both texts are the same."
            : `Characters in common at the beginning: ${integer(common)}. The next one is marked.`)}
        </p>
      </div>
    </div>
  );
}
