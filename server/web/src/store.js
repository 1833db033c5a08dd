// A value that components watch.
import { useEffect, useState } from "preact/hooks";

export function store(value) {
  const watchers = new Set();
  return {
    get value() {
      return value;
    },
    set(next) {
      if (next === value) return;
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    // Calls `watcher` with each new value until what this returns is called.
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useStore(watched) {
  const [, draw] = useState(0);
  useEffect(() => {
    const redraw = () => draw((n) => n + 1);
    redraw(); // it may have changed between the first drawing and here
    return watched.watch(redraw);
  }, [watched]);
  return watched.value;
}
