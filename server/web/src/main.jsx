// The page: its parts, which of them is shown (the address says, behind #), and the model all of them ask.
import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./views.css";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { connect, connection, key, models, props, setKey } from "./api.js";
import { EnergyMap } from "./energy_map.jsx";
import { modelLabel } from "./fields.jsx";
import { Playground } from "./playground.jsx";
import { Scaling } from "./scaling.jsx";
import { ServerState } from "./server_state.jsx";
import { useStore } from "./store.js";

const VIEWS = [
  ["playground", "Playground", Playground],
  ["map", "Energy map", EnergyMap],
  ["scaling", "Scaling", Scaling],
  ["server", "Server", ServerState],
];

function useView() {
  const read = () => VIEWS.find(([name]) => location.hash === `#${name}`)?.[0] ?? VIEWS[0][0];
  const [view, setView] = useState(read);
  useEffect(() => {
    const follow = () => setView(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return view;
}

const SAID = {
  connecting: "connecting",
  ready: "ready",
  loading: "loading",
  key: "key wanted",
  refused: "refused",
  lost: "not reachable",
};

function KeyForm({ onDone }) {
  const [text, setText] = useState(key.value);
  const printable = /^[\x21-\x7e]*$/.test(text.trim());
  const submit = (event) => {
    event.preventDefault();
    if (!printable) return;
    setKey(text.trim());
    onDone();
  };
  return (
    <form class="strip" onSubmit={submit}>
      <label for="key">API key</label>
      <input id="key" type="password" autocomplete="off" spellcheck={false} value={text}
             onInput={(event) => setText(event.target.value)} aria-invalid={!printable} aria-describedby="key-hint" />
      <button type="submit" disabled={!printable}>{text.trim() || !key.value ? "Use key" : "Forget key"}</button>
      <span class="hint" id="key-hint">{printable ? "Kept in this tab only." : "A key is printable ASCII without spaces."}</span>
    </form>
  );
}

function Notice({ state, onKey }) {
  const said = {
    key: key.value ? "The server does not know this key." : "This server wants an API key.",
    loading: "The server is loading its models, or about to end. This page goes on by itself.",
    refused: "The server does not say what it serves.",
    lost: "The server cannot be reached. Trying again every 2 seconds.",
  }[state];
  return (
    <div role="status" class={said ? "notice" : "quiet"}>
      {said}
      {state === "key" && <button type="button" onClick={onKey}>Enter key</button>}
    </div>
  );
}

function App() {
  const view = useView();
  const state = useStore(connection);
  const served = useStore(models);
  const facts = useStore(props);
  const [id, setId] = useState(null);
  const [asksKey, setAsksKey] = useState(false);
  const [passed, setPassed] = useState(null); // a text for the energy map
  useEffect(() => void connect(), []);
  useEffect(() => {
    if (state === "key") setAsksKey(true);
  }, [state]);
  const model = served.find((one) => one.id === id) ?? served[0];
  const map = (text, depth) => {
    setPassed({ text, depth });
    location.hash = "#map";
  };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main").focus();
      }}>Skip to content</a>
      <header>
        <span class="brand">descent</span>
        <nav aria-label="Views">
          {VIEWS.map(([name, label]) => (
            <a key={name} href={`#${name}`} aria-current={name === view ? "page" : undefined}>{label}</a>
          ))}
        </nav>
        <div class="head-right">
          <span class={`state ${state}`}>{SAID[state]}</span>
          <button type="button" class="plain" aria-expanded={asksKey} onClick={() => setAsksKey(!asksKey)}>Key</button>
        </div>
      </header>
      {asksKey && <KeyForm onDone={() => setAsksKey(false)} />}
      <Notice state={state} onKey={() => {
        setAsksKey(true);
        requestAnimationFrame(() => document.getElementById("key")?.focus());
      }} />
      <main id="main" tabIndex={-1}>
        {model && view !== "server" && (
          <div class="model">
            <label for="model">Model</label>
            <select id="model" value={model.id} onChange={(event) => setId(event.target.value)}>
              {served.map((one) => <option key={one.id} value={one.id}>{modelLabel(one)}</option>)}
            </select>
            <span class="hint">{model.descent.variant}; context {model.descent.context}, {model.descent.quantization}</span>
          </div>
        )}
        {model && facts && VIEWS.map(([name, label, View]) => (
          <section key={name} id={`view-${name}`} aria-label={label} hidden={name !== view}>
            <View model={model} most={facts.limits.max_steps} defaults={facts.default_generation_settings.params}
                  active={name === view} passed={passed} onMap={map} />
          </section>
        ))}
      </main>
    </>
  );
}

render(<App />, document.getElementById("app"));
