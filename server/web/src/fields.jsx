// Controls that every view has: fields with their labels, T, messages.
import { useState } from "preact/hooks";
import { depth as depthText } from "./format.js";

export function Field({ id, label, hint, children }) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      {hint && <p class="hint" id={`${id}-hint`}>{hint}</p>}
    </div>
  );
}

// What stands in a field for a number: what its user has typed, such as the 0.0 on the way to 0.05, as long as `value` is what it
// was when that was typed; else `value`. As a string: Preact writes a number into the field at each drawing, over what is typed.
function useTyped(value) {
  const [typed, setTyped] = useState(null);
  const text = typed && typed.value === value ? typed.text : String(value ?? "");
  return [text, (next, of) => setTyped({ text: next, value: of })];
}

// A number, or null where the field is empty.
export function NumberField({ id, label, hint, value, onChange, ...limits }) {
  const [text, type] = useTyped(value);
  const read = ({ target }) => {
    const number = target.value === "" ? null : Number(target.value);
    type(target.value, number);
    onChange(number);
  };
  return (
    <Field id={id} label={label} hint={hint}>
      <input id={id} type="number" inputmode="decimal" value={text} onInput={read}
             aria-describedby={hint ? `${id}-hint` : undefined} {...limits} />
    </Field>
  );
}

export function Check({ id, label, value, onChange, ...rest }) {
  return (
    <label class="check" for={id}>
      <input id={id} type="checkbox" checked={value} onChange={(event) => onChange(event.target.checked)} {...rest} />
      {label}
    </label>
  );
}

export function Choice({ id, label, value, onChange, options, ...rest }) {
  return (
    <Field id={id} label={label}>
      <select id={id} value={value} onChange={(event) => onChange(event.target.value)} {...rest}>
        {options.map(([option, text]) => <option key={option} value={option}>{text}</option>)}
      </select>
    </Field>
  );
}

// A state that begins anew with each model: T means another thing there.
export function useOfModel(model, first) {
  const [kept, keep] = useState(null);
  const value = kept?.id === model.id ? kept.value : first();
  return [value, (next) => keep({ id: model.id, value: next })];
}

const KINDS = { attention: "attention", mlp: "MLP" };

// T of a request: a number, or one of each kind of sub-layer. The slider goes to a few times the trained T, the number to
// --max-steps.
export function Depth({ id, model, most, value, onChange }) {
  const trained = model.descent.trained_steps;
  if (trained === null) return <p class="hint">This model has no T: its layers are applied once.</p>;
  if (typeof trained === "number")
    return <DepthOf id={id} label="T" trained={trained} most={most} value={value} onChange={onChange} />;
  return (
    <>
      {Object.keys(trained).map((kind) => (
        <DepthOf key={kind} id={`${id}-${kind}`} label={`T, ${KINDS[kind] ?? kind}`} trained={trained[kind]} most={most}
                 value={value[kind]} onChange={(steps) => onChange({ ...value, [kind]: steps })} />
      ))}
    </>
  );
}

function DepthOf({ id, label, trained, most, value, onChange }) {
  const [text, type] = useTyped(value);
  const end = Math.min(most, Math.max(12, 4 * trained));
  const set = ({ target }) => {
    const read = Math.round(Number(target.value));
    const steps = read >= 1 ? Math.min(read, most) : value;
    type(String(steps), steps);
    onChange(steps);
  };
  // A T that is one holds at once: whoever sends by a key has not left the field.
  const setTyped = ({ target }) => {
    const read = Number(target.value);
    const steps = Number.isInteger(read) && read >= 1 && read <= most ? read : value;
    type(target.value, steps);
    onChange(steps);
  };
  return (
    <div class="field depth">
      <label for={id}>{label}</label>
      <div class="depth-row">
        <input id={id} type="range" min="1" max={end} step="1" value={Math.min(value, end)} onInput={set}
               aria-valuetext={`${value} steps, trained ${trained}`} />
        <input type="number" min="1" max={most} value={text} onInput={setTyped} onChange={set}
               aria-label={`${label}, as a number`} />
      </div>
      <button type="button" class="link" disabled={value === trained} onClick={() => onChange(trained)}>
        trained at {trained}
      </button>
    </div>
  );
}

// The `descent` of a request: T where the model has one, and what the user wrote beside it. Throws where that is no object.
export function descentField(depth, more) {
  const steps = depth === null ? {} : { steps: depth };
  if (!more.trim()) return steps;
  let fields;
  try {
    fields = JSON.parse(more);
  } catch (error) {
    throw new Error(`Other fields of descent: ${error.message}`);
  }
  if (!fields || typeof fields !== "object" || Array.isArray(fields)) throw new Error("Other fields of descent: not an object");
  return { ...steps, ...fields };
}

export function MoreDescent({ id, value, onChange }) {
  return (
    <Field id={id} label={<>Other fields of <code>descent</code>, as JSON</>}>
      <textarea id={id} class="mono" rows="2" spellcheck={false} value={value} onInput={(event) => onChange(event.target.value)}
                placeholder='{"exit": {"criterion": "state", "threshold": 0.1}}' />
    </Field>
  );
}

// The controls of a view: submitting them begins or, while it is busy, stops what it does. The steps of a number's arrows are no
// rule for what is typed: what may be, the server says; only what is no number is told here.
export function Controls({ label, busy, onStart, onStop, children }) {
  const submit = (event) => {
    event.preventDefault();
    if (busy) return onStop();
    const wrong = [...event.currentTarget.elements].find(({ validity }) => validity?.badInput);
    if (!wrong) return onStart();
    const folded = wrong.closest("details");
    if (folded) folded.open = true;
    wrong.reportValidity();
  };
  return <form class="controls" aria-label={label} noValidate onSubmit={submit}>{children}</form>;
}

// Submits its form, which begins or, while it is busy, stops what it does: one button, so that it keeps the focus.
export function Go({ busy, disabled, children }) {
  return <button type="submit" class="main" disabled={!busy && disabled}>{busy ? "Stop" : children}</button>;
}

// What went wrong, for eyes and for screen readers. The region is there before it says anything.
export function Problem({ error }) {
  return (
    <div role="alert" class={error ? "problem" : "quiet"}>
      {error && (
        <>
          <strong>{TITLES[error.kind] ?? "Not possible"}</strong> {error.message}
          {error.code && <> <code>{error.code}</code></>}
        </>
      )}
    </div>
  );
}

const TITLES = { refused: "Refused.", failed: "The server failed.", cut: "Cut off.", lost: "No connection." };

export const modelLabel = (model) => `${model.id} · ${model.descent.family}, T ${depthText(model.descent.trained_steps)}`;
