"""Energy and r_t along a descent, and whether steps go down."""
import statistics

from . import plot, scaling
from .section import AGREES, DISAGREES, IN_PART, NRGPT, Section, Table

SECONDS = 60
STEPS = {"nrgpt-shakespeare": 12, "nrgpt-listops": 15, "nrgpt-listops-scalar": 15, "cem-kjv": 4}  # three times the trained T, CEM twice
PROVEN, LEARNED = "nrgpt-listops-scalar", "nrgpt-listops"
HALVINGS = 6


def measure(ctx):
    models = {}
    for name, steps in STEPS.items():
        model = ctx.shipped(name)
        if model.items:
            texts = [ctx.file(chain) for chain in model.worked(ctx.pick(10, 2))]
            questions = ctx.lines(model.items, ctx.pick(300, 40))
            accuracy = scaling.kept(ctx.run("scale", model.path, "--records", questions), "accuracy")
        else:
            whole, size = model.text.read_text(encoding="utf-8"), ctx.pick(200, 60)
            texts, accuracy = [ctx.file(whole[i * 9973:i * 9973 + size]) for i in range(ctx.pick(3, 1))], []
        told = ctx.cached("energies", [model.path, *texts], [steps, HALVINGS], lambda: _traced(ctx, model, texts, steps))
        trained = ctx.run("info", model.path)["trained_steps"]
        models[name] = {**told, "trained": trained, "accuracy": [row for row in accuracy if row["steps"] == next(iter(trained.values()))]}
    return {"models": models, "halvings": HALVINGS}


def _traced(ctx, model, texts, steps):
    """The theory's report of all texts, and quartiles over tokens of the energy less that at t = 0, and of r_t, at each t: of all the
    descents of a token together."""
    energies, changes, reports = [], [], []
    for text in texts:
        told = ctx.ask("trace", model.path, "--file", text, "--parse-special", "-T", steps, "--top", 1, "--theory", "--halvings", HALVINGS)
        reports.append(told["theory"])
        for token in told["tokens"]:
            descents = token["trace"]["descents"]
            sums = [[sum(terms) for terms in zip(*descent["energy"].values())] for descent in descents]
            energies.append([sum(e[t] - e[0] for e in sums) for t in range(steps + 1)])
            changes.append([max(descent["r"][t] for descent in descents) for t in range(steps)])
    scales = [{"step_scale": of[0]["step_scale"], **{name: sum(one[name] for one in of) for name in ("steps", "negative_slopes", "risen_past_rounding")}}
              for of in zip(*(report["scales"] for report in reports))]
    return {"texts": len(texts), "tokens": len(energies), "energy": [_quartiles(at) for at in zip(*energies)],
            "relative_change": [_quartiles(at) for at in zip(*changes)],
            "lower_at_the_end": sum(e[-1] < e[0] for e in energies) / len(energies), "theory": {"rates": reports[0]["rates"], "scales": scales}}


def _quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, middle, high]


def _shares(told, i):
    """(share of negative slopes, share of steps that raise their own energy by more than rounding) at the i-th step scale."""
    one = told["theory"]["scales"][i]
    return one["negative_slopes"] / one["steps"], one["risen_past_rounding"] / one["steps"]


