"""A family beside the transformers it is compared with, matched in parameters, in inference and in training multiply-adds: what
nrgpt_baselines.py and cem_baselines.py have in common.
"""
from . import families, plot, scaling
from .section import UNKNOWN, Section, Table, count, interval

EXPERIMENT = "families"
NAMES = {"nrgpt": "NRGPT", "gpt": "GPT", "gpt-rec-parallel": "GPT_Rec_parallel", "cem": "CEM", "llama": "Llama",
         "cem-swiglu": "CEM attention, SwiGLU", "llama-cem": "Llama attention, CEM MLP"}
MATCHES = {"parameters": "parameters", "inference": "inference multiply-adds a token", "training": "training multiply-adds"}


def measure(ctx, reference):
    """Groups of the reference's family: itself, and every baseline by what it is matched in."""
    runs = [run for run in ctx.science.of(EXPERIMENT) if run.entry["family"] == reference
            or (run.entry["matched"] or {}).get("reference", "").startswith(f"text-{reference}-")]
    found, own = [], None
    for name, of in families.groups(runs).items():
        curves = [families.measured(ctx, run, "validation", ctx.pick(24000, 2600), _depths(run)) for run in of]
        inputs = [families.at_trained(run, curve) for run, curve in zip(of, curves)]
        if of[0].entry["family"] == reference:
            own = (of, inputs)
        found.append({"name": name, **_facts(of[0]), "loss": families.loss(inputs), "curve": _curve(curves),
                      "less_reference": own and families.compared(of, inputs, *own)})
    return {"groups": found, "missing": [text for text in ctx.science.missing(EXPERIMENT) if _of(text, reference)]}


def _of(text, reference):
    """Whether a missing run, as models.Science.missing names it, is one of this reference's."""
    ours = ("nrgpt", "gpt") if reference == "nrgpt" else ("cem", "llama")
    return any(text.startswith(f"`text-{family}") for family in ours)


def _depths(run):
    """The trained T and others around it, both sub-layers alike."""
    if not run.has_steps:
        return None
    most = 8 if run.entry["family"] in ("nrgpt", "gpt-rec-parallel") else 4
    return ",".join([*(str(t) for t in (1, 2, 3, 4, 6, 8) if t <= most), run.entry["T"]])


def _facts(run):
    matched = run.entry["matched"]
    return {"family": run.entry["family"], "matched": matched and matched["in"], "off": matched and matched["off"], "T": run.entry["T"],
            **{key: run.entry[key] for key in ("parameters", "multiply_adds", "training_multiply_adds", "training_tokens")}}


def _curve(curves):
    """Mean over seeds at each T: steps, cost a token, loss with its interval."""
    rows = []
    for steps in curves[0]:
        inputs = [curve[steps] for curve in curves]
        cost = sum(sum(inputs[0][part]) for part in ("weights", "attention", "head")) / sum(inputs[0]["tokens"])
        rows.append({"steps": steps, "multiply_adds_a_token": cost, **families.loss(inputs)})
    return rows


def group(results, family, matched=None):
    return next((one for one in results["groups"] if one["family"] == family and one["matched"] == matched), None)


def section(results, reference, title, paper, judge):
    """judge(results) -> (found, verdict, why), asked where the reference and at least one baseline are there."""
    enough = group(results, reference) and len(results["groups"]) > 1
    found, verdict, why = judge(results) if enough else (
        "The runs that would tell are not trained yet.", UNKNOWN, "There is nothing to compare.")
    return Section(title=title, paper=paper, found=found, verdict=verdict, why=why, tables=_tables(results, reference) if enough else (),
                   draw=(lambda: _draw(results, reference)) if enough else None,
                   alt=f"loss against parameters, inference and training multiply-adds of {NAMES[reference]} and its baselines",
                   missing=results["missing"],
                   notes=["Trained by tools/train/baselines.py on tiny Shakespeare, everything else alike (each family's learning rate chosen for it), and "
                          "indexed in models/science. Losses are of the same held-out windows, the mean over the seeds; intervals resample windows, and "
                          "each seed's own figure stands beside them."] if enough else [])


def _tables(results, reference):
    own = group(results, reference)
    for matched, what in MATCHES.items():
        rows = [one for one in results["groups"] if one["matched"] == matched]
        if rows:
            yield Table(("model", "T", "parameters", "M multiply-adds a token", "training, T multiply-adds", "loss, nats a token", "95%", "seeds",
                         f"less {NAMES[reference]}'s", "95%, paired", "seeds"), [_row(one) for one in (own, *rows)], f"Matched in {what}")


def _row(one):
    loss, told = one["loss"], one["less_reference"] if one["matched"] else None
    shown = ("", "", "") if not told else (f"{told['value']:+.4f}", interval(told["low"], told["high"], "+.4f"), families.seeds_cell(told["seeds"], "+.3f"))
    return (NAMES[one["family"]], one["T"] if one["T"] != "none" else "", count(one["parameters"]), f"{one['multiply_adds'] / 1e6:.4f}",
            f"{one['training_multiply_adds'] / 1e12:.3f}", f"{loss['value']:.4f}", interval(loss["low"], loss["high"]), families.seeds_cell(loss["seeds"], ".3f"), *shown)


def _draw(results, reference):
    figure, axes = plot.panels([f"against {what}" for what in MATCHES.values()], width=13, height=4.4, share_y=True)
    kinds = list(dict.fromkeys(one["family"] for one in results["groups"]))
    for which, family in enumerate(kinds):
        of = [one for one in results["groups"] if one["family"] == family]
        label = NAMES[family]
        for one in of:
            told = one["loss"]
            for panel, x in zip(axes, (one["parameters"] / 1e3, one["multiply_adds"] / 1e6, one["training_multiply_adds"] / 1e12)):
                plot.curve(panel, [x], [told["value"]], [told["low"]], [told["high"]], label=label, which=which, line="")
            label = None
            if len(one["curve"]) > 1:
                axes[1].plot([row["multiply_adds_a_token"] / 1e6 for row in one["curve"]], [row["value"] for row in one["curve"]], "-",
                             color=plot.COLOURS[which], alpha=0.45, linewidth=1.2)
    values = [one["loss"]["value"] for one in results["groups"]]
    axes[0].set_ylim(min(values) - 0.1, max(values) + 0.15)
    for panel, label in zip(axes, ("parameters, thousands", "multiply-adds a token, millions (lines: T swept)", "multiply-adds of the training, 1e12")):
        plot.logarithmic(panel.xaxis)
        panel.set_xlabel(label)
    axes[0].set_ylabel("loss, nats a token (95%)")
    axes[0].legend(fontsize=8)
    return figure


def against(results, baseline, matched):
    """The reference's loss less a baseline's, as a dict with seeds; None where it is not there."""
    one = group(results, baseline, matched)
    told = one and one["less_reference"]
    if not told:
        return None
    return {"value": -told["value"], "low": -told["high"], "high": -told["low"], "seeds": [-value for value in told["seeds"]]}


def seeds(results, family):
    """How many seeds the reference has, in words."""
    number = len(group(results, family)["loss"]["seeds"])
    return f"{number} seed{'s' if number > 1 else ''}"


def said(told):
    return "not measured" if told is None else f"{told['value']:+.3f} ({interval(told['low'], told['high'], '+.3f')})"
