"""Counted multiply-adds of a step: NRGPT, and the recurrent transformer it is compared with."""
import subprocess
import sys

from . import plot
from .context import ROOT, ScienceError
from .section import AGREES, NRGPT, UNKNOWN, Section, Table, count

SECONDS = 25
CONTEXT = 1024
CONTEXTS = (1, 64, 256, 1024)
# The paper's own sizes, which generate_model.py knows by name, and the same shapes small. Counting needs a shape, no training.
PAPER = {"NRGPT, FF2W": "nrgpt-90m", "GPT_Rec_parallel": "gpt-rec-85m", "GPT, a layer": "gpt2"}
SMALL = {"NRGPT, FF2W": "nrgpt", "NRGPT, FF1": "nrgpt --variant ff1", "GPT_Rec_parallel": "gpt-rec-parallel", "GPT, a layer": "gpt"}
SMALL_SHAPE = ("--tokenizer", "none", "--width", "64", "--heads", "4", "--hidden", "256", "--vocab", "256", "--context", str(CONTEXT))


def measure(ctx):
    small = {name: _counted(ctx, shape.split(), SMALL_SHAPE) for name, shape in SMALL.items()}
    paper = {} if ctx.quick else {name: _counted(ctx, [shape], ("--type", "q4_0", "--tokenizer", "none")) for name, shape in PAPER.items()}
    return {"small": small, "paper": paper}


def _counted(ctx, shape, options):
    """Parameters, and the multiply-adds a token of one step (of GPT: one layer) at each context, by what they are for."""
    what, *flags = shape
    made = ctx.work / "shapes" / f"{'-'.join(shape).replace('--', '')}.gguf"
    program = ROOT / "tools/generate_model.py"
    if not made.is_file():
        ctx.say(f"generate_model.py {what}")
        made.parent.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, program, what, made, *flags, *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ScienceError(f"generate_model.py {what}: {done.stderr.strip()}")
    return ctx.cached("multiply-adds", [made], [CONTEXTS], lambda: _steps(ctx, made))


def _steps(ctx, path):
    with ctx.open(path) as model:
        info, by_context = model.info, {}
        for context in CONTEXTS:
            if info.trained[0]:
                of = {t: model.multiply_adds(context, 0, (t,) * len(info.kinds)) for t in (1, 2)}
                one = {part: of[2][part] - of[1][part] for part in ("weights", "attention")}
            else:
                of = model.multiply_adds(context, 0)
                one = {part: of[part] / info.layers for part in ("weights", "attention")}
            by_context[str(context)] = {part: value / context for part, value in one.items()}
        return {"parameters": info.parameters, "variant": info.variant, "width": info.width, "contexts": by_context}


def _total(model, context=CONTEXT):
    return sum(model["contexts"][str(context)].values())


def section(results):
    sizes = {"paper": results["paper"], "small": results["small"]}
    told = results["paper"] or results["small"]
    ours, theirs = told["NRGPT, FF2W"], told["GPT_Rec_parallel"]
    ratio, dense = _total(ours) / _total(theirs), _total(ours, 1) / _total(theirs, 1)
    return Section(
        title="A step of NRGPT costs one to two times a transformer's",
        paper=f"{NRGPT} has fewer parameters than a transformer of its width and pays for it in operations: a public summary of the paper puts them at about one "
              "to two times the transformer's. How they are counted there we do not know.",
        found="Counted by shape, nothing trained: what one more step of a token takes, at width "
              f"{ours['width']} and {count(ours['parameters'])} parameters beside GPT_Rec_parallel's {count(theirs['parameters'])}. The matrices of NRGPT's step take "
              f"{dense:.2f} times GPT_Rec_parallel's: each head's H is C x C and used twice, as H^T g and H u, and each matrix of the feed-forward both ways, "
              f"since the gradient passes back through it. Attention compares g of full width in every head, so that its part grows with the context H times as fast: "
              f"at {CONTEXT} tokens (their mean context half that) a step is {ratio:.2f} times GPT_Rec_parallel's.",
        verdict=AGREES if ratio <= 2 else UNKNOWN,
        why=f"The matrices alone take {dense:.2f} times, with attention over {CONTEXT} tokens {ratio:.2f} times what a transformer's step takes" +
            ("." if ratio <= 2 else "; that is above one to two times, but without the paper's way of counting the two cannot be set beside one another."),
        tables=[_table(told_, title) for told_, title in ((sizes["paper"], f"The paper's sizes, {CONTEXT} tokens"), (sizes["small"], f"Small ones of one width, {CONTEXT} tokens"))
                if told_],
        draw=lambda: _draw(results),
        alt="counted multiply-adds a token of one step against the tokens of the text, for NRGPT, GPT_Rec_parallel and a layer of GPT",
        notes=["The engine counts what it computes: q_h = H_h^T g and u_h = sum p g are formed for each head, and H_h u_h added up."])


def _table(told, title):
    base = _total(told["GPT_Rec_parallel"])
    return Table(("one step of", "parameters", "matrices, M multiply-adds", "attention, M", "together, M", "by GPT_Rec_parallel's"),
                 [(name, count(m["parameters"]), *(f"{m['contexts'][str(CONTEXT)][part] / 1e6:.4g}" for part in ("weights", "attention")),
                   f"{_total(m) / 1e6:.4g}", f"{_total(m) / base:.2f}") for name, m in told.items()], title)


def _draw(results):
    told = {"at the paper's size" if results["paper"] else "": results["paper"], "small": results["small"]}
    told = {size: models for size, models in told.items() if models}
    figure, axes = plot.panels([f"multiply-adds of one step, {size}" for size in told], width=5.5 * len(told))
    for one, models in zip(axes, told.values()):
        for which, (name, model) in enumerate(models.items()):
            plot.curve(one, CONTEXTS, [_total(model, context) / 1e6 for context in CONTEXTS], label=name, which=which, line="--" if name == "GPT, a layer" else "-")  # as much as GPT_Rec_parallel's
        one.set_xscale("log", base=2)
        one.set_xticks(CONTEXTS, CONTEXTS)
        one.minorticks_off()
        plot.logarithmic(one.yaxis)
        one.set_xlabel("tokens of the text (a token sees half of them on average)")
        one.set_ylabel("multiply-adds a token, millions (counted)")
        one.legend()
    return figure
