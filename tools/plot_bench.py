"""The tables and the picture of what tools/bench.py measured.

    python3 tools/plot_bench.py bench.json                                             # tables, in Markdown
    python3 tools/plot_bench.py bench.json --svg docs/bench.svg --readme README.md --page docs/bench.md
                                                                      # and the picture; the tables into README.md and the page

In the README they stand between the lines `<!-- bench -->` and `<!-- /bench -->`, that of products in the page between
`<!-- products -->` and `<!-- /products -->`, whatever was there before.
"""
import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

from marks import put_between
from plot_eval import ticks

WIDTH, HEIGHT, TOP, BOTTOM, LEFT = 860, 340, 64, 50, 62
PANEL = 340  # width of either
OURS, THEIRS = ("#1f5fa8", "#6aa2dc"), ("#b35900", "#e0a465")
NAMES = {"nrgpt-90m": "NRGPT-90M, T 12", "nrgpt-128m": "NRGPT-128M, T 12", "cem-llama160m-tied": "CEM-96M, T 1",
         "gpt2-124m": "GPT-2 124M, llama.cpp", "llama-160m": "Llama 160M, llama.cpp"}


def machine(told):
    """What the figures were measured on."""
    m = next(iter(told["ours"].values()))["machine"]
    peaks = f"{m['int8_multiply_adds_per_second'] / 1e9:.0f} (int8) and {m['f32_multiply_adds_per_second'] / 1e9:.0f} (f32)"
    return f"{m['cpu']}; {m['threads']} threads; {peaks} G multiply-adds/s"


def _split(name):
    model, kind = name.rsplit("-", 1)
    return NAMES.get(model, model), kind.upper()


def _lines(bench, what, batch=1):
    return {line["context"]: line for line in bench["lines"] if line["what"] == what and line["batch"] == batch}


def _rate(line):
    return line["tokens_per_second"]["median"] if line else None


def _number(value):
    return "" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


# ---- Tables -----------------------------------------------------------------------------------------------------------------

def _ours(told):
    for name, bench in told["ours"].items():
        if "-" not in name or name.rsplit("-", 1)[0] not in NAMES:
            continue
        decode, prefill, many = _lines(bench, "decode"), _lines(bench, "prefill"), _lines(bench, "decode", 16)
        rates = [_rate(decode.get(c)) for c in (64, 512, 1024)] + [_rate(many.get(64)), _rate(prefill.get(512))]
        first = decode.get(64)
        share = first["fraction_of_limit"] if first else None
        yield name, rates, first, share


def _theirs(told):
    for name, results in told["theirs"].items():
        decode = {r["depth"]: r["tokens_per_second"]["median"] for r in results if r["generated"]}
        prefill = {r["prompt"]: r["tokens_per_second"]["median"] for r in results if r["prompt"]}
        yield name, [decode.get(64), decode.get(512), decode.get(1000), None, prefill.get(512)]


def tables(told):
    out = [f"Machine: {machine(told)}.", "",
           "| tokens/s | type | context 64 | 512 | 1024 | 16 texts | prompt of 512 | G multiply-adds/s | weights, GB/s | of the limit |",
           "|---|---|---|---|---|---|---|---|---|---|"]
    for name, rates, line, share in _ours(told):
        model, kind = _split(name)
        more = ["", "", ""]
        if line:
            weights = line["work"]["bytes"]["weights"] / line["seconds"]["median"]
            more = [f"{line['multiply_adds_per_second'] / 1e9:.0f}", f"{weights / 1e9:.1f}", f"{share:.2f}"]
        out.append(f"| {model} | {kind} | " + " | ".join([_number(r) for r in rates] + more) + " |")
    for name, rates in _theirs(told):
        model, kind = _split(name)
        out.append(f"| {model} | {kind} | " + " | ".join([_number(r) for r in rates] + [""] * 3) + " |")
    if told["plain"]:
        out.append(f"| NRGPT-90M, T 12, plain PyTorch, no cache | F32 | | {1 / told['plain']['seconds']['median']:.2f} | | | | | | |")
    out += ["", "| aimed at | wanted | measured | |", "|---|---|---|---|"]
    for t in told["targets"]:
        sign = "at least" if t["at_least"] else "at most"
        out.append(f"| {t['target']} | {sign} {t['wanted']:g} | {t['measured']:.3g} | {'met' if t['met'] else 'not met'} |")
    return "\n".join(out) + "\n"


