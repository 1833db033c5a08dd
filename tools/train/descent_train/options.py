"""train.py's options: what there are, and what they may be. A mistake ends the program with status 2 and names the option.

`arguments` gives a namespace; but for `NOT_SETTINGS` its values are the run's settings (loop.py), so an option is never
renamed and never changes its meaning. No torch in here: a wrong option is told at once.
"""
import argparse
import math

from . import depth

MODELS = ("nrgpt", "gpt", "gpt-rec-parallel", "cem", "llama", "cem-swiglu", "llama-cem")
NOT_SETTINGS = ("run", "threads", "device", "checkpoint_minutes")  # may differ each time a run is taken up
SHORTEST = 8  # tokens: the shortest windows there are


def _number(kind, least, most=math.inf, above=False):
    """A type for argparse: an int or float from `least` (or, where `above`, above it) to `most`."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (least < value if above else least <= value) or not value <= most or value == math.inf:
            what = {int: "a whole number", float: "a number"}[kind]
            low = f"{'above' if above else 'of at least'} {least}"
            high = f" and at most {most}" if most < math.inf else ""
            raise argparse.ArgumentTypeError(f"{text!r}; expected {what} {low}{high}")
        return value
    return read


_count = _number(int, 1)


def _model(p):
    m = p.add_argument_group("model")
    m.add_argument("--model", default="nrgpt", choices=MODELS,
                   help="cem-swiglu is CEM attention with Llama's MLP, llama-cem the reverse")
    m.add_argument("--width", type=_count, default=192, help="C")
    m.add_argument("--heads", type=_count, default=2)
    m.add_argument("--layers", type=_count, default=4, help="gpt and the layered families")
    m.add_argument("--hidden", type=_count,
                   help="width of the hidden layer (a multiple of C for nrgpt and gpt; 4 C if not given)")
    m.add_argument("--block", type=_number(int, SHORTEST), default=128, help="longest context, tokens")
    m.add_argument("--feed-forward", default="ff2w", choices=("ff1", "ff2", "ff2w"), help="nrgpt")
    m.add_argument("--mask", default="causal", choices=("causal", "strict"), help="nrgpt")
    m.add_argument("--norm", default="layernorm", choices=("layernorm", "rmsnorm"), help="nrgpt")
    m.add_argument("--rate", default="matrix", help="nrgpt: matrix, diag, or a number c for R = c, fixed")
    m.add_argument("--beta", type=_number(float, 0, above=True), default=1.0,
                   help="nrgpt: what attention's logits are multiplied by; below 1 it stays soft at a high Muon rate")
    m.add_argument("--diagonal", default="shared", choices=("none", "shared", "per_head"), help="cem")
    m.add_argument("--rank", type=_number(int, -1), default=8, help="cem: rank of the preconditioner, -1 for none")
    m.add_argument("--activation", default="silu", choices=("silu", "gelu"), help="cem")


def _depth(p):
    d = p.add_argument_group("depth")
    d.add_argument("--steps", type=_count, default=4, help="trained T (for cem of attention and MLP alike)")
    d.add_argument("--random-steps", type=_count, nargs=2, metavar=("LOW", "HIGH"),
                   help="draw T for each batch from LOW..HIGH; --steps is then what the model is served at")
    d.add_argument("--read", default="last", choices=("last", "all"),
                   help="all: the loss is read at every step up to T, step t weighing t / (1 + ... + T); "
                        "nrgpt and gpt-rec-parallel")
    d.add_argument("--validate-at", default="", metavar="T[,T...]",
                   help="T's validated at, e.g. 1,2,4,8, for cem also 2x1: attention's and the MLP's (the trained one if "
                        "not given)")


def _data(p):
    t = p.add_argument_group("data")
    t.add_argument("--text", help="a UTF-8 text file; its first 90%% of characters trains, the rest validates")
    t.add_argument("--listops", metavar="OPS", help="generated ListOps instead: operations, e.g. add_10,max_10,median_10; add_10:4 "
                   "is drawn four times as often for training lines")
    t.add_argument("--lines", type=_count, default=200000, help="ListOps: training lines")
    t.add_argument("--flat-lines", type=_number(float, 0, 1), default=0.0, help="ListOps: share of the training lines that nest nothing")
    t.add_argument("--vocab", default="chars",
                   help="chars, or bpe:N or unigram:N for a SentencePiece vocabulary made from the text")


def _optimization(p):
    o = p.add_argument_group("optimization")
    o.add_argument("--iterations", type=_count, default=2000)
    o.add_argument("--batch", type=_count, default=16, help="windows of --block tokens a batch")
    o.add_argument("--optimizer", default="muon", choices=("muon", "adamw"))
    o.add_argument("--lr", type=_number(float, 0), default=1e-3,
                   help="of AdamW, which also steps embeddings, head and vectors under Muon")
    o.add_argument("--muon-lr", type=_number(float, 0), default=0.01)
    o.add_argument("--decay", type=_number(float, 0), default=0.01, help="weight decay of matrices")
    o.add_argument("--dropout", type=_number(float, 0, 0.9), default=0.0,
                   help="share of the normalised state's numbers each sub-layer does without, the same ones at all its steps")
    o.add_argument("--warmup", type=_number(int, 0), default=100)
    o.add_argument("--clip", type=_number(float, 0, above=True), default=1.0, help="largest gradient norm")
    o.add_argument("--short-windows", type=_number(float, 0, 1), default=0.3,
                   help="share of the run on windows of a quarter, then half the block")
    o.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"), help="of the products")
    o.add_argument("--device", default="auto", help="auto, cpu, cuda")
    o.add_argument("--threads", type=_number(int, 0), default=0, help="0: all there are")
    o.add_argument("--seed", type=_number(int, 0, 2 ** 63 - 1), default=1)
    o.add_argument("--validate-every", type=_count, default=250)
    o.add_argument("--validate-windows", type=_count, default=64)
    o.add_argument("--checkpoint-minutes", type=_number(float, 0), default=2)


def _wrong(a):
    """What is wrong with options that are each in range, or None."""
    if bool(a.text) == bool(a.listops):
        return "expected one of --text FILE and --listops OPS"
    if a.random_steps and a.random_steps[0] > a.random_steps[1]:
        return "--random-steps {} {}: expected LOW <= HIGH".format(*a.random_steps)
    if a.random_steps and not depth.numbers(a.model):
        return f"--random-steps: {a.model} has no T"
    if a.read == "all" and a.model not in ("nrgpt", "gpt-rec-parallel"):
        return f"--read all needs states that do not depend on T; those of {a.model} do"
    if a.model in ("nrgpt", "gpt", "gpt-rec-parallel"):
        if (a.hidden or 0) % a.width:
            return f"--hidden {a.hidden} is no multiple of --width {a.width}"
        if a.model != "nrgpt" and a.heads > a.width:
            return f"--heads {a.heads} are more than --width {a.width}"
    elif a.width % (2 * a.heads):
        return f"--width {a.width} is not {a.heads} heads of an even width"
    if a.rate not in ("matrix", "diag"):
        try:
            fixed = float(a.rate)
        except ValueError:
            fixed = math.nan
        if not math.isfinite(fixed):
            return f"--rate is {a.rate!r}; expected matrix, diag or a number"
    kind, colon, size = a.vocab.partition(":")
    if a.text and a.vocab != "chars" and not (kind in ("bpe", "unigram") and size.isdecimal() and 0 < int(size) < 2 ** 31):
        return f"--vocab is {a.vocab!r}; expected chars, bpe:N or unigram:N"
    try:
        depth.several(a.validate_at, a)
    except ValueError as error:
        return f"--validate-at: {error}"
    return None


def arguments(argv):
    p = argparse.ArgumentParser(prog="train.py", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
                                description="Train NRGPT, CEM and their baselines. The same command again resumes its run.")
    p.add_argument("run", help="directory of the run")
    for group in (_model, _depth, _data, _optimization):
        group(p)
    a = p.parse_args(argv)
    wrong = _wrong(a)
    if wrong:
        p.error(wrong)
    return a


def settings(a):
    """What is the run's own: what it was started with is compared with this when it is taken up."""
    return {name: value for name, value in vars(a).items() if name not in NOT_SETTINGS}


def defaults():
    """Every option where it is not given; some say what a run must say for itself."""
    return vars(arguments(["run", "--text", "text"]))
