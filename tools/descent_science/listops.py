"""ListOps: accuracy against parameters, and against nesting depth and T."""
import random

from . import plot, scaling
from .models import listops
from .scaling import wilson
from .section import AGREES, DISAGREES, IN_PART, NRGPT, UNKNOWN, Section, Table, count, interval, joined

SECONDS = 60
MODELS = ("nrgpt-listops-30k", "nrgpt-listops")
DEPTHS = (1, 2, 3, 4, 5, 6, 8, 12)
PAPER = {"GPT_Rec_parallel": 2.3e4, "NRGPT FF1": 2.4e4, "NRGPT FF2W": 2.98e4}  # parameters where ListOps is learned
EXPERIMENT, FAMILIES = "listops-sizes", {"nrgpt": "NRGPT, FF2W", "gpt-rec-parallel": "GPT_Rec_parallel", "gpt": "GPT, three blocks"}
OPERATIONS, SEED = ("add_10", "max_10", "median_10"), "science"


def nesting(prompt):
    """How many operations lie in one another, at most: 1 for add_10,(,1,2,)."""
    depth = most = 0
    for word in prompt.split(","):
        depth += {"(": 1, ")": -1}.get(word, 0)
        most = max(most, depth)
    return most


def questions(ctx, model, most):
    """{nesting: file of questions}: the model's held-out ones, and of nesting 3, which no training line has, new ones."""
    lines = model.items.read_text(encoding="utf-8").splitlines()
    by_nesting = {n: [line for line in lines if nesting(line.split("\t")[0]) == n][:most] for n in (1, 2)}
    draw = random.Random(SEED).random
    deeper = listops.Settings(operations=OPERATIONS, depth=3)
    by_nesting[3] = []
    while len(by_nesting[3]) < most:
        made = listops.expression(draw, deeper)
        worked = listops.chain(made)
        prompt = listops.VOCAB.decode([*made, listops.EQUALS])
        if nesting(prompt) == 3 and len(worked) <= 60:  # its chain has to fit into the context, and into 60 tokens of answer
            by_nesting[3].append(f"{prompt}\t{listops.VOCAB.tokens[worked[-2]]}")
    return {n: ctx.file("\n".join(found) + "\n", ".tsv") for n, found in by_nesting.items()}


def measure(ctx):
    found = {}
    for name in MODELS:
        model = ctx.shipped(name)
        files = questions(ctx, model, ctx.pick(200, 40))
        by_nesting = {}
        for n, file in files.items():
            told = ctx.run("scale", model.path, "--records", file, "-T", ",".join(map(str, DEPTHS)))
            by_nesting[str(n)] = scaling.kept(told, "accuracy")
        everything = ctx.run("scale", model.path, "--records", ctx.lines(model.items, ctx.pick(1000, 60)), "-T", told["trained"])
        found[name] = {"parameters": ctx.run("info", model.path)["parameters"], "trained": told["trained"],
                       "trained_over": model.trained_over, "all": scaling.kept(everything, "accuracy")[0], "by_nesting": by_nesting}
    sizes = [{"name": run.name, "family": run.entry["family"], "parameters": run.entry["parameters"], "seed": run.entry["seed"], "T": run.entry["T"],
              **_size(ctx, run)} for run in ctx.science.of(EXPERIMENT)]
    return {"models": found, "paper": PAPER, "sizes": sizes, "missing": ctx.science.missing(EXPERIMENT)}


def _size(ctx, run):
    steps = ["-T", run.entry["T"]] if run.has_steps else []
    row = ctx.run("scale", run.path, "--records", ctx.lines(run.texts["items"], ctx.pick(300, 40)), *steps)["rows"][0]
    return {name: row[name] for name in ("right", "items")}


def section(results):
    models = results["models"]
    small, large = (min(models.values(), key=lambda m: m["parameters"]), max(models.values(), key=lambda m: m["parameters"]))
    most = 1.05 * max(results["paper"].values())
    learned = [m for m in models.values() if wilson([m["all"]])[1][0] > 0.8 and m["parameters"] <= most]
    smaller = [one for one in results["sizes"] if one["family"] == "nrgpt" and one["parameters"] < 0.8 * min(results["paper"].values())]
    sooner = [one for one in smaller if wilson([one])[1][0] > 0.8]
    deep = max(large["by_nesting"]["3"], key=lambda row: row["right"] / row["items"])
    return Section(
        title="NRGPT learns ListOps from about 3e4 parameters on",
        paper=f"{NRGPT} trains on nested operations and finds that accuracy rises above 80% between 2.3e4 and 3.0e4 parameters: GPT_Rec_parallel at "
              "2.3e4, NRGPT with FF1 at 2.4e4 and with FF2W at 2.98e4. Its sums are modulo 20, ours modulo 10, and models here write the worked "
              "chain before the answer.",
        found=f"With {count(small['parameters'])} parameters {_rate(small['all']):.1%} of {count(small['all']['items'])} held-out expressions are right at "
              f"T = {small['trained']}, with {count(large['parameters'])} {_rate(large['all']):.1%}. {_trained(results)}Nested expressions need more "
              "steps: at T = 2 the larger model has " + " and ".join(f"{_rate(_at(large, n, 2)):.0%} of nesting {n}" for n in ("1", "2"))
              + f". Nesting 3 is in no training line; at best {_rate(deep):.0%} are right (T = {deep['steps']}), and more steps do not make up for what was not "
              "trained.",
        verdict=IN_PART if learned and sooner else AGREES if learned else UNKNOWN if all(m["parameters"] > most for m in models.values()) else DISAGREES,
        why=f"A model of {count(small['parameters'])} parameters is above 80%" + (
            f", and so is one of {count(min(one['parameters'] for one in sooner))}." if sooner else "; of those smaller by a fifth and more none surely is, after a third of its training." if smaller
            else "; whether smaller ones are not, nothing here says.") if learned else "No model as small as the paper's is above 80%.",
        tables=[_shipped(models), *_sizes(results["sizes"]), *(_nesting(name, m) for name, m in models.items())],
        draw=lambda: _draw(results),
        alt="exact match of ListOps against parameters, and against T by nesting depth", missing=results["missing"],
        notes=["The models of models/science had 4,000 batches, a third of what the two that ship had, so that they say which family learns sooner at a size, "
               "not where each could get." ] if results["sizes"] else [])