def section(results):
    models = results["models"]
    proven, learned = models[PROVEN], models[LEARNED]
    right = {name: models[name]["accuracy"][0] for name in (PROVEN, LEARNED)}
    holds = all(_shares(proven, i) == (0, 0) for i in range(results["halvings"] + 1))
    costs = scaling.wilson([right[LEARNED]])[1][0] > scaling.wilson([right[PROVEN]])[2][0]
    rises = _shares(learned, -1)[1]
    settle = all(told["relative_change"][-1][1] < told["relative_change"][0][1] / 4 for name, told in models.items() if name != "cem-kjv")
    return Section(
        title="NRGPT's steps are gradient descent where the rate allows it, and the best models do not need that",
        paper=f"{NRGPT} proves that steps lower a token's energy where the rate is R = c diag(gamma), for small steps and with the history held, and says "
              "that models for which this holds need not be the best ones; that states settle, token after token; and that this is seen also where R is not of "
              "that kind.",
        found=f"`{PROVEN}` has such a rate (R = 0.1): of its {proven['theory']['scales'][0]['steps']} steps {_percent(_shares(proven, 0)[0])} have a negative slope and "
              f"{_percent(_shares(proven, 0)[1])} raise their own energy, at full step and at every shorter one. Its twin `{LEARNED}` learned a full matrix "
              f"({learned['theory']['rates']['block']['off_diagonal']:.1%} of R's square off the diagonal): at steps 2^-{results['halvings']} as long {_percent(rises)} of the steps "
              f"still raise their own energy, and {1 - learned['lower_at_the_end']:.0%} of its tokens end higher than they began. It calculates {_share(right[LEARNED])} right, the other {_share(right[PROVEN])}. "
              f"In `nrgpt-shakespeare`, whose R is a full matrix too, {1 - models['nrgpt-shakespeare']['lower_at_the_end']:.0%} of the tokens end at a higher energy than they "
              "began with, while the loss falls: what it does with its steps is not descent. r_t, how far a step moves the normalized state, falls in all of them, fast at first and then slowly: what is left past the trained T "
              "is a drift, not a jump.",
        verdict=(AGREES if settle else IN_PART) if holds and costs else DISAGREES if not holds else IN_PART,
        why=("Where the theorem applies no step goes up; and the model it does not apply to is by far the better one." if holds and costs else
             "Where the theorem applies no step goes up." if holds else "Steps go up where the theorem says they do not."),
        tables=[Table(("model", "R off its diagonal", "steps", "negative slopes", "raise their own energy: full step",
                       *(f"x 2^-{i}" for i in range(1, results["halvings"] + 1)), "energy lower at the end"),
                      [_row(name, told, results["halvings"]) for name, told in models.items()],
                      "Share of steps; risen: with the history held, by more than rounding explains")],
        draw=lambda: _draw(results),
        alt="energy less that at t = 0, and r_t, against t for four models",
        notes=["Of `cem-kjv` a token's energy is the sum over its eight descents, each from its own start, and r_t the largest of them. Along a real trajectory "
               "the history moves too, so that a token's whole energy may rise while every step of its own lowers it (dE_history, docs/looking-inside.md)."])


def _percent(share):
    return "none" if share == 0 else f"{share:.1%}"


def _share(row):
    (value,), (low,), (high,) = scaling.wilson([row])
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def _row(name, told, halvings):
    rates = told["theory"]["rates"]
    off = max(rate["off_diagonal"] for rate in rates.values())
    return (name, f"{off:.1%}", str(told["theory"]["scales"][0]["steps"]), f"{_shares(told, 0)[0]:.1%}",
            *(f"{_shares(told, i)[1]:.1%}" for i in range(halvings + 1)), f"{told['lower_at_the_end']:.0%} of tokens")


def _draw(results):
    figure, (left, right) = plot.panels(["energy less that at t = 0, medians of tokens", "r_t, how far a step moves the state, medians"], width=11)
    for which, (name, told) in enumerate(results["models"].items()):
        start = 0.0
        shrunk = max(abs(e[1]) for e in told["energy"])
        for axes, quantity in ((left, told["energy"]), (right, told["relative_change"])):
            unit = shrunk if axes is left else 1
            values = [[side / unit for side in one] for one in quantity]
            ts = [start + t for t in range(len(values))]
            axes.plot(ts, [v[1] for v in values], color=plot.COLOURS[which], marker=plot.MARKERS[which], label=f"{name} (unit {shrunk:.0f})" if axes is left else name)
            axes.fill_between(ts, [v[0] for v in values], [v[2] for v in values], color=plot.COLOURS[which], alpha=0.15, lw=0)
    left.set_xlabel("t, steps made")
    right.set_xlabel("t, the step")
    left.set_ylabel("energy change, in units (middle half)")
    right.set_ylabel("|g(t+1) - g(t)| / |g(t)| (middle half)")
    plot.logarithmic(right.yaxis)
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    return figure
