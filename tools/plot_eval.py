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


def draw(points, quantity, title, trained):
    """points: (T as a number, label, value); T on a logarithmic axis."""
    xs = [math.log2(x) for x, _, _ in points]
    ys = [y for _, _, y in points]
    marks = ticks(min(ys), max(ys) if max(ys) > min(ys) else min(ys) + 1)
    span_x = (max(xs) - min(xs)) or 1
    at_x = lambda x: LEFT + (math.log2(x) - min(xs)) / span_x * (WIDTH - LEFT - RIGHT - 20) + 10
    at_y = lambda y: HEIGHT - BOTTOM - (y - marks[0]) / (marks[-1] - marks[0]) * (HEIGHT - TOP - BOTTOM)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for y in marks:
        out.append(f'<path d="M{LEFT} {at_y(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    if trained:
        out.append(f'<path d="M{at_x(trained):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#b35900" stroke-dasharray="4 4"/>'
                   f'<text x="{at_x(trained) + 5:.1f}" y="{TOP + 10}" fill="#b35900">trained T</text>')
    line = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, _, y in points)
    out.append(f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>')
    for x, label, y in points:
        out.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.5" fill="#1f5fa8"><title>T = {label}: {y:.4f}</title></circle>'
                   f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">recursion depth T (steps)</text>')
    out.append(f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{escape(quantity)}</text>')
    return "\n".join(out + ["</svg>", ""])


def read(text):
    results = json.loads(text)["results"]
    if not results:
        raise ValueError("no results")
    key, quantity = ("loss", "loss (nats per token)") if "loss" in results[0] else ("exact_match", "exact match")
    points = []
    for r in results:
        label = str(r["steps"])
        numbers = [int(n) for n in label.split("x")]
        points.append((sum(numbers) / len(numbers), label, r[key]))
    return sorted(points), quantity


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
