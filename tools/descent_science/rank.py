"""Is a token of low energy a token that is predicted well? Rank correlation of energy and loss within bins of positions."""
import numpy as np

from . import measures, plot
from .section import AGREES, DISAGREES, IN_PART, UNKNOWN, Section, Table, count, interval
from .windows import judged

SECONDS = 35
MODELS = {"nrgpt-shakespeare": (1, 2, 4, 8, 16), "cem-kjv": (1, 2, 4, 8), "nrgpt-listops": (1, 2, 3, 5, 10)}
WINDOWS = {"nrgpt-shakespeare": 24, "cem-kjv": 24, "nrgpt-listops": 300}
BINS = 8  # of positions, with about as many tokens in each
RESAMPLES = 300


# ---- Energies and losses ----------------------------------------------------------------------------------------------------------

def energies(run, native):
    """[T + 1, L] of one block, the energy at each t; [1, L] of layers that descend one after another, their ends summed up."""
    total = [trace.total_energy for trace in run.traces.values() if trace.energy]
    if len(total) == 1 and total[0].ndim == 2:
        return total[0].astype(float)
    return sum(one.astype(float)[:, -1].sum(0) for one in total)[None]


def _read(native, ids, depths):
    """(energies [depths, L], losses [depths, L]) of a window: at each depth, of each token that predicts the next."""
    inputs, targets = ids[:-1], ids[1:]
    if native.info.deepens:
        run = native.run(inputs, steps=depths[-1], observe=("energy", "final"))
        found = energies(run, native)[list(depths)]
    else:
        found = np.concatenate([energies(native.run(inputs, steps=steps, observe=("energy", "final")), native) for steps in depths])
    log_p = measures.log_softmax(native.logits(inputs, steps=list(depths)))
    return found, -log_p[:, np.arange(len(targets)), targets]


# ---- Correlation ----------------------------------------------------------------------------------------------------------------

def edges(positions, bins):
    """Upper ends of bins of positions that hold about as many tokens each, fewer where positions repeat."""
    return np.unique(np.quantile(positions, np.linspace(0, 1, bins + 1)[1:], method="inverted_cdf"))


def within_bins(bin_of, bins, energy, loss):
    """Spearman's rho of energy and loss in each bin, None where there is none to be had, and their mean weighted by tokens."""
    found, total, tokens = [], 0.0, 0
    for which in range(bins):
        here = bin_of == which
        rho = measures.spearman(energy[here], loss[here]) if here.sum() > 2 else float("nan")
        found.append(rho if np.isfinite(rho) else None)
        if found[-1] is not None:
            total, tokens = total + rho * here.sum(), tokens + here.sum()
    return found, float(total / tokens) if tokens else 0.0


def correlated(window, position, energy, loss, bins=BINS, resamples=RESAMPLES):
    """{"value", "low", "high", "bins": [rho], "edges"}: windows are resampled."""
    upper = edges(position, bins)
    bin_of = np.searchsorted(upper, position)
    by_bin, value = within_bins(bin_of, len(upper), energy, loss)
    rng = np.random.Generator(np.random.PCG64(0))
    where = [np.flatnonzero(window == w) for w in np.unique(window)]
    drawn = []
    for _ in range(resamples):
        took = np.concatenate([where[i] for i in rng.integers(0, len(where), len(where))])
        drawn.append(within_bins(bin_of[took], len(upper), energy[took], loss[took])[1])
    low, high = np.percentile(drawn, (2.5, 97.5))
    return {"value": value, "low": float(low), "high": float(high), "bins": by_bin, "edges": upper.tolist()}


# ---- Measuring ------------------------------------------------------------------------------------------------------------------

def _measured(ctx, model, depths, most):
    with ctx.open(model.path) as native:
        windows = judged(model, native, most)
        window, position, energy, loss = [], [], [], []
        for i, (ids, first) in enumerate(windows):
            e, nats = _read(native, ids, depths)
            here = np.arange(first, len(ids) - 1)
            # Token 0 under a strict mask sees nothing and has no energy of attention.
            here = here[here > 0]
            term = np.array([native.history_term(int(p)) for p in here])
            window.append(np.full(len(here), i))
            position.append(here)
            energy.append(e[:, here] + term)
            loss.append(nats[:, here])
        window, position = np.concatenate(window), np.concatenate(position)
        energy, loss = np.concatenate(energy, 1), np.concatenate(loss, 1)
        rows = [{"steps": steps, "loss": float(loss[k].mean()), "all positions": measures.spearman(energy[k], loss[k]),
                 **correlated(window, position, energy[k], loss[k])} for k, steps in enumerate(depths)]
        return {"trained": native.info.trained[0], "tokens": len(position), "windows": len(windows), "rows": rows}