def _rate(row):
    return row["right"] / row["items"]


def _trained(results):
    """A sentence on the smaller runs, where there are any."""
    best = {family: max((one for one in results["sizes"] if one["family"] == family), key=_rate, default=None) for family in FAMILIES}
    told = [f"{FAMILIES[family]} {_rate(one):.0%} (of {count(one['parameters'])} parameters)" for family, one in best.items() if one]
    return f"After a third of the training the best of each family have {joined(told)}. " if told else ""


def _at(model, n, steps):
    return next(row for row in model["by_nesting"][n] if row["steps"] == steps)


def _cells(row):
    (value,), (low,), (high,) = wilson([row])
    return f"{value:.3f}", interval(low, high, ".3f")


def _shipped(models):
    return Table(("model", "parameters", "T", "exact match", "95%", "right"),
                 [(name, count(m["parameters"]), str(m["trained"]), *_cells(m["all"]),
                   f"{m['all']['right']} of {m['all']['items']}") for name, m in sorted(models.items(), key=lambda item: item[1]["parameters"])],
                 "The models that ship, each at its trained T")


def _sizes(sizes):
    ordered = sorted(sizes, key=lambda one: (one["parameters"] // 1000, one["family"], one["seed"]))
    if ordered:
        yield Table(("family", "parameters", "seed", "T", "exact match", "95%", "right"),
                    [(FAMILIES[one["family"]], count(one["parameters"]), str(one["seed"]), one["T"] if one["T"] != "none" else "", *_cells(one),
                      f"{one['right']} of {one['items']}") for one in ordered], "Shorter runs of three families (models/science)")


def _nesting(name, model):
    by_nesting = model["by_nesting"]
    items = ", ".join(f"{rows[0]['items']} of nesting {n}" for n, rows in by_nesting.items())
    return Table(("T", *(part for n in by_nesting for part in (f"nesting {n}", "95%"))),
                 [(str(rows[0]["steps"]), *(cell for row in rows for cell in _cells(row)))
                  for rows in zip(*by_nesting.values())], f"`{name}` by nesting depth and T: {items}")


def _draw(results):
    models = results["models"]
    figure, (sizes, *depths) = plot.panels(["exact match against parameters", *(f"{name}, by nesting" for name in models)], width=12)
    ordered = sorted(models.values(), key=lambda m: m["parameters"])
    low, high = (side(results["paper"].values()) / 1e3 for side in (min, max))
    sizes.axvspan(low, high, color="#b35900", alpha=0.15, lw=0)
    sizes.axhline(0.8, color="#b35900", linestyle="--", linewidth=1)
    sizes.text(low, 0.02, " the paper: above 80%", color="#b35900", fontsize=8)
    plot.curve(sizes, [m["parameters"] / 1e3 for m in ordered], *wilson([m["all"] for m in ordered]), label="NRGPT, the models that ship", line="")
    for which, (family, label) in enumerate(FAMILIES.items(), 1):
        of = sorted((one for one in results["sizes"] if one["family"] == family), key=lambda one: one["parameters"])
        if of:
            plot.curve(sizes, [one["parameters"] / 1e3 for one in of], *wilson(of), label=f"{label}, shorter runs", which=which, line="")
    sizes.legend(fontsize=8, loc="lower right")
    plot.logarithmic(sizes.xaxis)
    sizes.set_xlabel("parameters, thousands")
    sizes.set_ylabel("exact match (95%)")
    sizes.set_ylim(-0.38, 1.03)  # the legend has its place below 0: there are points everywhere above
    sizes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    for axes, model in zip(depths, models.values()):
        plot.trained(axes, *model["trained_over"])
        for which, (n, rows) in enumerate(model["by_nesting"].items()):
            plot.curve(axes, [row["steps"] for row in rows], *wilson(rows), label=f"nesting {n}", which=which)
        plot.depths(axes, [row["steps"] for row in rows])
        axes.set_ylim(0, 1.03)
        axes.legend(loc="center right", bbox_to_anchor=(1, 0.66))
    return figure
