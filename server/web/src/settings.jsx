// How a text is drawn from the model: temperature, sampler, seed, where it ends, and other fields of `descent`; as controls, and
// as the fields of a request.
import { Check, Field, MoreDescent, NumberField } from "./fields.jsx";

export const SETTINGS = { temperature: 0.7, maxTokens: 160, seed: null, sampling: {}, stop: "", ignoreEos: false, more: "" };

const SAMPLERS = [
  ["top_p", { min: 0, max: 1, step: 0.05 }],
  ["top_k", { min: 0, step: 1 }],
  ["min_p", { min: 0, max: 1, step: 0.05 }],
  ["typical_p", { min: 0, max: 1, step: 0.05 }],
  ["repetition_penalty", { min: 0, step: 0.05 }],
  ["presence_penalty", { min: -2, max: 2, step: 0.1 }],
  ["frequency_penalty", { min: -2, max: 2, step: 0.1 }],
];

// What is as the server has it anyway is not sent.
export function settingFields({ temperature, maxTokens, sampling, stop, ignoreEos }, defaults) {
  const fields = { temperature, max_tokens: maxTokens };
  for (const [name] of SAMPLERS) if (sampling[name] != null && sampling[name] !== defaults[name]) fields[name] = sampling[name];
  const stops = stop.split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n"));
  if (stops.length) fields.stop = stops;
  if (ignoreEos) fields.ignore_eos = true;
  return fields;
}

export function Settings({ value, defaults, onChange }) {
  const set = (name) => (next) => onChange({ ...value, [name]: next });
  return (
    <>
      <div class="pair">
        <NumberField id="temperature" label="Temperature" value={value.temperature} onChange={set("temperature")} min={0} max={2} step={0.1} />
        <NumberField id="max-tokens" label="Most tokens" value={value.maxTokens} onChange={set("maxTokens")} min={1} step={1} />
        <NumberField id="seed" label="Seed" value={value.seed} onChange={set("seed")} step={1} placeholder="random" />
      </div>
      <details>
        <summary>Sampler</summary>
        <div class="pair">
          {SAMPLERS.map(([name, limits]) => (
            <NumberField key={name} id={name} label={name} placeholder={defaults[name]}
                         value={value.sampling[name] === undefined ? defaults[name] : value.sampling[name]}
                         onChange={(next) => set("sampling")({ ...value.sampling, [name]: next })} {...limits} />
          ))}
        </div>
        <Field id="stop" label="Stop strings, one a line" hint="\n stands for the end of a line.">
          <textarea id="stop" class="mono" rows="2" spellcheck={false} value={value.stop} aria-describedby="stop-hint"
                    onInput={(event) => set("stop")(event.target.value)} />
        </Field>
        <Check id="ignore-eos" label="Go on behind the end of text" value={value.ignoreEos} onChange={set("ignoreEos")} />
        <MoreDescent id="more" value={value.more} onChange={set("more")} />
      </details>
    </>
  );
}
