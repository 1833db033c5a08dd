"""A model's card, NAME.md with its drawings beside it, from the figures of its run (figures.py).

Every number on a card comes from figures.json; the sentences around them say what was measured and how. Questions that are
easily taken for one another, a model swept over T and models trained at a T each, have a section each.
"""

import os

from . import figure
from .figures import REQUIRED_FACTS

_SECTIONS = {
    "swept": ("One model, T swept", "The same weights read at every T: how deep to run this model."),
    "fixed": ("A model for each T", "Every row is another model of this shape, trained at that T alone and read at it: what "
              "depth buys a model made for it. It says nothing of running the shipped model deeper."),
}


def card(figures):
    """The card's text."""
    missing = [fact for fact in REQUIRED_FACTS if fact not in figures["facts"]]
    if missing:
        raise ValueError(f"the figures of {figures['name']} lack the facts {', '.join(missing)}")
    out = [f"# {figures['name']}", "", figures["summary"], "", "| | |", "|---|---|"]
    out += [f"| {what} | {text} |" for what, text in figures["facts"].items()]
    out += ["", figures["measured_on"] + " Intervals are 95%: " + _interval_kind(figures) + "."]
    for which in _SECTIONS:
        if which in figures:
            title, question = _section(figures, which)
            out += ["", f"## {title}", "", question, "", *_table(figures[which]["rows"])]
            out += _compared(figures[which]["compared"])
            if _is_drawn(figures, which):
                out += ["", f"![{title}]({_drawing(figures, which)})"]
    out += _beside_ngrams(figures) + _use(figures)
    out += ["", "## Again", "", "Measured by", "", _code(figures["commands"]["measure"]), "", "and trained by", ""]
    out += [_code(command) for command in figures["commands"]["train"]]
    return "\n".join(out) + "\n"


def write(figures, directory):
    """Writes NAME.md and the drawings its sections show; returns their paths."""
    texts = {figures["name"] + ".md": card(figures)}
    texts.update({_drawing(figures, which): figure.svg(figures, which) for which in _SECTIONS if _is_drawn(figures, which)})
    for name, text in texts.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return [os.path.join(directory, name) for name in texts]


def _section(figures, which):
    """(title, what is asked), of a model without T the one figure it has."""
    return _SECTIONS[which] if _is_drawn(figures, which) else ("Measured", "This model has no T.")


def _is_drawn(figures, which):
    """True where there are depths to draw."""
    return which in figures and figures[which]["rows"][0]["T"] != "none"


def _drawing(figures, which):
    return f"{figures['name']}-{which}.svg"


def _interval_kind(figures):
    rows = figures["swept"]["rows"]
    return "bootstrapped over windows, paired for differences" if "loss" in rows[0] else "Wilson's, of the items"


def _code(command):
    return "    " + command


def _between(row):
    return f"{row['low']:.4f} to {row['high']:.4f}"


def _table(rows):
    if "loss" in rows[0]:
        return ["| T | loss, nats per token | 95% | perplexity | bits per byte |", "|---|---|---|---|---|",
                *(f"| {r['T']} | {_losses(r)} |" for r in rows)]
    counts = list(rows[0]["by_operations"])
    return ["| T | exact match | 95% | right | " + " | ".join(_operations(n) for n in counts) + " |",
            "|---" * (4 + len(counts)) + "|",
            *(f"| {r['T']} | {r['exact_match']:.3f} | {r['low']:.3f} to {r['high']:.3f} | {r['right']} of {r['items']} | "
              + " | ".join(f"{r['by_operations'][n][0]} of {r['by_operations'][n][1]}" for n in counts) + " |" for r in rows)]


def _losses(row):
    return f"{row['loss']:.5f} | {_between(row)} | {row['perplexity']:.4f} | {row['bits_per_byte']:.5f}"


def _operations(n):
    return "1 operation" if n == "1" else f"{n} operations"


def _compared(differences):
    if not differences:
        return []
    return ["", "| from T | to T | difference, nats per token | 95%, paired |", "|---|---|---|---|",
            *(f"| {d['from']} | {d['to']} | {d['difference']:+.5f} | {d['low']:+.5f} to {d['high']:+.5f} |"
              for d in differences)]


def _beside_ngrams(figures):
    if "ngram" not in figures:
        return []
    n = figures["ngram"]
    beaten = n["beaten_by"]
    at = "At its one depth" if beaten["to"] == "none" else f"At T = {beaten['to']}"
    return ["", "## Beside n-gram tables", "", f"Counted on the same training tokens ({n['method']}), read on the same windows; "
            "a table sees the tokens before a window, the model does not.", "",
            "| table | loss, nats per token | 95% | perplexity | bits per byte |", "|---|---|---|---|---|",
            *(f"| {r['order']}-gram | {_losses(r)} |" for r in n["rows"]), "",
            f"{at} the model's loss less that of the {beaten['from']} table is "
            f"{beaten['difference']:+.4f} nats ({beaten['low']:+.4f} to {beaten['high']:+.4f})."]


def _use(figures):
    lines = []
    if "context_kl" in figures:
        kl = figures["context_kl"]
        lines.append("| KL of its predictions in the second half of a window once the first half is scrambled | "
                     f"{kl['mean']:.4f} nats |")
        lines.append(f"| the same, over the last quarter | {kl['last_quarter']:.4f} nats |")
    if "attention_entropy" in figures:
        e = figures["attention_entropy"]
        lines.append(f"| median entropy of attention (attending to all alike: {e['uniform']:.2f}) | {e['median']:.2f} nats |")
    if "relative_update" in figures:
        moved = figures["relative_update"]
        lines.append(f"| median of \\|x(1) - x(0)\\| / \\|x(0)\\|, x before and after {moved['of']} | {moved['median']:.4f} |")
    return ["", "## Whether it uses its context and its depth", "", "| | |", "|---|---|", *lines] if lines else []
