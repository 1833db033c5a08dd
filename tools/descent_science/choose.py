"""Choosing among texts: how often each rule's choice is right, against a random choice and a majority vote of the same texts."""
from collections import Counter

import numpy as np

from . import measures, plot, served
from .section import AGREES, DISAGREES, IN_PART, UNKNOWN, Section, Table, count, interval, joined

SECONDS = 80
MODELS = ("nrgpt-listops", "nrgpt-listops-30k", "nrgpt-listops-scalar")
DEPTHS = (3, 5)  # the trained T, and one where more answers are wrong
COUNTS = (2, 4, 8)
TEMPERATURES = (1.0, 0.5)
RULES = ("energy", "energy_gap", "logprob", "vote")
OTHERS = ("majority", "any")
SEED = 1


# ---- The rules, from what an answer says of its candidates ---------------------------------------------------------------------

def chosen(rule, candidates):
    """Which candidate is the best by a rule: docs/depth.md. What ties goes to the earlier one, null comes last."""
    def worth(candidate):
        value = candidate["votes" if rule == "vote" else rule]
        if value is None:
            return (False, 0, 0)
        tie = candidate["logprob"] if rule == "vote" and candidate["logprob"] is not None else -np.inf if rule == "vote" else 0
        return (True, -value if rule == "energy" else value, tie)

    return max(range(len(candidates)), key=lambda i: (worth(candidates[i]), -i))


def majority(candidates, answer):
    """How likely the most frequent answer is right, of those equally frequent one drawn at random. A text that did not end has none."""
    votes = Counter(served.answer_of(candidate) for candidate in candidates)
    votes.pop(None, None)
    most = [said for said, number in votes.items() if number == max(votes.values())]
    return (answer in most) / len(most) if most else 0.0


def marks(candidates, answer):
    """What each way of choosing is worth on one question: 1 right, 0 wrong; a random choice the share of candidates that are right."""
    right = [float(served.answer_of(candidate) == answer) for candidate in candidates]
    return {"random": float(np.mean(right)), **{rule: right[chosen(rule, candidates)] for rule in RULES},
            "majority": majority(candidates, answer), "any": max(right)}


# ---- Measuring ------------------------------------------------------------------------------------------------------------------

def _asked(server, name, prompts, answers, steps, temperature, n):
    told = server.candidates(f"{name}@{steps}", prompts, n, "energy", temperature, SEED)
    for one in told:
        if one["index"] != chosen("energy", one["candidates"]):
            raise ValueError(f"{name} at T = {steps} chose {one['index']}, and not the candidate of the lowest energy it names")
    by_item = [marks(one["candidates"], answer) for one, answer in zip(told, answers)]
    values = {way: np.array([item[way] for item in by_item]) for way in by_item[0]}
    row = {"steps": steps, "temperature": temperature, "n": n, "random": measures.mean(values["random"]),
           "distinct": float(np.mean([len({c["text"] for c in one["candidates"]}) for one in told]))}
    for way in RULES + OTHERS:
        row[way] = {**measures.mean(values[way]), "beside random": measures.mean(values[way] - values["random"])}
    return row


def _measured(ctx, model, items):
    prompts, answers = served.questions(model.items, items)
    with served.Server(ctx, [model.path]) as server:
        greedy = {}
        for steps in DEPTHS:
            told = server.candidates(f"{model.name}@{steps}", prompts, 1, "logprob", 0, SEED)
            greedy[str(steps)] = float(np.mean([served.answer_of(one["candidates"][0]) == answer for one, answer in zip(told, answers)]))
        rows = [_asked(server, model.name, prompts, answers, steps, temperature, n)
                for temperature in TEMPERATURES for steps in DEPTHS for n in COUNTS]
    return {"items": len(prompts), "greedy": greedy, "rows": rows}


def measure(ctx):
    items = ctx.pick(300, 24)
    found = {}
    for name in MODELS:
        model = ctx.shipped(name)
        found[name] = ctx.cached("choices", [model.path, model.items], {"items": items}, lambda: _measured(ctx, model, items))
    return {"models": found}


# ---- The page -------------------------------------------------------------------------------------------------------------------

def table(results, temperature, counts, title):
    rows = []
    for name, found in results["models"].items():
        for row in found["rows"]:
            if row["temperature"] == temperature and row["n"] in counts:
                rows.append((name, str(row["steps"]), str(row["n"]), f"{row['random']['value']:.3f}",
                             *(_beside(row[rule]) for rule in RULES), f"{row['majority']['value']:.3f}", f"{row['any']['value']:.3f}"))
    return Table(("model", "T", "n", "random", *RULES, "majority answer", "any right"), rows, title)


