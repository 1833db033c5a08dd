// One text being generated: what is known of it so far, in a store, and the way to start and stop it. A pane of the playground.
import { stream } from "./api.js";
import { store } from "./store.js";

const DRAW_MS = 32; // tokens may come faster than anybody sees
const IDLE = { phase: "idle", text: "", tokens: 0, firstMs: null, ms: null, usage: null, timings: null, descent: null, error: null, finish: null };

export function createRun() {
  const state = store(IDLE);
  let controller = null;
  let draft = IDLE;
  let timer = 0;

  const show = () => {
    clearTimeout(timer);
    timer = 0;
    state.set(draft);
  };
  const change = (fields) => {
    draft = { ...draft, ...fields };
    timer ||= setTimeout(show, DRAW_MS);
  };

  function take(event, sent) {
    const choice = event.choices[0];
    const fields = {};
    const piece = choice?.text ?? choice?.delta?.content ?? "";
    if (piece || choice?.finish_reason) fields.firstMs = draft.firstMs ?? performance.now() - sent;
    if (piece) Object.assign(fields, { text: draft.text + piece, tokens: draft.tokens + 1, phase: "streaming" });
    if (choice?.finish_reason) fields.finish = choice.finish_reason;
    for (const name of ["usage", "timings", "descent"]) if (event[name]) fields[name] = event[name];
    change({ ...fields, ms: performance.now() - sent });
  }

  return {
    state,
    stop: () => controller?.abort(),
    // Stops, and forgets what came.
    clear() {
      controller?.abort();
      controller = null;
      draft = IDLE;
      show();
    },
    // Over when the text is, whatever ended it; the store says what did.
    async start(path, body) {
      controller?.abort();
      const own = (controller = new AbortController());
      const sent = performance.now();
      draft = { ...IDLE, phase: "waiting" };
      show();
      let end = { phase: "done" };
      try {
        for await (const event of stream(path, { ...body, stream_options: { include_usage: true } }, own.signal)) {
          if (controller !== own) return;
          take(event, sent);
        }
      } catch (error) {
        end = own.signal.aborted ? { phase: "stopped" } : { phase: "failed", error };
      }
      if (controller !== own) return;
      controller = null;
      draft = { ...draft, ...end, ms: performance.now() - sent };
      show();
    },
  };
}
