"""Draws loss against T for several ways that steps may move, from what `descent eval --json` printed for each, as an SVG.

    descent eval MODEL --file F --steps 1,2,4 --json > plain.json
    descent eval MODEL --file F --steps 1,2,4 --momentum 0.3 --json > momentum.json
    python3 tools/plot_motion.py --title "..." --trained 4 plain=plain.json "momentum 0.3=momentum.json" > motion.svg
"""
import argparse
import json
import sys
from xml.sax.saxutils import escape

import plot_eval

COLOURS = ("#1f5fa8", "#b3261e", "#2e7d32", "#7b3fa0", "#8a6d00", "#00707a", "#444444", "#c2185b")


def read(path):
    with open(path, encoding="utf-8") as file:
        results = json.load(file)["results"]
    return sorted((plot_eval.steps_of(r["steps"]), r["loss"]) for r in results if r["loss"] is not None)


def draw(series, title, trained=None, most=None):
    """series: (name, [(T, loss)]); losses above `most` are left out."""
    series = [(name, [(t, loss) for t, loss in points if most is None or loss <= most]) for name, points in series]
    everything = [point for _, points in series for point in points]
    steps = sorted({t for t, _ in everything} | ({trained} if trained else set()))
    chart = plot_eval.Chart(steps, [loss for _, loss in everything])
    out = chart.frame("loss (nats per token)", title, "recursion depth T (steps)")
    if trained:
        out.append(chart.trained(trained))
    out += [f'<text x="{chart.x(t):.1f}" y="{plot_eval.HEIGHT - plot_eval.BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
            for t in steps]
    for i, (name, points) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        line = " ".join(f"{chart.x(t):.1f},{chart.y(loss):.1f}" for t, loss in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{chart.x(t):.1f}" cy="{chart.y(loss):.1f}" r="3" fill="{colour}">'
                f'<title>{escape(name)}, T = {t:g}: {loss:.4f}</title></circle>' for t, loss in points]
        y = plot_eval.TOP + 30 + 16 * i
        x = plot_eval.LEFT + 300
        out.append(f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="2"/><text x="{x + 28}" y="{y}">{escape(name)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--title", default="how a step moves")
    parser.add_argument("--trained", type=float, help="mark the trained T")
    parser.add_argument("--most", type=float, help="leave out losses above this")
    args = parser.parse_args()
    try:
        series = [(name, read(path)) for name, path in (one.rsplit("=", 1) for one in args.series)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"plot_motion.py: {error}")
    sys.stdout.write(draw(series, args.title, args.trained, args.most))


if __name__ == "__main__":
    main()
