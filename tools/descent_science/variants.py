"""CEM's diagonal (none, shared, per head) and preconditioner (none, diagonal, diagonal and low rank)."""
from . import families, plot
from .section import AGREES, CEM, DISAGREES, IN_PART, UNKNOWN, Section, Table, count, interval

SECONDS = 30
EXPERIMENT = "cem-variants"
REFERENCE = "text-cem"
DIAGONALS = {"text-cem-diagonal-none": "none", "text-cem": "shared", "text-cem-diagonal-per-head": "per head"}
PRECONDITIONERS = {"text-cem-preconditioner-none": "none", "text-cem-preconditioner-diagonal": "diagonal", "text-cem": "diagonal and rank 8"}


def measure(ctx):
    of = families.groups(ctx.science.of(EXPERIMENT))
    inputs = {name: [families.at_trained(run, families.measured(ctx, run, "validation", ctx.pick(60000, 2600))) for run in runs]
              for name, runs in of.items()}
    found = {}
    for name, runs in of.items():
        found[name] = {"T": runs[0].entry["T"], "parameters": runs[0].entry["parameters"], "multiply_adds": runs[0].entry["multiply_adds"],
                       "seeds": [run.entry["seed"] for run in runs], "loss": families.loss(inputs[name])}
        if REFERENCE in of and name != REFERENCE:
            found[name]["less_reference"] = families.compared(runs, inputs[name], of[REFERENCE], inputs[REFERENCE])
    return {"variants": found, "missing": ctx.science.missing(EXPERIMENT)}


def section(results):
    variants = results["variants"]
    worse = {name: _worse(variants.get(name)) for name in ("text-cem-diagonal-none", "text-cem-preconditioner-none")}
    known = {name: state for name, state in worse.items() if state is not None}
    helps = [name for name, state in known.items() if state]
    verdict = UNKNOWN if len(known) < len(worse) else AGREES if len(helps) == 2 else IN_PART if helps else DISAGREES
    words = {"text-cem-diagonal-none": "the diagonal", "text-cem-preconditioner-none": "the preconditioner"}
    found = ("Tiny CEMs that differ in this alone, beside one with a shared diagonal and a preconditioner of rank 8: "
             + "; ".join(f"without {words[name]} the loss is {_said(variants[name]['less_reference'])}" for name in known)
             + "." + _more(variants)) if known else "The runs that would tell are not trained yet."
    return Section(
        title="Diagonal interactions and preconditioners improve CEM",
        paper=f"{CEM} offers interactions that are a diagonal and a low-rank part, and preconditioners that are light, as what its view of a layer suggests; an "
              "earlier version of the paper reports that both improve language models, and a public summary of this one that recursive steps do so more consistently "
              "than preconditioners.",
        found=found, verdict=verdict,
        why="Not everything is trained that would tell." if verdict == UNKNOWN else
            " ".join(f"{words[name].capitalize()} {'lowers the loss' + _seeds(variants[name]) + '.' if state else 'does not clearly lower the loss.'}" for name, state in known.items()),
        tables=[_table(variants, names, title) for names, title in ((DIAGONALS, "diagonal"), (PRECONDITIONERS, "preconditioner")) if len(_there(variants, names)) > 1],
        draw=(lambda: _draw(variants)) if len(variants) > 1 else None,
        alt="loss of tiny CEMs by diagonal and by preconditioner, each seed beside their mean", missing=results["missing"])


def _worse(variant):
    """Whether leaving it out raises the loss, in the interval and in every seed; None where it is not measured."""
    told = variant and variant.get("less_reference")
    return families.sure(told, 1) if told else None


def _seeds(variant):
    """In how many seeds, for a sentence."""
    number = len(variant["less_reference"]["seeds"])
    return " (of one seed)" if number == 1 else f" in each of {number} seeds"


def _said(told):
    return f"{told['value']:+.4f} ({interval(told['low'], told['high'], '+.4f')}{'; seeds ' + families.seeds_cell(told['seeds'], '+.3f') if len(told['seeds']) > 1 else ''})"


def _more(variants):
    rest = {"text-cem-diagonal-per-head": "a diagonal for each head", "text-cem-preconditioner-diagonal": "a diagonal preconditioner alone"}
    return "".join(f" With {words} it is {_said(variants[name]['less_reference'])}." for name, words in rest.items()
                   if variants.get(name, {}).get("less_reference"))


def _there(variants, names):
    return [name for name in names if name in variants]


def _table(variants, names, title):
    rows = []
    for name in _there(variants, names):
        one, told = variants[name], variants[name].get("less_reference")
        rows.append((names[name], count(one["parameters"]), f"{one['multiply_adds'] / 1e6:.4f}", f"{one['loss']['value']:.4f}",
                     interval(one["loss"]["low"], one["loss"]["high"]), families.seeds_cell(one["loss"]["seeds"], ".3f"),
                     *((f"{told['value']:+.4f}", interval(told["low"], told["high"], "+.4f")) if told else ("", ""))))
    return Table((title, "parameters", "M multiply-adds a token", "loss, nats a token", "95%", "seeds", "less the reference's", "95%, paired"), rows,
                 f"By {title}, T = {variants[_there(variants, names)[0]]['T']}")


def _draw(variants):
    figure, axes = plot.panels(["diagonal", "preconditioner"], width=9, share_y=True)
    for panel, names in zip(axes, (DIAGONALS, PRECONDITIONERS)):
        there = _there(variants, names)
        told = [variants[name]["loss"] for name in there]
        places = list(range(len(there)))
        plot.curve(panel, places, [t["value"] for t in told], [t["low"] for t in told], [t["high"] for t in told], line="", label="mean over seeds (95%)")
        for place, one in zip(places, told):
            panel.plot([place + 0.12] * len(one["seeds"]), one["seeds"], "x", color=plot.COLOURS[1], markersize=5,
                       label="each seed" if place == 0 else None)
        panel.set_xticks(places, [names[name] for name in there])
        panel.set_xlim(-0.5, len(names) - 0.5)
    axes[0].set_ylabel("loss, nats a token")
    axes[0].legend()
    return figure
