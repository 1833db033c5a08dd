"""T against samples: a majority vote of n texts at T beside one text at the T that costs as many multiply-adds."""
import numpy as np

from . import measures, plot, served
from .choose import majority
from .section import AGREES, CEM, DISAGREES, IN_PART, NRGPT, UNKNOWN, Section, Table, count, interval

SECONDS = 60
MODELS = ("nrgpt-listops", "nrgpt-listops-30k", "nrgpt-listops-scalar")
VOTED = (1, 2, 3, 5)  # T of the texts that vote
COUNTS = (1, 2, 4, 8)
ALONE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24)  # T of the one greedy text
TEMPERATURE = 1.0
SEED = 2


def once_and_each(model, prompt_tokens, candidate_tokens, steps):
    """Multiply-adds of a question: (its prompt, which the samples share, [what each sample takes beside it]). A text's last token is
    chosen and never descended; the prompt's last is where the first is read."""
    before = prompt_tokens - 1
    shared = sum(model.multiply_adds(before, 0, steps).values()) if before else 0
    return shared, [sum(model.multiply_adds(before + tokens, tokens, steps).values()) - shared for tokens in candidate_tokens]


def votes(candidates, answer, counts):
    """{n: how likely the majority of the first n texts is right}; of two that differ one at random."""
    return {n: majority(candidates[:n], answer) for n in counts}


def matched(cost, costs):
    """The largest T of {T: multiply-adds} that takes no more than `cost`; None where all take more."""
    return max((steps for steps, own in costs.items() if own <= cost), default=None)


def _asked(server, model, native, prompts, answers, steps, n, temperature):
    """Per item: (votes right by n, multiply-adds by n)."""
    told = server.candidates(f"{model.name}@{steps}", prompts, n, "vote", temperature, SEED)
    counts = [count_ for count_ in COUNTS if count_ <= n]
    right, cost = {k: [] for k in counts}, {k: [] for k in counts}
    for prompt, one, answer in zip(prompts, told, answers):
        shared, each = once_and_each(native, len(native.encode(prompt)), [c["tokens"] for c in one["candidates"]], steps)
        for k, value in votes(one["candidates"], answer, counts).items():
            right[k].append(value)
            cost[k].append(shared + sum(each[:k]))
    return {k: (np.array(right[k]), float(np.mean(cost[k]))) for k in counts}


def _row(found, **settings):
    right, cost = found
    return {**settings, "accuracy": measures.mean(right), "multiply_adds": cost}


def _measured(ctx, model, items):
    prompts, answers = served.questions(model.items, items)
    rows, pairs = [], []
    with served.Server(ctx, [model.path]) as server, ctx.open(model.path) as native:
        def ask(steps, n, temperature):
            return _asked(server, model, native, prompts, answers, steps, n, temperature)

        voted = {steps: ask(steps, COUNTS[-1], TEMPERATURE) for steps in VOTED}
        alone = {steps: ask(steps, 1, 0)[1] for steps in ALONE}
        for steps, by_count in voted.items():
            rows += [_row(found, steps=steps, n=n, greedy=False) for n, found in by_count.items()]
        rows += [_row(found, steps=steps, n=1, greedy=True) for steps, found in alone.items()]
        for steps, by_count in voted.items():
            for n in COUNTS[1:]:
                right, cost = by_count[n]
                deep = matched(cost, {t: own for t, (_, own) in alone.items()})
                if deep is not None:
                    other, other_cost = alone[deep]
                    pairs.append({"steps": steps, "n": n, "vote": measures.mean(right), "vote_cost": cost, "deep_steps": deep,
                                  "deep": measures.mean(other), "deep_cost": other_cost, "difference": measures.mean(right - other)})
    return {"items": len(prompts), "trained": native.info.trained[0], "rows": rows, "pairs": pairs}


def measure(ctx):
    items = ctx.pick(300, 24)
    found = {}
    for name in MODELS:
        model = ctx.shipped(name)
        found[name] = ctx.cached("votes", [model.path, model.items], {"items": items}, lambda: _measured(ctx, model, items))
    return {"models": found}


# ---- The page -------------------------------------------------------------------------------------------------------------------

def _counted(results, trained):
    """(pairs, of them depth surely better, the vote surely better): of votes at the trained T, or of those at a smaller one."""
    pairs = [pair for found in results["models"].values() for pair in found["pairs"] if (pair["steps"] == found["trained"]) == trained]
    return len(pairs), sum(p["difference"]["high"] < 0 for p in pairs), sum(p["difference"]["low"] > 0 for p in pairs)


