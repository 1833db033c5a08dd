"""Models trained at one T, each read at it, beside one model trained at many, swept."""
from . import families, plot
from .section import AGREES, DISAGREES, IN_PART, NRGPT, UNKNOWN, Section, Table, count, interval

SECONDS = 40
EXPERIMENT = "depths"
FIXED = {1: "text-nrgpt-at-1", 2: "text-nrgpt-at-2", 4: "text-nrgpt", 8: "text-nrgpt-at-8"}
MANY = "text-nrgpt-at-many"
CARDS = ("nrgpt-shakespeare", "nrgpt-listops", "cem-kjv")
WORSE = 0.02  # of the loss: what one model for every T may cost


def measure(ctx):
    of = families.groups([*ctx.science.of(EXPERIMENT), *(run for run in ctx.science.of("families") if run.name.startswith(f"{FIXED[4]}-"))])
    characters = ctx.pick(60000, 2600)
    found = {"fixed": {}, "many": {}, "parameters": None, "trained_over": None, "missing": ctx.science.missing(EXPERIMENT),
             "cards": {name: _card(ctx.shipped(name).figures) for name in CARDS}}
    swept = {}
    if MANY in of:
        curves = [families.measured(ctx, run, "validation", characters, ",".join(map(str, FIXED))) for run in of[MANY]]
        swept = {t: [curve[str(t)] for curve in curves] for t in FIXED}
        found["many"] = {str(t): families.loss(inputs) for t, inputs in swept.items()}
        found |= {"parameters": of[MANY][0].entry["parameters"], "trained_over": of[MANY][0].entry["trained_steps"]}
    for t, name in FIXED.items():
        if name in of:
            inputs = [families.at_trained(run, families.measured(ctx, run, "validation", characters)) for run in of[name]]
            found["fixed"][str(t)] = {"loss": families.loss(inputs),
                                      "many_less_fixed": families.compared(of[MANY], swept[t], of[name], inputs) if swept else None}
    return found


def _card(figures):
    """{T: {quantity: value}} of one model swept and of models of one T, as the model's card has them, and how they were trained."""
    if not figures.get("fixed"):
        return None
    quantity = "loss" if "loss" in figures["swept"]["rows"][0] else "exact_match"
    return {"quantity": quantity, "commands": figures["commands"]["train"],
            **{kind: {row["T"]: {"value": row[quantity], "low": row["low"], "high": row["high"]} for row in figures[kind]["rows"]}
               for kind in ("swept", "fixed")}}


def section(results):
    both = {t: one for t, one in results["fixed"].items() if one["many_less_fixed"]}
    cost = {t: one["many_less_fixed"]["value"] for t, one in both.items()}
    deep = {t: value for t, value in cost.items() if int(t) > 1}
    bound = max((WORSE * one["loss"]["value"] for one in both.values()), default=0)
    verdict = (UNKNOWN if len(both) < 3 else AGREES if max(cost.values()) <= bound else IN_PART if max(deep.values()) <= bound else DISAGREES)
    return Section(
        title="One model trained at many T does what models trained at one T each do",
        paper=f"{NRGPT} trains at one T and reads there. That one set of weights may serve any T, each as well as a model made for it, is this server's "
              "premise and not the paper's: it is checked here.",
        found=_found(results, both) if both else "The runs that would tell, of equal length, are not trained yet; what the cards of the models that ship have is below, "
              "of models that were not trained alike.",
        verdict=verdict,
        why={UNKNOWN: "Too few runs of equal length are there.", AGREES: f"At every T the one model is within {WORSE:.0%} of the model made for that T.",
             IN_PART: f"From T = 2 on the one model is within {WORSE:.0%} of the models made for one T; at T = 1 it is not.",
             DISAGREES: f"The one model is more than {WORSE:.0%} above models made for one T, not at T = 1 alone."}[verdict],
        tables=[*_tables(results, both), *(_card_table(name, card) for name, card in results["cards"].items() if card)],
        draw=(lambda: _draw(results)) if both or any(results["cards"].values()) else None, alt="loss against T of models trained at one T each and of one model trained at many",
        missing=results["missing"],
        notes=["The figures of cards are those of models/data/*.figures.json, measured by the trainer. There the models of one T had between a sixth and two fifths of the "
               "batches that the swept one had: they say what depth buys a model made for it, and cannot be set against the swept one."])


