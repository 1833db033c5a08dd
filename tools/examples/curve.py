"""What does T buy on my text? The curve of loss against T, asked with the stock `openai` client plus three lines.

    python3 tools/examples/curve.py nrgpt-shakespeare text.txt --steps 1 2 4 8 [--url http://127.0.0.1:8080/v1] [--svg curve.svg]

Prints a line for each T: the loss in nats a token, its 95% interval, and how much it is above the loss at the trained T.
"""
import argparse
import math
import os

from openai import OpenAI


def ask(client, model, texts, steps):
    # The three lines: a request of our own, sent by the client as any other.
    body = {"model": model, "texts": texts, "steps": steps}
    answer = client.post("/descent/scaling", cast_to=object, body=body)
    return answer["rows"]


def draw(rows, title):
    """The curve as an SVG: T in powers of two to the right, the loss upwards, its interval around it."""
    left, right, top, bottom, width, height = 70, 20, 40, 45, 560, 340
    sides = [side for row in rows for side in [row["loss"], *row["intervals"]["loss"]] if side is not None]
    low, high = min(sides), max(sides)
    span = (high - low) or 1.0
    most = max(1.0, math.log2(max(row["steps"] for row in rows)))

    def x(row):
        return left + math.log2(row["steps"]) / most * (width - left - right)

    def y(value):
        return height - bottom - (value - low) / span * (height - top - bottom)

    line = " ".join(f"{x(row):.1f},{y(row['loss']):.1f}" for row in rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/><text x="{left}" y="22" font-size="15">{title}</text>',
           f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">T, recursion steps</text>',
           f'<text transform="translate(16 {height / 2}) rotate(-90)" text-anchor="middle">loss, nats a token</text>',
           f'<polyline points="{line}" fill="none" stroke="#1f5fa8" stroke-width="2"/>']
    for row in rows:
        below, above = row["intervals"]["loss"]
        if below is not None:
            out.append(f'<path d="M{x(row):.1f} {y(below):.1f}V{y(above):.1f}" stroke="#1f5fa8"/>')
        out.append(f'<circle cx="{x(row):.1f}" cy="{y(row["loss"]):.1f}" r="3.5" fill="#1f5fa8"/>'
                   f'<text x="{x(row):.1f}" y="{height - bottom + 16}" text-anchor="middle">{row["steps"]}</text>')
    for value in (low, high):
        out.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3f}</text>')
    return "\n".join([*out, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+", metavar="FILE")
    parser.add_argument("--steps", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--svg", metavar="FILE", help="draw the curve")
    args = parser.parse_args()
    texts = []
    for path in args.texts:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    client = OpenAI(base_url=args.url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    rows = ask(client, args.model, texts, args.steps)
    for row in rows:
        low, high = row["intervals"]["loss"]
        interval = "" if low is None else f" ({low:.5f} to {high:.5f})"
        print(f"T {row['steps']:>3}  loss {row['loss']:.5f}{interval}  {row['difference']['loss']['value']:+.5f}")
    if args.svg:
        with open(args.svg, "w", encoding="utf-8") as file:
            file.write(draw(rows, f"{args.model}: loss against T"))


if __name__ == "__main__":
    main()
