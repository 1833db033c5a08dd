#!/usr/bin/env python3
"""card.py: measures a finished run and writes its card, with drawings, figures and validation text, where models lie.

    tools/train/card.py RUN --name nrgpt-verse --summary "An NRGPT that ..." --trained-on "..." --licence "public domain" \\
        --at 1,2,4,8 --fixed runs/verse-1 runs/verse-2 runs/verse-4 --to models

Status 1 where the model must not ship: it loses to the 5-gram table, or does not depend on its context. docs/train.md tells
what each figure is.
"""
import argparse
import math
import os
import shlex
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch
except ImportError:
    sys.exit("card.py: PyTorch is missing; Debian's python3-torch is enough, or pip install torch")
from descent_train import build, card, data as data_module, depth, figures, finished, listops, options  # noqa: E402

_HIDDEN = ("text", "validate_every", "validate_at", "validate_windows")  # told otherwise, or without effect on the model


def arguments(argv):
    p = argparse.ArgumentParser(prog="card.py", description="Measure a finished run and write its card.")
    p.add_argument("run", help="directory of the run")
    p.add_argument("--name", required=True, help="of the model: NAME.md, NAME.gguf")
    p.add_argument("--summary", required=True, help="the card's first paragraph")
    p.add_argument("--trained-on", required=True, help="what text, which part of it")
    p.add_argument("--licence", required=True, help="of the text")
    p.add_argument("--at", default="", metavar="T[,T...]",
                   help="every T to read the model at: 1,2,4, or for cem 1,2,2x1 (the trained one if not given)")
    p.add_argument("--fixed", nargs="*", default=[], metavar="RUN", help="runs like it, trained at one T each")
    p.add_argument("--to", default=".", help="directory to write to; the validation text goes into data/ there")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=0, help="0: all there are")
    return p.parse_args(argv)


def facts(run, a):
    """The table at the top of the card, from the run's own settings."""
    c, o = run.model.config, run.options
    if c["model_type"] == "cem":
        kind = f"`cem`: {c['attn']} attention, {c['mlp']} MLP"
        shape = f"{c['n_layer']} layers, width {c['n_embd']}, {c['n_head']} heads, MLP {c['n_ff']}, context {c['block_size']}"
        if "cem" in (c["attn"], c["mlp"]):
            kind += f", diagonal {c['attn_diag']}, preconditioner of rank {c['precond_rank']}, {c['mlp_act']}"
    elif c["model_type"] == "nrgpt":
        mask = "strict" if c.get("tril_plus_one") else "causal"
        kind = f"`nrgpt`: {o.feed_forward.upper()}, {mask} mask, {o.norm}, rate {o.rate}"
        shape = f"width {c['n_embed']}, {c['n_head']} heads, context {c['block_size']}"
    else:
        blocks = "one block for every step" if run.model.recursive else f"{c['n_layer']} blocks"
        kind = f"`{c['model_type']}`, a baseline of NRGPT's paper: {blocks}"
        shape = f"width {c['n_embed']}, {c['n_head']} heads, context {c['block_size']}"
    count = run.model.count() + sum(tensor.numel() for tensor in run.model.frozen().values())  # as the engine counts them
    vocab = {"chars": "the {} characters of its text", "words": "{} words, joined by commas",
             "pieces": "{:,} SentencePiece pieces with byte fallback"}[run.data.vocab.kind].format(run.data.vocab.size)
    drawn = "; each training batch drew T from {} to {}".format(*o.random_steps) if o.random_steps else ""
    return {"family, variant": kind, "size": f"{count:,} parameters, {4 * count / 1e6:.1f} MB in F32: {shape}",
            "vocabulary": vocab, "trained on": a.trained_on, "licence of the text": a.licence,
            "depth": "no T" if run.trained is None else f"trained T {depth.label(run.trained)}{drawn}"}


def command(run, name):
    """The command that made a run: its options where they are not the defaults."""
    defaults = options.defaults()
    words = ["python3", "tools/train/train.py", f"runs/{name}"]
    if run.options.text:
        words += ["--text", os.path.basename(run.options.text)]
    for key, value in vars(run.options).items():
        if key in defaults and value != defaults[key] and key not in _HIDDEN:
            words += ["--" + key.replace("_", "-"), *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return shlex.join(words)


def measured(a, run):
    """The figures of the run."""
    depths = depth.several(a.at, run.options)
    made = {"name": a.name, "summary": a.summary, "facts": facts(run, a), **run.swept(depths)}
    others = [finished.Finished(path, a.device) for path in a.fixed]
    if others:
        made["fixed"] = finished.fixed({other.trained: other for other in others})
    steps = [] if run.trained is None else ["--steps", ",".join(map(depth.label, depths))]
    if run.items is None:
        data, option = f"models/data/{a.name}.val.txt", "--file"
        made["measured_on"] = (f"Measured on `{data}`, the rest of the text: {len(run.data.val) - 1:,} predictions in "
                               f"{math.ceil((len(run.data.val) - 1) / run.options.block):,} windows of {run.options.block}.")
    else:
        data, option = f"models/data/{a.name}.eval.tsv", "--match"
        made["measured_on"] = (f"Measured on `{data}`: {len(run.items):,} different expressions, none of them among the "
                               "training lines. A greedy continuation of at most 60 tokens is right when the token before its `<eos>` "
                               "is the value.")
    made["commands"] = {"measure": shlex.join(["descent", "eval", f"models/{a.name}.gguf", option, data, *steps]),
                        "train": [command(run, a.name)] + [command(other, f"{a.name}-{depth.label(other.trained)}")
                                                           for other in others]}
    return made


def write_data(a, run):
    os.makedirs(os.path.join(a.to, "data"), exist_ok=True)
    if run.items is None:
        data_module.save_validation(run.data, os.path.join(a.to, "data", a.name + ".val.txt"))
    else:
        listops.write_items(run.items, os.path.join(a.to, "data", a.name + ".eval.tsv"))


def main(argv=None):
    a = arguments(argv)
    if a.threads > 0:
        torch.set_num_threads(a.threads)
    try:
        a.device = build.find_device(a.device)
        run = finished.Finished(a.run, a.device)
        made = measured(a, run)
        write_data(a, run)
        figures.write(made, os.path.join(a.to, "data", a.name + ".figures.json"))
        paths = card.write(made, a.to)
    except (OSError, ValueError) as error:
        sys.exit(f"card.py: {error}")
    print("\n".join(paths))
    reasons = figures.reasons_not_to_ship(made)
    for reason in reasons:
        print(f"card.py: {a.name} does not ship: {reason}", file=sys.stderr)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
