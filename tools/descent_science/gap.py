"""Training and validation loss against size: NRGPT and GPT of as many parameters."""
from . import families, plot, scaling
from .section import AGREES, DISAGREES, IN_PART, NRGPT, UNKNOWN, Section, Table, count, interval

SECONDS = 40
EXPERIMENT = "gap"
NAMES = {"nrgpt": "NRGPT", "gpt": "GPT"}


def measure(ctx):
    of, found = {}, []
    for run in ctx.science.of(EXPERIMENT):
        inputs = {what: families.at_trained(run, families.measured(ctx, run, what, ctx.pick(60000, 2600))) for what in ("training", "validation")}
        of[run.name] = inputs
        found.append({"name": run.name, "family": run.entry["family"], "size": run.name.split("-")[2], "parameters": run.entry["parameters"],
                      "passes": run.entry["training_tokens"], **{what: families.loss([one]) for what, one in inputs.items()}})
    for one in found:
        twin = one["name"].replace("-nrgpt-", "-gpt-")
        if one["family"] == "nrgpt" and twin in of:
            one["gap_less_gpt"] = _gaps(of[one["name"]], of[twin])
    return {"runs": found, "missing": ctx.science.missing(EXPERIMENT)}


def _gaps(ours, theirs):
    """NRGPT's gap less GPT's: what one text is harder than the other is in both, and cancels."""
    apart = {what: scaling.difference(ours[what], theirs[what]) for what in ("training", "validation")}
    half = sum(((one["high"] - one["low"]) / 2) ** 2 for one in apart.values()) ** 0.5  # of two texts, drawn one by one
    value = apart["validation"]["value"] - apart["training"]["value"]
    return {"value": value, "low": value - half, "high": value + half}


def _gap(run):
    return run["validation"]["value"] - run["training"]["value"]


def section(results):
    told = [run for run in results["runs"] if "gap_less_gpt" in run]
    smaller = [run for run in told if run["gap_less_gpt"]["high"] < 0]
    larger = [run for run in told if run["gap_less_gpt"]["low"] > 0]
    largest = max(told, key=lambda run: run["parameters"], default=None)
    pairs = {run["size"]: run for run in results["runs"] if run["family"] == "gpt"}
    learned_less = largest and largest["validation"]["low"] > pairs[largest["size"]]["validation"]["high"]
    verdict = (UNKNOWN if len(told) < 3 else (IN_PART if learned_less else AGREES) if largest in smaller and not larger else
               DISAGREES if largest in larger else UNKNOWN)
    return Section(
        title="NRGPT overfits less than a GPT of its size",
        paper=f"{NRGPT} observes that its models may be more resistant to overfitting than transformers: at larger sizes on Shakespeare the training loss stays closer "
              "to the validation loss, and overfitting sets in only in very long training.",
        found=(f"NRGPT and GPT of as many parameters, trained on as many tokens. At {count(largest['parameters'])} parameters, the largest, NRGPT's training loss is "
               f"{largest['training']['value']:.3f} and its validation loss {largest['validation']['value']:.3f}, a gap of {_gap(largest):.3f} nats; GPT's gap is "
               f"{_gap(pairs[largest['size']]):.3f}, NRGPT's less GPT's {_said(largest['gap_less_gpt'])}. Of {len(told)} sizes NRGPT's gap is clearly smaller at "
               f"{len(smaller)} and clearly larger at {len(larger)}. A gap says something of overfitting only beside the losses: a model that has learned less has a "
               "smaller one too.") if told else "The runs that would tell are not trained yet.",
        verdict=verdict,
        why={AGREES: "NRGPT's gap is smaller at the largest size, and nowhere larger.",
             IN_PART: "NRGPT's gap is smaller at the largest size, and nowhere larger; but its validation loss there is above GPT's: it has learned less, which "
                      "makes a gap smaller by itself.", DISAGREES: "NRGPT's gap is larger at the largest size.",
             UNKNOWN: "Too few sizes are trained." if len(told) < 3 else "The gaps differ by less than their intervals where it matters, at the largest size: these runs "
                      "are too short for either to overfit."}[verdict],
        tables=[Table(("parameters", "model", "training loss", "95%", "validation loss", "95%", "gap", "NRGPT's gap less GPT's", "95%"),
                      [_row(run) for run in sorted(results["runs"], key=lambda run: (int(run["size"].rstrip("k")), run["family"] != "nrgpt"))])] if told else (),
        draw=(lambda: _draw(results)) if told else None, alt="training and validation loss of NRGPT and GPT against parameters, and their gaps",
        missing=results["missing"],
        notes=["One seed of each: how far training again would move a gap is in no interval here."] if told else ())


def _said(told):
    return f"{told['value']:+.3f} ({interval(told['low'], told['high'], '+.3f')})"


def _row(run):
    told = run.get("gap_less_gpt")
    cells = [cell for what in ("training", "validation") for cell in (f"{run[what]['value']:.4f}", interval(run[what]["low"], run[what]["high"]))]
    return (count(run["parameters"]), NAMES[run["family"]], *cells, f"{_gap(run):+.4f}",
            *((f"{told['value']:+.4f}", interval(told["low"], told["high"], "+.4f")) if told else ("", "")))


def _draw(results):
    figure, (left, right) = plot.panels(["loss", "validation less training loss"], width=10)
    for which, (family, name) in enumerate(NAMES.items()):
        of = sorted((run for run in results["runs"] if run["family"] == family), key=lambda run: run["parameters"])
        sizes = [run["parameters"] / 1e3 for run in of]
        for what, line in (("training", "--"), ("validation", "-")):
            plot.curve(left, sizes, *([run[what][side] for run in of] for side in ("value", "low", "high")), label=f"{name}, {what}", which=which, line=line)
        plot.curve(right, sizes, [_gap(run) for run in of], label=name, which=which)
    told = sorted((run for run in results["runs"] if "gap_less_gpt" in run), key=lambda run: run["parameters"])
    plot.curve(right, [run["parameters"] / 1e3 for run in told], *([run["gap_less_gpt"][side] for run in told] for side in ("value", "low", "high")),
               label="NRGPT's less GPT's (95%)", which=2, line=":")
    right.axhline(0, color="#666666", linewidth=0.8)
    for axes in (left, right):
        plot.logarithmic(axes.xaxis)
        axes.set_xlabel("parameters, thousands")
        axes.set_ylabel("nats a token")
        axes.legend(fontsize=8)
    return figure
