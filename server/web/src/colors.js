// Colours of what is drawn, from the style sheet, so that light and dark are decided in one place.
import { store } from "./store.js";

const query = matchMedia("(prefers-color-scheme: dark)");
export const scheme = store(query.matches ? "dark" : "light");
query.addEventListener("change", () => scheme.set(query.matches ? "dark" : "light"));

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const SERIES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"];
export const series = (index) => color(SERIES[index % SERIES.length]);

// From low to high; diverging ones have zero in the middle.
const RAMPS = {
  light: {
    sequential: ["#f4efe3", "#c4ddd0", "#7ab8b6", "#37879c", "#23547d", "#171f4b"],
    diverging: ["#1b4a93", "#86aede", "#f2efea", "#eda985", "#b23a12"],
  },
  dark: {
    sequential: ["#1c2328", "#1f4a64", "#2a7c90", "#63b09a", "#c3d588", "#fdf6c8"],
    diverging: ["#86b8fa", "#345a92", "#252b30", "#8d4a2a", "#ff9d69"],
  },
};

const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// 256 colours of a ramp as CSS texts.
export function ramp(kind, of = scheme.value) {
  const stops = RAMPS[of][kind].map(parse);
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const below = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[below].map((from, c) => Math.round(from + (stops[below + 1][c] - from) * (at - below)));
    return `rgb(${mixed.join()})`;
  });
}
