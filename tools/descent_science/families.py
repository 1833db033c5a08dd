"""Trained models of models/science on the same held-out windows: seeds together, each beside its reference.

A group is the runs that differ in their seed alone. Its loss in a window is the mean over its seeds, so that intervals, which resample
windows, are of that mean; differences are paired by window and by seed. Every seed's own value stands beside them, for what
training again may change.
"""
from . import scaling
from .models import intervals
from .section import pair


def measured(ctx, run, what, characters, steps=None):
    """Context.scale of a run on the beginning of its `validation` or `training` text, by T (by default the trained one)."""
    options = ["-T", steps or run.entry["T"]] if run.has_steps else []
    return ctx.scale(run.path, "--text", ctx.head(run.texts[what], characters), *options)["inputs"]


def at_trained(run, inputs):
    """Those at the trained T, which the index has as 2x2 where the engine writes 2."""
    if not run.has_steps:
        return next(iter(inputs.values()))
    return next(one for steps, one in inputs.items() if pair(steps) == pair(run.entry["T"]))


def groups(runs):
    """{name without its seed: [runs]}, those of the same seeds in the same order."""
    found = {}
    for run in runs:
        found.setdefault(run.name.removesuffix(f"-{run.entry['seed']}"), []).append(run)
    return found


def together(inputs):
    """The mean over seeds of what several runs gave in each window."""
    return {"nats": [sum(nats) / len(inputs) for nats in zip(*(one["nats"] for one in inputs))], "predictions": inputs[0]["predictions"]}


def loss(inputs):
    """{"value", "low", "high"} of the seeds' mean, and the seeds' own."""
    mean = together(inputs)
    low, high = intervals.bootstrap(mean["nats"], mean["predictions"])
    return {"value": sum(mean["nats"]) / sum(mean["predictions"]), "low": low, "high": high,
            "seeds": [sum(one["nats"]) / sum(one["predictions"]) for one in inputs]}


def compared(runs, inputs, reference_runs, reference_inputs):
    """A group's loss less its reference's, over the seeds that both have: None where there is none."""
    seeds = {run.entry["seed"]: one for run, one in zip(reference_runs, reference_inputs)}
    both = [(one, seeds[run.entry["seed"]]) for run, one in zip(runs, inputs) if run.entry["seed"] in seeds]
    if not both:
        return None
    ours, theirs = zip(*both)
    return {**scaling.difference(together(ours), together(theirs)),
            "seeds": [scaling.difference(a, b)["value"] for a, b in both]}


def seeds_cell(values, form=".4f"):
    """Every seed's value, for a cell."""
    return ", ".join(f"{value:{form}}" for value in values)


def sure(difference, sign):
    """Whether a difference has this sign in its interval and in every seed."""
    return difference is not None and all(sign * one > 0 for one in (difference["low"], difference["high"], *difference["seeds"]))