def _found(results, both):
    low, high = results["trained_over"]
    told = "; ".join(f"T = {t}: {_said(one['many_less_fixed'])}" for t, one in both.items())
    return (f"NRGPTs of {count(results['parameters'])} parameters, trained alike and as long, at one T or with T drawn from {low} to {high} for each batch, seeds together. "
            f"Loss of the one model less that of the model made for the T it is read at, in nats a token: {told}.")


def _said(told):
    return f"{told['value']:+.3f} ({interval(told['low'], told['high'], '+.3f')})"


def _tables(results, both):
    if not results["fixed"] and not results["many"]:
        return
    rows = []
    for t in map(str, FIXED):
        fixed, many = results["fixed"].get(t), results["many"].get(t)
        cells = [cell for one in (fixed and fixed["loss"], many) for cell in
                 ((f"{one['value']:.4f}", interval(one["low"], one["high"]), families.seeds_cell(one["seeds"], ".3f")) if one else ("", "", ""))]
        told = both[t]["many_less_fixed"] if t in both else None
        rows.append((t, *cells, *((f"{told['value']:+.4f}", interval(told["low"], told["high"], "+.4f"), families.seeds_cell(told["seeds"], "+.3f")) if told
                                  else ("", "", ""))))
    yield Table(("T", "trained at this T: loss", "95%", "seeds", "trained at many: loss", "95%", "seeds", "less the other's", "95%, paired", "seeds"), rows,
                "Trained alike and as long, loss in nats a token")


def _card_table(name, card):
    words = {"loss": "loss, nats a token", "exact_match": "exact match"}[card["quantity"]]
    steps = [t for t in card["swept"] if t in card["fixed"]]
    return Table(("T", f"a model of this T: {words}", "95%", f"one model swept: {words}", "95%"),
                 [(t, *(cell for kind in ("fixed", "swept") for cell in (f"{card[kind][t]['value']:.4f}", interval(card[kind][t]["low"], card[kind][t]["high"]))))
                  for t in steps], f"`{name}`, from its card: trained for different lengths")


def _draw(results):
    cards = {name: card for name, card in results["cards"].items() if card}
    alike = bool(results["fixed"] and results["many"])
    figure, axes = plot.panels((["trained alike and as long"] if alike else []) + [f"{name} (not as long)" for name in cards],
                               width=3.4 * (len(cards) + alike), height=3.6)
    kinds = {"fixed": "a model for each T", "swept": "one model, T swept"}
    panels = list(axes)
    if alike:
        panel = panels.pop(0)
        plot.trained(panel, *results["trained_over"])
        for which, told in enumerate(({t: one["loss"] for t, one in results["fixed"].items()}, results["many"])):
            plot.curve(panel, [int(t) for t in told], *([one[side] for one in told.values()] for side in ("value", "low", "high")),
                       label=list(kinds.values())[which], which=which, line="-" if which else "")
        plot.depths(panel, list(FIXED))
        panel.set_ylabel("loss, nats a token (95%)")
        panel.legend(fontsize=8)
    for panel, card in zip(panels, cards.values()):
        for which, kind in enumerate(kinds):
            told = {int(t.split("x")[0]): one for t, one in card[kind].items() if len(set(t.split("x"))) == 1}
            plot.curve(panel, list(told), *([one[side] for one in told.values()] for side in ("value", "low", "high")), label=kinds[kind], which=which,
                       line="-" if which else "")
        plot.depths(panel, [int(t.split("x")[0]) for t in card["swept"] if len(set(t.split("x"))) == 1])
        panel.set_ylabel({"loss": "loss, nats a token (95%)", "exact_match": "exact match (95%)"}[card["quantity"]])
        panel.legend(fontsize=8)
    return figure
