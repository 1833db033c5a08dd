"""The two drawings of a model's figures (figures.py), by tools/plot_eval.py's SVG writer. They answer different questions:

    swept   one model read at many T: how deep to run this model
    fixed   a model for each T, trained and read at that T: what more depth buys a model that is made for it
"""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir))
from plot_eval import draw, steps_of  # noqa: E402

AXES = {"swept": "T this one model is read at (steps)", "fixed": "T a model was trained at and is read at (a model each)"}
QUANTITIES = {"loss": "loss (nats per token)", "exact_match": "exact match"}


def svg(figures, which):
    """The drawing of figures["swept"] or figures["fixed"], with the longest n-gram table where the two can be compared."""
    rows = figures[which]["rows"]
    key = "loss" if "loss" in rows[0] else "exact_match"
    points = sorted((steps_of(r["T"]), r["T"], r[key], r["low"], r["high"]) for r in rows)
    references = []
    if key == "loss" and "ngram" in figures:
        longest = figures["ngram"]["rows"][-1]
        references.append((f"{longest['order']}-gram table", longest["loss"]))
    title = {"swept": f"{figures['name']}: one model, T swept", "fixed": f"{figures['name']}: a model for each T"}[which]
    return draw(points, QUANTITIES[key], title, axis=AXES[which], joined=which == "swept", references=references)
