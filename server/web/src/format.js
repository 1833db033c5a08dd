// Numbers and names as people read them.
const significant = (digits) => new Intl.NumberFormat("en", { maximumSignificantDigits: digits });
const three = significant(3);
const four = significant(4);
const always = new Intl.NumberFormat("en", { minimumSignificantDigits: 4, maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const absent = (value) => value === null || value === undefined || Number.isNaN(value);

export const integer = (value) => (absent(value) ? "–" : whole.format(value));
export const rough = (value) => (absent(value) ? "–" : scaled(value, three));
export const number = (value) => (absent(value) ? "–" : scaled(value, four));
export const aligned = (value) => (absent(value) ? "–" : scaled(value, Number.isInteger(value) ? whole : always)); // in a column

// What is far from 1 is a power of ten.
function scaled(value, format) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2).replace("e+", "e");
  return (size >= 1e5 ? whole : format).format(value).replace("-", "−");
}

export function bytes(value) {
  if (absent(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${three.format(value)} ${units[unit]}`;
}

export function seconds(value) {
  if (absent(value)) return "–";
  if (value < 1) return `${three.format(value * 1000)} ms`;
  if (value < 120) return `${three.format(value)} s`;
  return value < 7200 ? `${whole.format(value / 60)} min` : `${three.format(value / 3600)} h`;
}

export function count(value) {
  if (absent(value)) return "–";
  const at = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([size]) => value >= size);
  return at ? `${three.format(value / (at[0] === 1e4 ? 1e3 : at[0]))} ${at[1]}` : whole.format(value);
}

// T: 4, or 3 × 2 of attention and MLP.
export function depth(steps) {
  if (absent(steps)) return "none";
  return typeof steps === "object" ? Object.values(steps).join(" × ") : String(steps);
}

// A token's text where each is drawn by itself.
export const shown = (text) =>
  text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length)) || "∅";

export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
