"""Early exit: loss against multiply-adds and against wall time, with fixed T as points."""
import statistics

from . import plot, scaling
from .section import AGREES, DISAGREES, IN_PART, NRGPT, Section, Table, interval

SECONDS = 170
MODEL, MOST = "nrgpt-shakespeare", 12
FIXED = (1, 2, 3, 4, 5, 6, 8, 12)
CRITERIA = {"state": (1, 0.5, 0.3, 0.1), "cosine": (0.3, 0.05, 0.02, 0.005), "energy": (0.05, 0.02, 0.005), "entropy": (2, 1, 0.3),
            "kl": (0.3, 0.1, 0.03, 0.01), "argmax": (1, 2, 3)}


def runs():
    """{name: options of `descent scale`}: fixed T, and every criterion with its thresholds at the most T."""
    exits = {f"{criterion}:{x:g}": ("-T", MOST, "--exit", f"{criterion}:{x:g}") for criterion, xs in CRITERIA.items() for x in xs}
    return {**{f"T = {t}": ("-T", t) for t in FIXED}, **exits}


def measure(ctx):
    model = ctx.shipped(MODEL)
    text, short = ctx.head(model.text, ctx.pick(24000, 2500)), ctx.head(model.text, ctx.pick(5000, 1000))
    fixed = ctx.scale(model.path, "--text", text, "-T", ",".join(map(str, FIXED)))["inputs"]
    points = {}
    for name, options in runs().items():
        inputs = fixed[name.removeprefix("T = ")] if name.startswith("T") else ctx.scale(model.path, "--text", text, *options)["inputs"][str(MOST)]
        points[name] = _point(inputs, fixed)
    points |= {name: {**points[name], **times} for name, times in _times(ctx, model, short).items()}
    return {"model": MODEL, "trained": 4, "predictions": sum(fixed["1"]["predictions"]), "points": points, "timed": ctx.stamp()}


def _cost(inputs):
    return sum(sum(inputs[part]) for part in ("weights", "attention", "head", "exit")) / sum(inputs["tokens"])


def _point(inputs, fixed):
    """Loss, cost a token, and the loss less what fixed T give at that cost: between the two T around it, window by window."""
    cost = _cost(inputs)
    below = max((t for t in FIXED if _cost(fixed[str(t)]) <= cost * (1 + 1e-9)), default=FIXED[0])
    above = min((t for t in FIXED if t > below), default=below)
    low, high = fixed[str(below)], fixed[str(above)]
    part = 0 if above == below else (cost - _cost(low)) / (_cost(high) - _cost(low))
    between = {"predictions": low["predictions"], "nats": [a + part * (b - a) for a, b in zip(low["nats"], high["nats"])]}
    nats, predictions = inputs["nats"], inputs["predictions"]
    return {"loss": sum(nats) / sum(predictions), "interval": scaling.intervals.bootstrap(nats, predictions), "multiply_adds_a_token": cost,
            "steps_a_token": sum(inputs["token_steps"]) / sum(inputs["tokens"]), "exit_multiply_adds_a_token": sum(inputs["exit"]) / sum(inputs["tokens"]),
            "less_fixed_at_equal_cost": scaling.difference(inputs, between)}


def _times(ctx, model, text):
    """Seconds a token of each run, measured in rounds, one run after the other in each, so that what else the machine does meets all
    alike; beside them the time by that of the trained T in the same round."""
    rounds = ctx.pick(5, 1)
    seconds = {name: [] for name in runs()}
    for _ in range(rounds):
        for name, options in runs().items():
            row = ctx.ask("scale", model.path, "--text", text, *options)["rows"][0]
            seconds[name].append(row["seconds"] / row["tokens"])
    ratios = {name: [a / b for a, b in zip(of, seconds["T = 4"])] for name, of in seconds.items()}
    return {name: {"seconds_a_token": statistics.median(of), "time_by_trained": statistics.median(ratios[name]),
                   "time_by_trained_rounds": ratios[name]} for name, of in seconds.items()}


