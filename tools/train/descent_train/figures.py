"""figures.json: what was measured of a run, in the form card.py and figure.py write from. Plain numbers, lists and text:

    name, summary, facts (what -> text), measured_on     text, from the run's settings
    swept, fixed   {"rows": [row], "compared": [difference]}: one model read at every T; a model for each T read at its own
    ngram          {"method", "rows": [row with "order"], "beaten_by": difference} against the best T of `swept`
    context_kl, attention_entropy                        as measure.py gives them
    relative_update                                      {"of": what x(0) and x(1) stand before and after, "median"}
    commands       {"measure": text, "train": [text]}

A row is {"T", "loss", "low", "high", "perplexity", "bits_per_byte"} or {"T", "exact_match", "low", "high", "right", "items",
"by_operations"}, a difference {"from", "to", "difference", "low", "high"} of losses on the same windows; low and high are
the ends of 95% intervals. Parts that were not measured are absent.
"""

import json
import math
import os

import numpy as np

from . import ngram
from .intervals import wilson
from .depth import label
from .measure import Losses, by_window

REQUIRED_FACTS = ("family, variant", "size", "vocabulary", "trained on", "licence of the text", "depth")
LEAST_KL = 0.05  # nats: a text model that depends less on its context does not ship


def depth_table(losses, data):
    """`swept` or `fixed` of {T: Losses}, rising T; each T is compared with the one before it."""
    rows = [{"T": label(T), **_row(of, data)} for T, of in losses.items()]
    pairs = list(losses.items())
    compared = [_difference(label(a), label(b), of_b.minus(of_a)) for (a, of_a), (b, of_b) in zip(pairs, pairs[1:])]
    return {"rows": rows, "compared": compared}


def match_table(right, items):
    """`swept` or `fixed` of {T: right [items]} (measure.exact_match)."""
    operations = np.array([item.operations for item in items])
    rows = []
    for T, answers in right.items():
        low, high = wilson(int(answers.sum()), len(items))
        by = {str(n): [int(answers[operations == n].sum()), int((operations == n).sum())] for n in np.unique(operations)}
        rows.append({"T": label(T), "exact_match": float(answers.mean()), "low": low, "high": high,
                     "right": int(answers.sum()), "items": len(items), "by_operations": by})
    return {"rows": rows, "compared": []}


def ngram_table(data, length, losses, orders=(2, 5)):
    """`ngram`: tables of these orders over the same tokens and windows, and the last against the best of {T: Losses}."""
    rows = []
    for order in orders:
        table = ngram.Table(data.train, order, data.vocab.size)
        of = by_window(table.nats(data.val), length)
        rows.append({"order": order, **_row(of, data)})
    best = min(losses, key=lambda T: losses[T].mean)
    beaten = _difference(f"{orders[-1]}-gram", label(best), losses[best].minus(of))
    return {"method": ngram.Table.method, "rows": rows, "beaten_by": beaten}


def _row(losses, data):
    low, high = losses.interval()
    return {"loss": losses.mean, "low": low, "high": high, "perplexity": math.exp(losses.mean),
            "bits_per_byte": data.bits_per_byte(losses.mean)}


def _difference(before, after, numbers):
    return {"from": before, "to": after, **dict(zip(("difference", "low", "high"), numbers))}


def reasons_not_to_ship(figures):
    """Sentences, none where a text model may ship: it beats the longest n-gram table and depends on its context."""
    reasons = []
    beaten = figures.get("ngram", {}).get("beaten_by")
    if beaten and beaten["difference"] >= 0:
        at = "" if beaten["to"] == "none" else f" at its best T, {beaten['to']}"
        reasons.append(f"it loses to the {beaten['from']} table by {beaten['difference']:.4f} nats{at}")
    kl = figures.get("context_kl")
    if kl and kl["mean"] < LEAST_KL:
        reasons.append(f"its predictions hardly depend on context: KL {kl['mean']:.4f}, below {LEAST_KL} nats")
    return reasons


def write(figures, path):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save_losses(losses, path):
    """{T: Losses} to an .npz file, for pairing with another run's."""
    T = list(losses)
    np.savez(path, predictions=losses[T[0]].predictions, **{"T" + label(t): losses[t].nats for t in T})


def load_losses(path):
    """{T as text: Losses} of such a file; depth_table takes T as text too."""
    with np.load(path) as kept:
        return {name[1:]: Losses(kept[name], kept["predictions"]) for name in kept.files if name != "predictions"}


def fixed_losses(paths):
    """{T as text: Losses} of runs trained at one T each, {T: path of save_losses}, each run read at its own T."""
    out = {}
    for T, path in paths.items():
        found = load_losses(path)
        if label(T) not in found:
            raise ValueError(f"{os.path.basename(path)} has no losses at T = {label(T)}, only at {', '.join(found)}")
        out[label(T)] = found[label(T)]
    return out