def measure(ctx):
    found = {}
    for name, depths in MODELS.items():
        model, most = ctx.shipped(name), ctx.pick(WINDOWS[name], 4)
        found[name] = ctx.cached("ranks", [model.path, model.text or model.items], {"depths": depths, "windows": most},
                                 lambda: _measured(ctx, model, depths, most))
    return {"models": found}


# ---- The page -------------------------------------------------------------------------------------------------------------------

def section(results):
    models = results["models"]
    at = {name: next(row for row in found["rows"] if row["steps"] == found["trained"]) for name, found in models.items()}
    positive = [name for name, row in at.items() if row["low"] > 0]
    negative = [name for name, row in at.items() if row["high"] < 0]
    weak = max(abs(row["value"]) for row in at.values()) < 0.3
    return Section(
        title="A token of low energy is predicted well",
        paper="Energy-based models are read as judges: low energy is what is plausible. A step lowers a token's energy, training lowers its loss; "
              "if the two were one thing, tokens of low energy would be tokens of low loss. We know of no measurement of it in either paper.",
        found="Spearman's rank correlation of a token's energy at x(T) and the loss of the prediction read there, within bins of positions. "
              + " ".join(f"`{name}`: {row['value']:+.3f} ({interval(row['low'], row['high'], '+.3f')}) at the trained T = {row['steps']}, over "
                         f"{count(models[name]['tokens'])} tokens." for name, row in at.items()),
        verdict=UNKNOWN if not positive and not negative else DISAGREES if not positive else IN_PART if negative or weak or
        len(positive) < len(at) else AGREES,
        why=f"Low energy goes with low loss in {len(positive)} of {len(at)} models and with high loss in {len(negative)}; the largest "
            f"correlation is {max((row['value'] for row in at.values()), key=abs):+.2f}"
            + (", too weak to tell a good token from a bad one." if weak else "."),
        tables=[Table(("model", "T", "rho within bins", "95%", "lowest and highest of a bin", "over all positions", "loss"),
                      [(name, str(row["steps"]), f"{row['value']:+.3f}", interval(row["low"], row["high"], "+.3f"),
                        _ends(row["bins"]), f"{row['all positions']:+.3f}", f"{row['loss']:.3f}")
                       for name, found in models.items() for row in found["rows"]])],
        draw=lambda: _draw(results),
        alt="rank correlation of energy and loss against T, and by position at the trained T, for three models",
        notes=[f"{BINS} bins of positions with about as many tokens each; windows are resampled. What attention's energy owes to the number of "
               "keys is taken off. Of ListOps a window is a worked chain, and the question, whose digits are random, is left out."])


def _ends(bins):
    known = [rho for rho in bins if rho is not None]
    return f"{min(known):+.2f}, {max(known):+.2f}" if known else ""


def _draw(results):
    figure, (by_depth, by_position) = plot.panels(["by T", "by position, at the trained T"], width=10, height=4, share_y=True)
    depths = sorted({row["steps"] for found in results["models"].values() for row in found["rows"]})
    for which, (name, found) in enumerate(results["models"].items()):
        rows = found["rows"]
        plot.curve(by_depth, [row["steps"] for row in rows], [row["value"] for row in rows], lows=[row["low"] for row in rows],
                   highs=[row["high"] for row in rows], label=name, which=which)
        at = next(row for row in rows if row["steps"] == found["trained"])
        known = [(edge, rho) for edge, rho in zip(at["edges"], at["bins"]) if rho is not None]
        plot.curve(by_position, [edge for edge, _ in known], [rho for _, rho in known], which=which, label=name)
    plot.depths(by_depth, depths)
    by_position.set_xscale("log", base=2)
    by_position.set_xticks([4, 8, 16, 32, 64, 128, 256], ["4", "8", "16", "32", "64", "128", "256"])
    by_position.minorticks_off()
    by_position.set_xlabel("last position of the bin")
    for axes in (by_depth, by_position):
        axes.axhline(0, color="#555555", lw=0.8)
    by_depth.set_ylabel("Spearman's rho of energy and loss\nwithin bins of positions (95%)")
    by_depth.legend()
    return figure
