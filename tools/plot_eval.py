"""Draws what `descent eval --json` printed: loss (or exact match) against T, as an SVG that reads well alone.

    descent eval MODEL --file F --steps 1,2,4,8 --json | python3 tools/plot_eval.py --title "..." --trained 6 > loss.svg
"""
import argparse
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 46, 52


def ticks(low, high, about=5):
    """Round numbers that cover low..high."""
    span = (high - low) / about
    step = 10 ** math.floor(math.log10(span))
    step *= next(m for m in (1, 2, 5, 10) if m * step >= span)
    first = math.floor(low / step)
    return [k * step for k in range(first, math.ceil(high / step) + 1)]


class Chart:
    """The frame of one drawing: T on a logarithmic axis, a quantity upwards. `xs` and `ys` are what it must hold."""

    def __init__(self, xs, ys):
        self.low_x = math.log2(min(xs))
        self.span_x = (math.log2(max(xs)) - self.low_x) or 1
        self.marks = ticks(min(ys), max(ys) if max(ys) > min(ys) else min(ys) + 1)

    def x(self, value):
        return LEFT + (math.log2(value) - self.low_x) / self.span_x * (WIDTH - LEFT - RIGHT - 20) + 10

    def y(self, value):
        return HEIGHT - BOTTOM - (value - self.marks[0]) / (self.marks[-1] - self.marks[0]) * (HEIGHT - TOP - BOTTOM)

    def frame(self, quantity, title, axis):
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(axis)}</text>',
            f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
            f'{escape(quantity)}</text>',
        ]
        for y in self.marks:
            out.append(f'<path d="M{LEFT} {self.y(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                       f'<text x="{LEFT - 8}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
        return out

    def trained(self, steps):
        return (f'<path d="M{self.x(steps):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#b35900" stroke-dasharray="4 4"/>'
                f'<text x="{self.x(steps) + 5:.1f}" y="{TOP + 10}" fill="#b35900">trained T</text>')

    def reference(self, name, value):
        """A level across the drawing."""
        return (f'<path d="M{LEFT} {self.y(value):.1f}H{WIDTH - RIGHT}" stroke="#666" stroke-dasharray="2 3"/>'
                f'<text x="{WIDTH - RIGHT - 4}" y="{self.y(value) - 5:.1f}" text-anchor="end" fill="#444">{escape(name)}</text>')

    def point(self, x, label, y, low=None, high=None):
        interval = "" if low is None else f", 95% {low:.4f} to {high:.4f}"
        bar = "" if low is None else (f'<path d="M{self.x(x):.1f} {self.y(low):.1f}V{self.y(high):.1f}" stroke="#1f5fa8" '
                                      'stroke-width="1.5"/>')
        return (f'{bar}<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" fill="#1f5fa8">'
                f'<title>T = {escape(label)}: {y:.4f}{interval}</title></circle>'
                f'<text x="{self.x(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(label)}</text>')


def draw(points, quantity, title, trained=None, axis="recursion depth T (steps)", joined=True, references=()):
    """points: (T as a number, label, value[, low, high]), joined by a line where they are readings of one model; references:
    (name, value)."""
    values = [v for _, *rest in points for v in rest[1:]] + [v for _, v in references]
    chart = Chart([p[0] for p in points] + ([trained] if trained else []), values)
    out = chart.frame(quantity, title, axis)
    if trained:
        out.append(chart.trained(trained))
    out += [chart.reference(name, value) for name, value in references]
    if joined:
        line = " ".join(f"{chart.x(p[0]):.1f},{chart.y(p[2]):.1f}" for p in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>')
    out += [chart.point(*p) for p in points]
    return "\n".join(out + ["</svg>", ""])


def steps_of(label):
    """A place on the axis for a depth as the program writes it, 12 or 3x2: the mean of its numbers."""
    numbers = [int(n) for n in str(label).split("x")]
    return sum(numbers) / len(numbers)


def read(text):
    results = json.loads(text)["results"]
    if not results:
        raise ValueError("no results")
    key, quantity = ("loss", "loss (nats per token)") if "loss" in results[0] else ("exact_match", "exact match")
    return sorted((steps_of(r["steps"]), str(r["steps"]), r[key]) for r in results), quantity


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--title", default="what T buys")
    parser.add_argument("--trained", type=float, help="mark the trained T")
    args = parser.parse_args()
    try:
        points, quantity = read(sys.stdin.read())
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"plot_eval.py: standard input is not what `descent eval --json` prints: {error}")
    sys.stdout.write(draw(points, quantity, args.title, args.trained))


if __name__ == "__main__":
    main()