def products_table(told):
    """Products by themselves: a row for each type and working set, both ways in each column."""
    counts = sorted({p["vectors"] for p in told["products"]})
    out = ["| | from | reading, GB/s | 1 vector, of reading | " + " | ".join(f"{n} vectors, of the peak" for n in counts[1:]) + " |",
           "|---|---|---|" + "---|" * len(counts)]
    rows = {}
    for p in told["products"]:
        rows.setdefault((p["type"], p["scales"], p["from"]), {})[p["vectors"]] = p
    for (kind, scales, where), by_count in rows.items():
        one = by_count[counts[0]]
        cells = [f"{by_count[n]['forth'][of]:.2f}, {by_count[n]['back'][of]:.2f}"
                 for n in counts for of in ("of_reading" if n == counts[0] else "of_peak",)]
        out.append(f"| {kind}{f' {scales}' if scales else ''} | {where} | {one['bytes'] / one['read_seconds'] / 1e9:.0f} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


# ---- Picture ----------------------------------------------------------------------------------------------------------------

class Panel:
    """A frame with a scale of tokens/s upwards from 0, its left edge at `left`."""

    def __init__(self, left, most, title):
        self.left, self.marks, self.title = left, ticks(0, most), title

    def y(self, value):
        return HEIGHT - BOTTOM - value / self.marks[-1] * (HEIGHT - TOP - BOTTOM)

    def frame(self):
        out = [f'<text x="{self.left}" y="{TOP - 16}" font-weight="bold">{escape(self.title)}</text>']
        for mark in self.marks:
            out.append(f'<path d="M{self.left} {self.y(mark):.1f}h{PANEL}" stroke="#ddd"/><text x="{self.left - 6}" '
                       f'y="{self.y(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>')
        return out


def by_depth(told):
    """Tokens/s against T, beside what the peer does."""
    points = sorted((int(t), rate) for t, rate in told["depths"].items())
    peer = next((r["tokens_per_second"]["median"] for r in told["theirs"].get("gpt2-124m-q8_0", ()) if r["depth"] == 64), None)
    panel = Panel(LEFT, max([rate for _, rate in points] + [peer or 0]), "NRGPT-90M Q8_0, context 64: tokens/s by T")
    widest = math.log2(max(points[-1][0], 2))

    def x(steps):
        return LEFT + 12 + math.log2(steps) / widest * (PANEL - 24)

    out = panel.frame()
    if peer:
        out.append(f'<path d="M{LEFT} {panel.y(peer):.1f}h{PANEL}" stroke="{THEIRS[0]}" stroke-dasharray="4 4"/><text '
                   f'x="{LEFT + 6}" y="{panel.y(peer) - 5:.1f}" fill="{THEIRS[0]}">'
                   f'{escape(NAMES["gpt2-124m"])}</text>')
    line = " ".join(f"{x(t):.1f},{panel.y(rate):.1f}" for t, rate in points)
    out.append(f'<polyline points="{line}" fill="none" stroke="{OURS[0]}" stroke-width="2"/>')
    for t, rate in points:
        out.append(f'<circle cx="{x(t):.1f}" cy="{panel.y(rate):.1f}" r="3.5" fill="{OURS[0]}"><title>T = {t}: {rate:.1f}</title>'
                   f'</circle><text x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t}</text>')
    return out


def by_context(told):
    """Tokens/s of ours and of peers as bars, a group for each context."""
    bars = []
    for name, colour in (("nrgpt-90m-q8_0", OURS[0]), ("cem-llama160m-tied-q8_0", OURS[1])):
        decode = _lines(told["ours"].get(name, {"lines": ()}), "decode")
        bars.append((NAMES[name.rsplit("-", 1)[0]], colour, [_rate(decode.get(c)) for c in (64, 512, 1024)]))
    theirs = dict(_theirs(told))
    for name, colour in (("gpt2-124m-q8_0", THEIRS[0]), ("llama-160m-q8_0", THEIRS[1])):
        bars.append((NAMES[name.rsplit("-", 1)[0]], colour, theirs.get(name, [None] * 3)[:3]))
    left = WIDTH - PANEL - 20
    panel = Panel(left, max(v for _, _, values in bars for v in values if v), "Q8_0, one text: tokens/s by context")
    out, group, bar = panel.frame(), PANEL / 3, 20
    for i, (label, colour, values) in enumerate(bars):
        out.append(f'<rect x="{left + PANEL - 166}" y="{TOP + 14 * i - 6}" width="10" height="10" fill="{colour}"/><text '
                   f'x="{left + PANEL - 152}" y="{TOP + 14 * i + 3}">{escape(label)}</text>')
        for c, value in enumerate(values):
            if value:
                x = left + group * c + (group - 4 * bar) / 2 + bar * i
                out.append(f'<rect x="{x:.1f}" y="{panel.y(value):.1f}" width="{bar - 2}" height="'
                           f'{HEIGHT - BOTTOM - panel.y(value):.1f}" fill="{colour}"><title>{escape(label)}: {value:.1f}</title></rect>')
    for c, context in enumerate((64, 512, 1024)):
        out.append(f'<text x="{left + group * (c + 0.5):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{context}</text>')
    return out


def picture(told):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">Tokens/s of one text</text>',
           f'<text x="{LEFT}" y="{HEIGHT - 8}" font-size="9.5" fill="#555">{escape(machine(told))}</text>']
    return "\n".join([*out, *by_depth(told), *by_context(told), "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=pathlib.Path, help="what tools/bench.py printed")
    parser.add_argument("--svg", type=pathlib.Path, help="write the picture there")
    parser.add_argument("--readme", type=pathlib.Path, help="put the tables between its marks instead of printing them")
    parser.add_argument("--page", type=pathlib.Path, help="put the table of products between its marks")
    args = parser.parse_args()
    try:
        told = json.loads(args.json.read_text())
        text, drawn = tables(told), picture(told)
        if args.svg:
            args.svg.write_text(drawn)
        if args.readme:
            put_between(args.readme, "bench", text)
        else:
            sys.stdout.write(text)
        if args.page:
            put_between(args.page, "products", products_table(told))
    except OSError as error:
        sys.exit(f"plot_bench.py: {error.filename}: {error.strerror}")
    except (ValueError, KeyError, TypeError, StopIteration, AttributeError) as error:
        sys.exit(f"plot_bench.py: {args.json} is not what tools/bench.py prints, or a file is not as it should be: {error!r}")


if __name__ == "__main__":
    main()
