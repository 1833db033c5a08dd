"""NRGPT's loss on Shakespeare against T."""
from . import plot, scaling
from .section import AGREES, DISAGREES, IN_PART, NRGPT, Section, Table, count

SECONDS = 20
MODEL = "nrgpt-shakespeare"
DEPTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


def measure(ctx):
    model = ctx.shipped(MODEL)
    text = ctx.head(model.text, ctx.pick(60000, 6000))
    told = ctx.run("scale", model.path, "--text", text, "-T", ",".join(map(str, DEPTHS)))
    return {"model": MODEL, "trained": told["trained"], "trained_over": model.trained_over,
            "rows": scaling.kept(told, "loss", "bits_per_byte", "accuracy", "energy", "relative_change")}


def section(results):
    rows = results["rows"]
    best, first, last = min(rows, key=lambda row: row["loss"]), rows[0], rows[-1]
    low, high = results["trained_over"]
    falls = best["intervals"]["loss"][1] < first["intervals"]["loss"][0] and best["steps"] <= high
    climbs = last["intervals"]["loss"][0] > best["intervals"]["loss"][1]
    return Section(
        title="NRGPT's loss on Shakespeare falls as the block is applied more often",
        paper=f"{NRGPT} replaces a transformer's layers by one block that is applied T times, and says that this does well on the characters of "
              "Shakespeare. Its models are trained at one T and read there.",
        found=f"One model, `{results['model']}`, read at every T on the first {count(first['predictions'])} held-out characters. From T = 1 to T = {best['steps']} "
              f"the loss falls by {first['loss'] - best['loss']:.3f} nats, from {first['loss']:.3f} to {best['loss']:.3f}. Each training batch drew T "
              f"from {low} to {high}; " + (f"past that it rises again, to {last['loss']:.3f} at T = {last['steps']}, while r_t goes on "
                                           "falling: the states settle, but somewhere else." if climbs else "past that it stays about there."),
        verdict=DISAGREES if not falls else IN_PART if climbs else AGREES,
        why="Depth buys loss " + ("up to the depths that a model was trained at" if falls else "nowhere clearly here")
            + (" and costs it beyond: more T is not always better." if climbs else "."),
        tables=[Table(("T", "loss, nats a token", "95%", "less the trained T's", "95%, paired", "bits a byte", "likeliest token right",
                       "energy", "r_t"),
                      [(str(row["steps"]), *scaling.cells(row, "loss"), *scaling.difference_cells(row, "loss"), f"{row['bits_per_byte']:.3f}",
                        f"{row['accuracy']:.3f}", f"{row['energy']:.1f}", f"{row['relative_change']:.3f}") for row in rows])],
        draw=lambda: _draw(results),
        alt=f"loss of {results['model']} against T: lowest at T = {best['steps']} with {best['loss']:.3f} nats a token")


def _draw(results):
    figure, (axes,) = plot.panels([f"{results['model']}: loss against T"])
    steps = [row["steps"] for row in results["rows"]]
    plot.trained(axes, *results["trained_over"])
    plot.curve(axes, steps, *scaling.series(results["rows"], "loss"))
    plot.depths(axes, steps)
    axes.set_ylabel("loss, nats a token (95%)")
    return figure
