"""NRGPT's loss on Shakespeare against T."""
from . import plot
from .section import AGREES, DISAGREES, IN_PART, NRGPT, Section, Table, count, interval

SECONDS = 25
MODEL = "nrgpt-shakespeare"
DEPTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)


def measure(ctx):
    model = ctx.shipped(MODEL)
    text = ctx.head(model.text, ctx.pick(60000, 8000))
    told = ctx.run("scale", model.path, "--text", text, "-T", ",".join(map(str, DEPTHS)))
    return {"model": MODEL, "trained": told["trained"], "trained_over": model.trained_over,
            "rows": told["rows"], "predictions": told["rows"][0]["predictions"]}


def section(results):
    rows = results["rows"]
    best = min(rows, key=lambda row: row["loss"])
    first, last = rows[0], rows[-1]
    low, high = results["trained_over"]
    fell = first["loss"] - best["loss"]
    inside = low <= best["steps"] <= high
    climbs = last["intervals"]["loss"][0] > best["intervals"]["loss"][1]
    return Section(
        title="NRGPT's loss on Shakespeare falls with T",
        paper=f"{NRGPT} applies one block T times and reports that this works for the characters of Shakespeare about as well as a "
              "transformer does; the recursion is what takes the place of layers.",
        found=f"One model, `{MODEL}`, read at every T on {count(results['predictions'])} held-out characters. From T = 1 to "
              f"T = {best['steps']} the loss falls by {fell:.3f} nats, from {first['loss']:.3f} to {best['loss']:.3f}. Each training batch drew T from {low} to "
              f"{high}; past that every step makes it worse: {last['loss']:.3f} at T = {last['steps']}.",
        verdict=(AGREES if not climbs else IN_PART) if fell > 0 and inside else DISAGREES,
        why="Depth buys loss up to the depths a model was trained at"
            + (", and none beyond: T is no knob that more of is always better." if climbs else "."),
        tables=[Table(("T", "loss, nats a token", "95%", "less the trained T's", "95%, paired", "bits a byte", "energy", "r_t"),
                      [(str(row["steps"]), f"{row['loss']:.4f}", interval(*row["intervals"]["loss"]),
                        *_difference(row), f"{row['bits_per_byte']:.3f}", f"{row['energy']:.1f}", f"{row['relative_change']:.3f}")
                       for row in rows])],
        draw=lambda: _draw(results),
        alt=f"loss of {MODEL} against T: lowest at T = {best['steps']}, {best['loss']:.3f} nats a token")


def _difference(row):
    told = row["difference"]["loss"] if row.get("difference") else None
    return ("", "") if told is None else (f"{told['value']:+.4f}", interval(told["low"], told["high"], "+.4f"))


def _draw(results):
    figure, (axes,) = plot.panels([f"{results['model']}: what T buys"])
    rows = results["rows"]
    steps = [row["steps"] for row in rows]
    plot.trained(axes, *results["trained_over"])
    plot.curve(axes, steps, [row["loss"] for row in rows], lows=[row["intervals"]["loss"][0] for row in rows],
               highs=[row["intervals"]["loss"][1] for row in rows])
    plot.depths(axes, steps)
    axes.set_ylabel("loss, nats a token (95% intervals)")
    return figure