def section(results):
    points = results["points"]
    exits = {name: point for name, point in points.items() if not name.startswith("T")}
    better = {name: p for name, p in exits.items() if p["less_fixed_at_equal_cost"]["high"] < 0}
    best = min(better or exits, key=lambda name: exits[name]["less_fixed_at_equal_cost"]["value"])
    told = exits[best]["less_fixed_at_equal_cost"]
    fixed = {name: p for name, p in points.items() if name.startswith("T")}
    lowest = min(fixed, key=lambda name: fixed[name]["loss"])
    cheaper = [name for name, p in exits.items() if p["loss"] <= fixed[lowest]["loss"] and p["multiply_adds_a_token"] < fixed[lowest]["multiply_adds_a_token"]]
    near = min(exits, key=lambda name: exits[name]["loss"])
    last = f"T = {MOST}"
    return Section(
        title="Tokens need different numbers of steps: early exit beats a fixed T",
        paper=f"{NRGPT} names as a promise of energy-based inference that computation can follow the difficulty of a token. We know of no "
              "measurement of it there.",
        found=f"`{results['model']}` at T = {MOST} with each criterion that ends a token's descent early, at several thresholds, beside fixed T. Costs are counted "
              "multiply-adds, with the readings of the head and the energies that a criterion asks for. "
              f"At equal cost {len(better)} of {len(exits)} have a lower loss than fixed T by more than chance; best is `{best}`: "
              f"{exits[best]['loss']:.4f} nats for {exits[best]['steps_a_token']:.2f} steps a token, {-told['value']:.4f} less than fixed T at that cost "
              f"({interval(told['low'], told['high'], '+.4f')}). The best fixed T is {lowest.removeprefix('T = ')} with {fixed[lowest]['loss']:.4f}. Where the best T is not known exits "
              f"are worth more: of the {points[last]['loss']:.4f} that T = {MOST} has `{near}` makes {exits[near]['loss']:.4f} in {exits[near]['steps_a_token']:.2f} steps. By the clock `{best}` takes "
              f"{exits[best]['time_by_trained']:.2f} of the time of T = 4, where T = 2 takes {points['T = 2']['time_by_trained']:.2f} and T = 3 {points['T = 3']['time_by_trained']:.2f}.",
        verdict=AGREES if better and cheaper else IN_PART if better else DISAGREES,
        why=(f"`{cheaper[0]}` has the loss of the best fixed T for less." if better and cheaper else
             f"Some criteria beat a mixture of fixed T of the same cost, by at most {-told['value']:.3f} nats; none has the loss of the best fixed T for less." if better else
             "No criterion is better than fixed T of the same cost."),
        tables=[Table(("run", "steps a token", "M multiply-adds a token", "of them for the exit", "loss, nats a token", "95%",
                       "less fixed T's at equal cost", "95%, paired", "time by T = 4's"),
                      [_row(name, point) for name, point in points.items()])],
        draw=lambda: _draw(results),
        alt="loss against counted multiply-adds a token and against time, for each exit criterion, with fixed T as points",
        notes=["Between two fixed T stands their mixture, some tokens run at one and the others at the other without regard to which: what a criterion has to beat.",
               f"Times are medians of {len(points['T = 4']['time_by_trained_rounds'])} rounds, {results['timed']['at']}, at a load of "
               f"{results['timed']['load']:.1f} on {results['timed']['processors']} processors; each is relative to T = 4 in the same round."])


def _row(name, point):
    told = point["less_fixed_at_equal_cost"]
    shown = ("", "") if name.startswith("T") else (f"{told['value']:+.4f}", interval(told["low"], told["high"], "+.4f"))
    return (name if name.startswith("T") else f"`{name}`", f"{point['steps_a_token']:.2f}", f"{point['multiply_adds_a_token'] / 1e6:.2f}",
            f"{point['exit_multiply_adds_a_token'] / 1e6:.2f}", f"{point['loss']:.4f}", interval(*point["interval"]), *shown, f"{point['time_by_trained']:.2f}")


def _draw(results):
    points = results["points"]
    figure, (left, right) = plot.panels(["loss against multiply-adds", "loss against time"], width=11, height=4.6, share_y=True)
    series = {"fixed T": [f"T = {t}" for t in FIXED],
              **{criterion: [f"{criterion}:{x:g}" for x in xs] for criterion, xs in CRITERIA.items()}}
    for which, (label, names) in enumerate(series.items()):
        told = sorted((points[name] for name in names), key=lambda point: point["steps_a_token"])
        losses, apart = [p["loss"] for p in told], [p["less_fixed_at_equal_cost"] for p in told]
        line = {"label": label, "which": which, "line": "--" if label == "fixed T" else "-", "alpha": 0.9}
        plot.curve(left, [p["multiply_adds_a_token"] / 1e6 for p in told], losses, [y + d["low"] - d["value"] for y, d in zip(losses, apart)],
                   [y + d["high"] - d["value"] for y, d in zip(losses, apart)], **line)
        plot.curve(right, [p["time_by_trained"] for p in told], losses, **line)
        for p, y in zip(told, losses):
            right.hlines(y, min(p["time_by_trained_rounds"]), max(p["time_by_trained_rounds"]), color=plot.COLOURS[which], linewidth=1)
    for axes, x, scale in ((left, "multiply_adds_a_token", 1e-6), (right, "time_by_trained", 1)):
        for t in FIXED:
            axes.annotate(f"T = {t}", (points[f"T = {t}"][x] * scale, points[f"T = {t}"]["loss"]), textcoords="offset points", xytext=(4, -10),
                          fontsize=8, color=plot.COLOURS[0], annotation_clip=True)
        plot.logarithmic(axes.xaxis)
    lowest = min(p["loss"] for p in points.values())
    left.set_ylim(lowest - 0.03, points["T = 8"]["loss"] + 0.05)  # where the question is; the table has the rest
    left.set_xlabel("counted multiply-adds a token, millions")
    right.set_xlabel("time, of T = 4's in the same round (lines: all rounds)")
    left.set_ylabel("loss, nats a token (95%, paired with fixed T)")
    left.legend(loc="lower left")
    return figure
