"""What quantized weights do to predictions along a descent: KL of every type to F32 against t."""
import numpy as np

from . import measures, plot
from .section import AGREES, DISAGREES, IN_PART, Section, Table, count, joined, steps_label
from .windows import spread

SECONDS = 35
DEPTHS = {"nrgpt-shakespeare": (1, 2, 4, 8, 16), "nrgpt-listops": (1, 2, 3, 5, 10, 20), "cem-kjv": (1, 2, 4, 8)}
WINDOWS = {"nrgpt-shakespeare": 8, "nrgpt-listops": 24, "cem-kjv": 8}
LENGTH = 96
TYPES = {  # options of `descent quantize`
    "F16": ("--type", "F16"),
    "BF16": ("--type", "BF16"),
    "Q8_0": ("--type", "Q8_0", "--scales", "row"),
    "Q8_0, tile": ("--type", "Q8_0", "--scales", "tile"),
    "Q6_K": ("--type", "Q6_K"),
    "Q4_K": ("--type", "Q4_K"),
    "Q4_0": ("--type", "Q4_0", "--scales", "row"),
    "Q4_0, tile": ("--type", "Q4_0", "--scales", "tile"),
}


def _compared(reference, native, windows, depths):
    """[{"steps", "kl", "same token"}]: reference's logits, [window][depth, L, V], beside this model's."""
    kl, same = [], []
    for ids, expected in zip(windows, reference):
        logits = native.logits(ids, steps=list(depths))
        kl.append(measures.divergence(expected, logits).mean(-1))
        same.append((expected.argmax(-1) == logits.argmax(-1)).mean(-1))
    return [{"steps": steps, "kl": measures.mean([one[k] for one in kl]), "same token": float(np.mean([one[k] for one in same]))}
            for k, steps in enumerate(depths)]


def _measured(ctx, model, depths, most):
    folder = ctx.work / "quantized"
    folder.mkdir(exist_ok=True)
    with ctx.open(model.path) as native:
        windows = spread(model, native, most, min(LENGTH, native.info.context))
        reference = [native.logits(ids, steps=list(depths)) for ids in windows]
        trained = native.info.trained[0]
        deepens = native.info.deepens
    types = {}
    for label, options in TYPES.items():
        out = folder / f"{model.name}.gguf"
        ctx.ask("quantize", model.path, out, *options, "--force")
        with ctx.open(out) as native:
            types[label] = {"bytes": out.stat().st_size, "rows": _compared(reference, native, windows, depths)}
        out.unlink()
    return {"trained": trained, "deepens": deepens, "bytes": model.path.stat().st_size, "types": types,
            "tokens": sum(len(ids) for ids in windows)}


def measure(ctx):
    found = {}
    for name, depths in DEPTHS.items():
        model, most = ctx.shipped(name), ctx.pick(WINDOWS[name], 2)
        found[name] = ctx.cached("quantized", [model.path, model.text or model.items], {"depths": depths, "windows": most},
                                 lambda: _measured(ctx, model, depths, most))
    return {"models": found}


# ---- The page -------------------------------------------------------------------------------------------------------------------

def growth(found):
    """{type: KL at the largest T over KL at the trained one}."""
    def at(rows, steps):
        return next(row["kl"]["value"] for row in rows if row["steps"] == steps)

    return {label: at(one["rows"], one["rows"][-1]["steps"]) / at(one["rows"], found["trained"]) for label, one in found["types"].items()}


def section(results):
    models = results["models"]
    grown = {name: growth(found) for name, found in models.items()}
    deep = {name: values for name, values in grown.items() if models[name]["deepens"]}
    layered = {name: values for name, values in grown.items() if not models[name]["deepens"]}
    medians = {name: float(np.median(list(values.values()))) for name, values in grown.items()}
    adds = all(min(values.values()) > 1 for values in deep.values())
    still = all(max(values.values()) < 2 for values in layered.values())
    last = {name: found["types"]["Q8_0"]["rows"][-1]["steps"] for name, found in models.items()}
    return Section(
        title="Errors of quantized weights add up with T",
        paper="The same weights are used at every step, so an error in them is made T times. We know of no measurement of it in either paper: "
              "what we ask is whether a descent corrects such errors, as one that comes to rest in the same minimum would, or adds them up.",
        found="KL divergence of a quantized model's next-token distribution to that of its F32 original, both at T. From the trained T to the "
              "largest " + joined(f"it grows {medians[name]:.1f} times in `{name}` (median of {len(grown[name])} types; "
                                  f"T = {found['trained']} to {last[name]})" for name, found in models.items()) +
              ". At the trained T " +
              joined(f"`{name}` has {_at_trained(found, 'Q8_0'):.2g} nats in Q8_0 and {_at_trained(found, 'Q4_0'):.2g} in Q4_0"
                     for name, found in models.items()) + ".",
        verdict=AGREES if adds else DISAGREES if all(max(values.values()) <= 1 for values in deep.values()) else IN_PART,
        why="In one block that is applied again and again every type drifts from the original as T grows past the trained one"
            + (", in a stack of layers that descend a few steps each hardly any does." if still and layered else ".") if adds else
            "Not every type drifts from the original as T grows.",
        tables=[Table(("type", "of F32", *(f"KL, T = {_label(found, row['steps'])}" for row in found["types"]["F16"]["rows"]),
                       "same token, trained T"),
                      [_row(found, label) for label in found["types"]],
                      f"`{name}`, {count(found['tokens'])} tokens") for name, found in models.items()],
        draw=lambda: _draw(results),
        alt="KL of each weight type to F32 against T, for three models",
        notes=[f"Pieces of {LENGTH} tokens from all over the held-out data, each begun anew; intervals in the picture resample them. Rows and "
               "tiles are where a type's scales lie (docs/quantize.md, which has losses and more types). An NRGPT's rate matrix stays at least "
               "Q8_0 in the types of 4 bits."])


def _at_trained(found, label):
    return next(row["kl"]["value"] for row in found["types"][label]["rows"] if row["steps"] == found["trained"])


def _label(found, steps):
    return str(steps) if found["deepens"] else steps_label(steps)


def _row(found, label):
    one = found["types"][label]
    same = next(row["same token"] for row in one["rows"] if row["steps"] == found["trained"])
    return (label, f"{one['bytes'] / found['bytes']:.2f}", *(f"{row['kl']['value']:.2g}" for row in one["rows"]), f"{same:.2%}")


def _draw(results):
    figure, axes = plot.panels(list(results["models"]), width=12, height=4.4)
    for axis, found in zip(axes, results["models"].values()):
        for which, (label, one) in enumerate(found["types"].items()):
            rows = one["rows"]
            plot.curve(axis, [row["steps"] for row in rows], [row["kl"]["value"] for row in rows], lows=[row["kl"]["low"] for row in rows],
                       highs=[row["kl"]["high"] for row in rows], label=label, which=which)
        plot.depths(axis, [row["steps"] for row in rows])
        axis.set_yscale("log")
    axes[0].set_ylabel("KL to F32, nats a token (95% intervals)")
    axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
