"""Path independence: do descents that start elsewhere end in the same place?"""
import numpy as np

from . import measures, plot
from .section import AGREES, CEM, DISAGREES, IN_PART, NRGPT, Section, Table, count, interval, joined, steps_label
from .windows import spread

SECONDS = 30
DEPTHS = {"nrgpt-shakespeare": (1, 2, 4, 8, 16, 32, 64), "nrgpt-listops": (1, 2, 3, 5, 10, 20, 40), "cem-kjv": (2, 4, 8, 16, 32)}
WINDOWS, LENGTH = 8, 48
NOISES = {"noise 0.1": (0.1, 1), "noise 1": (1.0, 1), "other noise 1": (1.0, 2)}  # sigma, seed
PREVIOUS, OTHER = "the previous token's end", "another token"
STARTS = (*NOISES, PREVIOUS, OTHER)
SAME = 0.1  # ends this near, beside how far those of different tokens are apart, are one end


# ---- Starts ---------------------------------------------------------------------------------------------------------------------

def noisy(states, sigma, seed):
    """Each state with noise of sigma times its length added, as /v1/descent/states starts from noise."""
    xi = np.random.Generator(np.random.PCG64(seed)).standard_normal(states.shape)
    length = np.linalg.norm(states, axis=-1, keepdims=True)
    return (states + sigma * length / np.sqrt(states.shape[-1]) * xi).astype(np.float32)


def started(native, ids, depths, starts=None):
    """(states, logits) [depths, L, ...] of a block's descents from these x(0), or from the embedding."""
    states, logits = [], []
    with native.sequence(depths[0], sharing=False) as sequence:
        sequence.append(ids)
        for i, x in enumerate(starts if starts is not None else ()):
            sequence.start(i, 0, x)
        for steps in depths:
            sequence.set_depth(steps)
            logits.append(sequence.logits())
            states.append(sequence.states())
    return np.array(states), np.array(logits)


def from_previous(native, ids, depths):
    """The same, where every token but the first starts from the last state of the one before it."""
    states, logits = [], []
    for steps in depths:
        with native.sequence(steps, sharing=False) as sequence:
            for i, token in enumerate(ids):
                sequence.append([token])
                if i > 0:
                    sequence.start(i, 0, last)
                sequence.finish()
                last = sequence.state(i)[0]
            logits.append(sequence.logits())
            states.append(sequence.states())
    return np.array(states), np.array(logits)


def pushed(native, ids, depths, sigma, seed):
    """The same of layers whose descents begin at their input: each is pushed off its path behind its first step, by noise of sigma
    times the length of x there. sigma 0: none is."""
    info, states, logits = native.info, [], []
    for steps in depths:
        seen = native.run(ids, steps=steps, observe=("state",)).traces if sigma else {}
        with native.sequence(steps, sharing=False) as sequence:
            sequence.append(ids)
            for kind, trace in seen.items():
                x = trace.states[:, 1]  # [layers, L, C]
                # The same noise at every T, so that only T differs.
                by = noisy(x, sigma, [seed, info.kinds.index(kind)]) - x
                for layer in range(info.layers):
                    for i in range(len(ids)):
                        sequence.intervene(i, 1, by[layer, i], "add_x", layer, kind)
            logits.append(sequence.logits())
            states.append(sequence.states())
    return np.array(states), np.array(logits)


# ---- Ends -----------------------------------------------------------------------------------------------------------------------

def directions(states, centred):
    """Of length 1; what the model's norm sees of a state, whose length it does not. LayerNorm does not see the mean either."""
    states = states.astype(float)
    if centred:
        states = states - states.mean(-1, keepdims=True)
    return states / np.linalg.norm(states, axis=-1, keepdims=True)


def apart(reference, other, centred):
    """{"distance", "kl", "same token"} [depths, L - 1] of two ends (states, logits); what begins a text is left out."""
    (x, p), (y, q) = reference, other
    return {"distance": np.linalg.norm(directions(x, centred) - directions(y, centred), axis=-1)[:, 1:],
            "kl": measures.divergence(p, q)[:, 1:], "same token": (p.argmax(-1) == q.argmax(-1)).astype(float)[:, 1:]}


def _of_window(native, ids, depths):
    """{start: what apart says of it} of one window; OTHER is how far neighbours' ends are apart."""
    centred = "layernorm" in native.info.variant
    if native.info.deepens:
        reference = started(native, ids, depths)
        embedding = native.run(ids, steps=1, observe=("state",)).states[0]
        ends = {name: started(native, ids, depths, noisy(embedding, *noise)) for name, noise in NOISES.items()}
        ends[PREVIOUS] = from_previous(native, ids, depths)
    else:
        reference = pushed(native, ids, depths, 0, 0)
        ends = {name: pushed(native, ids, depths, *noise) for name, noise in NOISES.items()}
    ends[OTHER] = tuple(np.roll(of, 1, axis=1) for of in reference)
    return {name: apart(reference, end, centred) for name, end in ends.items()}


def _measured(ctx, model, depths, windows, length):
    with ctx.open(model.path) as native:
        each = [_of_window(native, ids, depths) for ids in spread(model, native, windows, length)]
        starts = {name: [{"steps": steps, **{what: measures.mean([one[name][what][k].mean() for one in each])
                                             for what in ("distance", "kl", "same token")}} for k, steps in enumerate(depths)]
                  for name in each[0]}
        return {"trained": native.info.trained[0], "deepens": native.info.deepens, "tokens": windows * (length - 1), "starts": starts}