def _beside(told):
    """Accuracy, and the interval of its difference to a random choice."""
    return f"{told['value']:.3f} ({interval(told['beside random']['low'], told['beside random']['high'], '+.3f')})"


def in_depth_md(results):
    """What docs/depth.md shows of it."""
    return table(results, 1.0, (8,), "")


def _verdict(rule, rows):
    """(settings in which the rule is surely better than a random choice, surely worse)."""
    beside = [row[rule]["beside random"] for row in rows]
    return sum(one["low"] > 0 for one in beside), sum(one["high"] < 0 for one in beside)


def section(results):
    rows = [row for found in results["models"].values() for row in found["rows"]]
    counted = {rule: _verdict(rule, rows) for rule in RULES}
    better, worse = counted["energy"]
    best = max(RULES, key=lambda rule: np.mean([row[rule]["beside random"]["value"] for row in rows]))
    items = next(iter(results["models"].values()))["items"]
    gains = {rule: np.mean([row[rule]["beside random"]["value"] for row in rows]) for rule in (*RULES, "majority")}
    return Section(
        title="The text of the lowest energy is the right one",
        paper="Both papers give each token an energy that its computation goes down. If a low energy meant a good text, it would be a judge "
              "that costs nothing, as in other energy-based models, which choose among candidates by it. We know of no measurement of it in "
              "either paper.",
        found=f"{count(items)} held-out questions of ListOps, {len(rows)} settings (model, T, temperature, n): n texts of each question are "
              f"sampled once, and every rule of `descent.choose` chooses among the same texts, so at equal token-steps. Against a random "
              "choice, " + joined([f"`{rule}` is surely better in {b} settings and surely worse in {w} ({gains[rule]:+.3f} on average)"
                                   for rule, (b, w) in counted.items()]) +
              f"; the most frequent answer gains {gains['majority']:+.3f}. On average `{best}` is the best rule.",
        verdict=UNKNOWN if better == worse == 0 else DISAGREES if better <= worse else IN_PART if worse or best != "energy" else AGREES,
        why=f"Choosing by energy is surely better than at random in {better} settings and surely worse in {worse} of {len(rows)}"
            + ("." if best == "energy" else f", and `{best}` is better than it."),
        tables=[table(results, temperature, counts, f"Accuracy at temperature {temperature:g}, and in brackets the 95% interval of the "
                      "difference to a random choice, paired over questions")
                for temperature, counts in ((TEMPERATURES[0], COUNTS), (TEMPERATURES[1], COUNTS[-1:]))],
        elsewhere=[("depth.md", in_depth_md(results))],
        draw=lambda: _draw(results),
        alt="accuracy of each rule of choosing, beside a random choice, by model and T, for eight texts",
        notes=["`majority answer`: the most frequent last token, of equals one at random. `any right`: at least one of the texts is, which no rule "
               "can exceed. One greedy text instead: " + joined(f"`{name}` {joined(f'{value:.3f} at T = {steps}' for steps, value in found['greedy'].items())}"
                                        for name, found in results["models"].items()) + ". Energies cost about half a step for each step beside "
               "the texts; the other rules cost nothing."])


def _draw(results):
    temperature, n = TEMPERATURES[0], COUNTS[-1]
    figure, axes = plot.panels([f"{name}" for name in results["models"]], width=10, height=4.2, share_y=True)
    ways = ("random", *RULES, "majority", "any")
    for axis, found in zip(axes, results["models"].values()):
        for which, steps in enumerate(DEPTHS):
            row = next(r for r in found["rows"] if (r["steps"], r["temperature"], r["n"]) == (steps, temperature, n))
            plot.curve(axis, [x + 0.16 * (which - 0.5) for x in range(len(ways))], [row[way]["value"] for way in ways],
                       label=f"T = {steps}", lows=[row[way]["low"] for way in ways], highs=[row[way]["high"] for way in ways],
                       which=which, line="")
        axis.set_xticks(range(len(ways)), ways, rotation=40, ha="right")
        axis.legend(loc="lower right")
    axes[0].set_ylabel(f"exact match of the text chosen\namong {n}, temperature {temperature:g} (95%)")
    return figure