def section(results):
    below, deep_below, vote_below = _counted(results, False)
    at, deep_at, vote_at = _counted(results, True)
    best = {name: max((row for row in found["rows"]), key=lambda row: (row["accuracy"]["value"], -row["multiply_adds"]))
            for name, found in results["models"].items()}
    items = next(iter(results["models"].values()))["items"]
    rows = [(name, str(p["steps"]), str(p["n"]), f"{p['vote']['value']:.3f}", f"{p['vote_cost'] / 1e6:.1f}", str(p["deep_steps"]),
             f"{p['deep']['value']:.3f}", f"{p['deep_cost'] / 1e6:.1f}", f"{p['difference']['value']:+.3f}",
             interval(p["difference"]["low"], p["difference"]["high"], "+.3f"))
            for name, found in results["models"].items() for p in found["pairs"]]
    steps_win = deep_below > vote_below
    return Section(
        title="Steps are a better use of multiply-adds than samples",
        paper=f"{NRGPT} and {CEM} spend more computation on a token by more steps. The other way to spend it is to sample more texts and let "
              "them vote.",
        found=f"{count(items)} held-out questions of ListOps. A majority vote of n texts at T beside one greedy text at T', the "
              f"deepest that takes no more multiply-adds. Where those who vote have fewer steps than in training, depth is surely better in "
              f"{deep_below} of {below} pairs and the vote in {vote_below}; where they have as many, depth is surely better in {deep_at} of {at} "
              f"and the vote in {vote_at}. "
              + " ".join(f"The best of `{name}` here is {row['accuracy']['value']:.3f}, by {_way(row)}." for name, row in best.items()),
        verdict=UNKNOWN if deep_below == vote_below == 0 else DISAGREES if not steps_win else IN_PART if vote_at else AGREES,
        why="Below the trained T multiply-adds are better spent on steps than on samples" +
            (f"; at the trained T, where more steps lead past it, votes are surely better in {vote_at} pairs of {at} and steps in {deep_at}." if vote_at else ".")
            if steps_win else
            "Votes are worth as much as steps even below the trained T.",
        tables=[Table(("model", "T", "n", "vote of n at T", "M mul-adds", "T'", "one at T'", "M mul-adds", "vote less one", "95%, paired"),
                      rows)],
        draw=lambda: _draw(results),
        alt="exact match against multiply-adds a question: votes of 1 to 8 texts at several T, and one greedy text at every T",
        notes=[f"Texts that vote are sampled at temperature {TEMPERATURE:g}; of equally frequent answers one is drawn at random. Multiply-adds are "
               "counted for the tokens that were run and the heads that were read, a question's prompt once for all its samples."])


def _way(row):
    return f"one greedy text at T = {row['steps']}" if row["greedy"] else f"a vote of {row['n']} at T = {row['steps']}" if row["n"] > 1 else \
        f"one sampled text at T = {row['steps']}"


def _draw(results):
    figure, axes = plot.panels(list(results["models"]), width=11, height=4.2, share_y=True)
    for axis, found in zip(axes, results["models"].values()):
        lines = [(f"vote at T = {steps}", [r for r in found["rows"] if not r["greedy"] and r["steps"] == steps]) for steps in VOTED]
        lines.append((f"one greedy text, T {ALONE[0]} to {ALONE[-1]}", [r for r in found["rows"] if r["greedy"]]))
        for which, (label, rows) in enumerate(lines):
            told = [row["accuracy"] for row in rows]
            plot.curve(axis, [row["multiply_adds"] / 1e6 for row in rows], [one["value"] for one in told], label=label,
                       lows=[one["low"] for one in told], highs=[one["high"] for one in told], which=which,
                       line="--" if label.startswith("one") else "-")
        costs = [row["multiply_adds"] / 1e6 for row in found["rows"]]
        marks = [mark for power in range(-3, 7) for mark in (10.0 ** power, 2 * 10.0 ** power, 5 * 10.0 ** power)
                 if min(costs) * 0.9 < mark < max(costs) * 1.1]
        axis.set_xscale("log")
        axis.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axis.minorticks_off()
        axis.set_xlabel("multiply-adds a question, millions")
    axes[0].set_ylabel("exact match (95% intervals)")
    axes[0].legend(loc="lower right", fontsize=8)
    return figure