def measure(ctx):
    windows, length, found = ctx.pick(WINDOWS, 2), ctx.pick(LENGTH, 16), {}
    for name, depths in DEPTHS.items():
        model, depths = ctx.shipped(name), ctx.pick(depths, depths[:4])
        found[name] = ctx.cached("ends", [model.path, model.text or model.items], {"depths": depths, "windows": [windows, length]},
                                 lambda: _measured(ctx, model, depths, windows, length))
    return {"models": found}


# ---- The page -------------------------------------------------------------------------------------------------------------------

def _ends(found):
    """{start: (how far its ends are from the embedding's at the largest T, of how far those of different tokens are; the same at the
    trained T, or the smallest there is)}."""
    reference = found["starts"][OTHER]
    early = next((k for k, row in enumerate(reference) if row["steps"] >= found["trained"]), 0)
    return {start: tuple(rows[k]["distance"]["value"] / reference[k]["distance"]["value"] for k in (-1, early))
            for start, rows in found["starts"].items() if start != OTHER}


def section(results):
    models = results["models"]
    ends = {(name, start): pair for name, found in models.items() for start, pair in _ends(found).items()}
    met = sum(last < SAME for last, _ in ends.values())
    nearer = sum(last < 0.5 * early for last, early in ends.values())
    small = {name: _ends(found)["noise 0.1"] for name, found in models.items()}
    tokens = joined(f"{count(found['tokens'])} tokens of `{name}`" for name, found in models.items())
    far = {name: max(last for start, (last, _) in _ends(found).items()) for name, found in models.items()}
    return Section(
        title="A descent ends in the same place wherever it starts",
        paper=f"{NRGPT} takes inference for a walk on an energy landscape that becomes gradient descent under conditions; {CEM} for steps "
              "of optimization. A descent that comes to rest in one minimum would forget where it began, which is called path independence. "
              "We know of no measurement of it in either paper.",
        found=f"Every token of a text starts elsewhere than at its embedding, and after T steps of the same model we look how far the ends are "
              "apart. The unit is how far the ends of neighbouring tokens are apart, so that 1 is as far as if it were another token. "
              + " ".join(f"`{name}`: a start off by 0.1 of its length ends {small[name][1]:.2f} apart at the trained T and {small[name][0]:.2f} at "
                         f"T = {found['starts']['noise 0.1'][-1]['steps']}; the farthest start ends {far[name]:.2f} apart."
                         for name, found in models.items()),
        verdict=AGREES if met == len(ends) else IN_PART if met or nearer else DISAGREES,
        why=f"{met} of {len(ends)} starts end within {SAME:g} of the embedding's end, and {nearer} come to less than half of what they were apart at "
            "the trained T" + ("." if met == len(ends) else ": a state keeps where it started. In an NRGPT nothing else says which token it is."),
        tables=[Table(("model", "start", "T", "distance of directions", "95%", "of that of tokens", "KL, nats", "same likeliest token"),
                      [cells for name, found in models.items() for cells in _rows(name, found)])],
        draw=lambda: _draw(results),
        alt="distance of ends from those of the embedding against T, for starts from noise and from the previous token's end",
        notes=["Distances are between directions (of length 1; without the mean where the norm is LayerNorm), since norm and head see no more "
               "of a state: 1.41 is at right angles. Starts from noise add it to every token's embedding, with sigma times its length; the "
               "previous token's end runs tokens one after another. Where layers descend one after another (CEM) a descent's input also "
               "makes its keys and its gate, so each descent of each layer begins at its input and is pushed by noise behind its first step. "
               f"{tokens}; windows are resampled."])


def _rows(name, found):
    reference = found["starts"][OTHER]
    shown = {0, len(reference) - 1, next((k for k, row in enumerate(reference) if row["steps"] >= found["trained"]), 0)}
    for start, rows in found["starts"].items():
        for k in sorted(shown):
            row = rows[k]
            distance = row["distance"]
            yield (name, start, str(row["steps"]) if found["deepens"] else steps_label(row["steps"]), f"{distance['value']:.3f}", interval(distance["low"], distance["high"], ".3f"),
                   f"{distance['value'] / reference[k]['distance']['value']:.2f}", f"{row['kl']['value']:.3f}", f"{row['same token']['value']:.0%}")


def _draw(results):
    figure, axes = plot.panels([*results["models"], "predictions: " + next(iter(results["models"]))], width=11, height=3.9, columns=2)
    for axis, found in zip(axes, results["models"].values()):
        for start, rows in found["starts"].items():
            _curve(axis, rows, "distance", start)
        axis.set_ylim(bottom=0)
        axis.set_ylabel("distance of directions (95%)")
    for start, rows in next(iter(results["models"].values()))["starts"].items():
        _curve(axes[-1], rows, "kl", start)
    axes[-1].set_yscale("log")
    axes[-1].set_ylabel("KL to the embedding's, nats (95%)")
    axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(0, 0.4))
    return figure


def _curve(axis, rows, what, start):
    plot.curve(axis, [row["steps"] for row in rows], [row[what]["value"] for row in rows], lows=[row[what]["low"] for row in rows],
               highs=[row[what]["high"] for row in rows], label=start, which=STARTS.index(start), line="--" if start == OTHER else "-")
    plot.depths(axis, [row["steps"] for row in rows])
