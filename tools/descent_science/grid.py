"""CEM: where attention's steps go and where the MLP's do."""
from . import plot, scaling
from .section import AGREES, CEM, DISAGREES, Section, Table, count, interval, pair, steps_label

SECONDS = 60
MODEL = "cem-kjv"
MOST = 4


def measure(ctx):
    model = ctx.shipped(MODEL)
    text = ctx.head(model.text, ctx.pick(24000, 2000))
    told = ctx.run("scale", model.path, "--text", text, "-T", f"1-{MOST}x1-{MOST}")
    return {"model": MODEL, "trained": told["trained"], "trained_over": model.trained_over, "rows": scaling.kept(told, "loss", "relative_change")}


def section(results):
    cells = {pair(row["steps"]): row for row in results["rows"]}
    first, both, best = cells[1, 1], cells[2, 2], min(cells.values(), key=lambda row: row["loss"])
    one_sided = {"attention": cells[2, 1], "MLP": cells[1, 2]}
    gain = first["difference"]["loss"]  # of 1x1 above the trained 2x2
    helps = gain["low"] > 0
    climbs = cells[MOST, MOST]["difference"]["loss"]["low"] > 0
    return Section(
        title="CEM's recursion inside a layer helps",
        paper=f"{CEM} takes several gradient steps within a layer, of attention and of the MLP, and reports that such recursive updates improve language "
              "models of about 1e8 parameters.",
        found=f"`{results['model']}`, whose training batches drew both numbers from {results['trained_over'][0]} to {results['trained_over'][1]}, read at every pair up to {MOST} x {MOST} "
              f"on {count(first['predictions'])} held-out tokens. A second step in both sub-layers takes {gain['value']:.4f} nats off "
              f"({interval(gain['low'], gain['high'])}). Of the MLP alone it leaves {one_sided['MLP']['difference']['loss']['value']:+.4f} above 2x2, of attention alone "
              f"{one_sided['attention']['difference']['loss']['value']:+.4f}. The lowest loss is at "
              f"{steps_label(best['steps'])}, and {MOST}x{MOST} is {cells[MOST, MOST]['difference']['loss']['value']:+.4f} above 2x2.",
        verdict=AGREES if helps else DISAGREES,
        why=(f"A second step helps this model; a third and a fourth {'cost' if climbs else 'add nothing'}." if helps
             else "A second step does not help this model."),
        tables=[_table(results["rows"])],
        draw=lambda: _draw(results),
        alt=f"loss of {results['model']} for attention's T by the MLP's T, lowest at {steps_label(best['steps'])}")


def _table(rows):
    by_pair = {pair(row["steps"]): row for row in rows}
    trained = next(row for row in rows if scaling.difference_cells(row, "loss") == ("", ""))
    lines = []
    for a in range(1, MOST + 1):
        cells = []
        for m in range(1, MOST + 1):
            row = by_pair[a, m]
            told = row["difference"]["loss"]
            cells.append(f"**{row['loss']:.4f}**" if row is trained else f"{told['value']:+.4f} ({interval(told['low'], told['high'], '+.4f')})")
        lines.append((str(a), *cells))
    return Table(("attention's T", *(f"MLP's T = {m}" for m in range(1, MOST + 1))), lines,
                 "Loss in nats a token at the trained T (bold), elsewhere the difference to it with its paired 95% interval")


def _draw(results):
    figure, (left, right) = plot.panels([f"{results['model']}: loss above that at {steps_label(results['trained'])}", "along three ways"], width=10)
    cells = {pair(row["steps"]): row for row in results["rows"]}
    sides = range(1, MOST + 1)
    image = left.imshow([[cells[a, m]["difference"]["loss"]["value"] for m in sides] for a in sides], cmap="viridis_r", origin="lower")
    most = max(row["difference"]["loss"]["value"] for row in cells.values())
    for a in sides:
        for m in sides:
            value = cells[a, m]["difference"]["loss"]["value"]
            left.text(m - 1, a - 1, f"{value:+.3f}", ha="center", va="center", fontsize=8, color="white" if value > most / 2 else "black")
    left.set_xticks(range(MOST), sides)
    left.set_yticks(range(MOST), sides)
    left.set_xlabel("T of the MLP, steps")
    left.set_ylabel("T of attention, steps")
    left.grid(False)
    figure.colorbar(image, label="nats a token")
    ways = {"both": [(t, t) for t in sides], "attention alone": [(t, 1) for t in sides], "MLP alone": [(1, t) for t in sides]}
    for which, (label, pairs) in enumerate(ways.items()):
        told = [cells[pair]["difference"]["loss"] for pair in pairs]
        plot.curve(right, list(sides), [d["value"] for d in told], [d["low"] for d in told], [d["high"] for d in told], label=label, which=which)
    right.axhline(0, color="#666666", linewidth=0.8)
    right.set_xticks(list(sides))
    right.set_xlabel("T, steps (alone: the other sub-layer at 1)")
    right.set_ylabel("loss above the trained T's, nats a token (95%)")
    right.legend()
    return figure
