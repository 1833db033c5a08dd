// A uPlot chart that keeps the width of its place and is made again when its shape or the scheme changes.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { color, scheme, SERIES } from "./colors.js";
import { useStore } from "./store.js";

// `options(colors)` gives uPlot's options but for the width; `shape` names what they depend on.
export function Chart({ options, shape, data, label, height = 220 }) {
  const place = useRef(null);
  const plot = useRef(null);
  const theme = useStore(scheme);
  useEffect(() => {
    const width = () => Math.max(200, Math.floor(place.current.clientWidth));
    plot.current = new uPlot({ ...options(), width: width(), height }, data, place.current);
    const observer = new ResizeObserver(() => {
      if (place.current?.clientWidth) plot.current?.setSize({ width: width(), height });
    });
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape, theme, height]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div ref={place} class="chart" role="img" aria-label={label} />;
}

// What the lines of a chart are, under it, in the order of their colours.
export function Lines({ names }) {
  return (
    <ul class="lines">
      {names.map((name, i) => <li key={name}><span class="swatch" style={{ background: `var(--${SERIES[i % SERIES.length]})` }} />{name}</li>)}
    </ul>
  );
}

export const FONT = "12px system-ui, sans-serif";
export const axis = (extra) => ({
  stroke: color("ink-2"),
  grid: { stroke: color("line"), width: 1 },
  ticks: { stroke: color("line"), width: 1, size: 4 },
  font: FONT,
  labelFont: FONT,
  ...extra,
});
