"""What the next token's distribution does along a descent: KL to the end's, top-1 agreement, rank of the target."""
import numpy as np

from . import measures, plot
from .section import AGREES, DISAGREES, IN_PART, NRGPT, Section, Table, count, interval, joined
from .windows import judged

SECONDS = 40
MODELS = {"nrgpt-shakespeare": (1, 2, 3, 4, 5, 6, 8, 12), "nrgpt-listops": (1, 2, 3, 4, 5, 6, 8, 12), "cem-kjv": (1, 2, 3, 4)}
PIECES = {"nrgpt-shakespeare": 16, "nrgpt-listops": 200, "cem-kjv": 16}  # windows of the context, or worked chains
MEASURES = ("kl", "agreement", "rank", "loss")


def measure(ctx):
    return {"models": {name: _model(ctx, ctx.shipped(name), steps) for name, steps in MODELS.items()}}


def _model(ctx, model, steps):
    pieces = ctx.pick(PIECES[model.name], 4)
    return ctx.cached("guesses", [model.path, model.text or model.items], [steps, pieces], lambda: _read(ctx, model, steps, pieces))


def _read(ctx, model, steps, pieces):
    with ctx.open(model.path) as opened:
        trained = max(opened.info.trained)
        depths = sorted({*steps, trained})
        found = {str(t): {measure: [] for measure in MEASURES} for t in depths}
        predictions = []
        for ids, first in judged(model, opened, pieces):
            logs = measures.log_softmax(opened.logits(ids[:-1], list(depths)))[:, first:]
            end, targets = logs[depths.index(trained)], ids[first + 1:].astype(int)
            predictions.append(len(targets))
            for t, log in zip(depths, logs):
                target = log[np.arange(len(targets)), targets]
                one = {"kl": measures.divergence(log, end), "agreement": log.argmax(axis=1) == end.argmax(axis=1),
                       "rank": 1 + (log > target[:, None]).sum(axis=1), "loss": -target}
                for name, values in one.items():
                    found[str(t)][name].append(float(values.sum()))
    rows = [{"t": int(t), **{name: measures.mean(sums, predictions) for name, sums in of.items()}} for t, of in found.items()]
    return {"trained": trained, "predictions": sum(predictions), "pieces": len(predictions), "rows": rows}


def section(results):
    models = results["models"]
    text = models["nrgpt-shakespeare"]
    by_t = {row["t"]: row for row in text["rows"]}
    trained = text["trained"]
    falls = {name: _falls(told) for name, told in models.items() if told["trained"] > 2}  # of T = 2 there is one step before T
    early = by_t[trained // 2]
    drift = text["rows"][-1]
    return Section(
        title="Predictions settle along the descent, step by step",
        paper=f"{NRGPT} describes inference as a state that moves over an energy landscape until it settles, and the token is then read from it. That "
              "predictions at earlier steps are already approximations of the last one's follows from this picture; we know of no figure of the paper for it.",
        found=f"Read at every t as if the descent ended there, beside the trained T. In `nrgpt-shakespeare` half the steps (t = {trained // 2}) leave "
              f"{early['kl']['value']:.3f} nats of KL(p_t || p_T), the same likeliest token in {early['agreement']['value']:.0%} of the places, and the target at rank "
              f"{early['rank']['value']:.2f} instead of {by_t[trained]['rank']['value']:.2f} on average. In {_list(falls)} KL falls with every step up to T. "
              f"Past the trained T predictions leave it again: {drift['kl']['value']:.3f} nats at t = {drift['t']}, so T is not where they come to rest but "
              "where they were trained to be read.",
        verdict=AGREES if all(falls.values()) and drift["kl"]["low"] < 0.01 else IN_PART if any(falls.values()) else DISAGREES,
        why="Each step up to the trained T brings predictions nearer to it, but they do not stay there when more steps are made."
            if all(falls.values()) else "Not every step up to the trained T brings predictions nearer to it.",
        tables=[_table(name, told) for name, told in models.items()],
        draw=lambda: _draw(results),
        alt="KL of the predictions at t from those at the trained T, how often both find the same token likeliest, and the target's rank, against t",
        notes=["KL with p_t first, mean over predictions in pieces, each begun anew: windows of the context, of `nrgpt-listops` worked chains behind the question, which is "
               "random; 95% intervals resample pieces. Of `cem-kjv` t is the T of every "
               "attention and MLP, since its layers have no reading of the whole in between."])


def _falls(told):
    """Whether KL falls from step to step before T, where it is 0; each below the interval of the step before."""
    before = [row["kl"] for row in told["rows"] if row["t"] < told["trained"]]
    return all(a["low"] > b["high"] for a, b in zip(before, before[1:]))


def _list(falls):
    return joined(f"`{name}`" for name, falling in falls.items() if falling)


def _table(name, told):
    return Table(("t", "KL(p_t \\|\\| p_T), nats", "95%", "same likeliest token", "95%", "target's mean rank", "95%", "loss"),
                 [(str(row["t"]), f"{row['kl']['value']:.4f}", _sides(row["kl"]), f"{row['agreement']['value']:.3f}", _sides(row["agreement"], ".3f"),
                   f"{row['rank']['value']:.3f}", _sides(row["rank"], ".3f"), f"{row['loss']['value']:.4f}") for row in told["rows"]],
                 f"`{name}`, T = {told['trained']}, {count(told['predictions'])} predictions in {told['pieces']} pieces")


def _sides(told, form=".4f"):
    return interval(told["low"], told["high"], form)


def _draw(results):
    figure, axes = plot.panels(["KL(p_t || p_T)", "same likeliest token as at T", "rank of the target"], width=12)
    for which, (name, told) in enumerate(results["models"].items()):
        rows = told["rows"]
        for one, measure_name in zip(axes, ("kl", "agreement", "rank")):
            # KL is 0 at T, which a logarithmic axis has no place for: the line ends before it and begins behind it.
            parts = [rows] if measure_name != "kl" else [[row for row in rows if row["t"] < told["trained"]], [row for row in rows if row["t"] > told["trained"]]]
            for i, shown in enumerate(parts):
                plot.curve(one, [row["t"] for row in shown], *([row[measure_name][side] for row in shown] for side in ("value", "low", "high")),
                           label=None if i else f"{name}, T = {told['trained']}", which=which)
    for one, label in zip(axes, ("nats (95%)", "share of predictions (95%)", "mean rank (95%)")):
        plot.depths(one, sorted({row["t"] for told in results["models"].values() for row in told["rows"]}))
        one.set_xlabel("t, steps made")
        one.set_ylabel(label)
    for one in (axes[0], axes[2]):
        plot.logarithmic(one.yaxis)
    axes[1].legend(loc="lower right", fontsize=8)
    return figure
