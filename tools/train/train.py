#!/usr/bin/env python3
"""train.py: trains NRGPT, CEM and the models they are compared with, on a text or on ListOps.

    tools/train/train.py RUN --model nrgpt --text shakespeare.txt --width 192 --heads 2 --steps 4 --random-steps 1 8
    tools/train/train.py RUN ...            the same command again goes on where it was
    tools/convert.py RUN/model model.gguf

The run is a directory; when it ends RUN/model holds what tools/convert.py takes. docs/train.md tells the rest.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a waiting thread that spins takes the core from one that works


def arguments(argv):
    p = argparse.ArgumentParser(prog="train.py", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
                                description="Train NRGPT, CEM and their baselines. The same command again resumes its run.")
    p.add_argument("run", help="directory of the run")
    m = p.add_argument_group("model")
    m.add_argument("--model", default="nrgpt", choices=("nrgpt", "gpt", "gpt-rec-parallel", "cem", "llama", "cem-swiglu", "llama-cem"),
                   help="cem-swiglu is CEM attention with Llama's MLP, llama-cem the reverse")
    m.add_argument("--width", type=int, default=192, help="C")
    m.add_argument("--heads", type=int, default=2)
    m.add_argument("--layers", type=int, default=4, help="gpt and the layered families")
    m.add_argument("--hidden", type=int, help="width of the hidden layer (default 4 C; a multiple of C for nrgpt and gpt)")
    m.add_argument("--block", type=int, default=128, help="longest context, tokens")
    m.add_argument("--feed-forward", default="ff2w", choices=("ff1", "ff2", "ff2w"), help="nrgpt")
    m.add_argument("--mask", default="causal", choices=("causal", "strict"), help="nrgpt")
    m.add_argument("--norm", default="layernorm", choices=("layernorm", "rmsnorm"), help="nrgpt")
    m.add_argument("--rate", default="matrix", help="nrgpt: matrix, diag, or a number c for R = c, fixed")
    m.add_argument("--diagonal", default="shared", choices=("none", "shared", "per_head"), help="cem")
    m.add_argument("--rank", type=int, default=8, help="cem: rank of the preconditioner, -1 for none")
    m.add_argument("--activation", default="silu", choices=("silu", "gelu"), help="cem")
    d = p.add_argument_group("depth")
    d.add_argument("--steps", type=int, default=4, help="trained T (for cem of attention and MLP alike)")
    d.add_argument("--random-steps", type=int, nargs=2, metavar=("LOW", "HIGH"),
                   help="draw T for each batch from LOW..HIGH; --steps is then what the model is served at")
    d.add_argument("--read", default="last", choices=("last", "all"),
                   help="all: the loss is read at every step up to T, step t weighing t / (1 + ... + T); nrgpt and gpt-rec-parallel")
    d.add_argument("--validate-at", default="", help="T's validated at, e.g. 1,2,4,8 (default: the trained one)")
    t = p.add_argument_group("data")
    t.add_argument("--text", help="a UTF-8 text file; its first 90%% of characters trains, the rest validates")
    t.add_argument("--listops", metavar="OPS", help="generated ListOps instead: operations, e.g. add_10,max_10,median_10")
    t.add_argument("--lines", type=int, default=200000, help="ListOps: training lines")
    t.add_argument("--vocab", default="chars", help="chars, or bpe:N or unigram:N for a SentencePiece vocabulary made from the text")
    o = p.add_argument_group("optimization")
    o.add_argument("--iterations", type=int, default=2000)
    o.add_argument("--batch", type=int, default=16, help="windows of --block tokens a batch")
    o.add_argument("--optimizer", default="muon", choices=("muon", "adamw"))
    o.add_argument("--lr", type=float, default=1e-3, help="of AdamW, which also steps embeddings, head and vectors under Muon")
    o.add_argument("--muon-lr", type=float, default=0.01)
    o.add_argument("--decay", type=float, default=0.01, help="weight decay of matrices")
    o.add_argument("--warmup", type=int, default=100)
    o.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    o.add_argument("--short-windows", type=float, default=0.3, help="share of the run on windows of a quarter, then half the block")
    o.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"), help="of the products")
    o.add_argument("--device", default="auto", help="auto, cpu, cuda")
    o.add_argument("--threads", type=int, default=0, help="0: all there are")
    o.add_argument("--seed", type=int, default=1)
    o.add_argument("--validate-every", type=int, default=250)
    o.add_argument("--validate-windows", type=int, default=64)
    o.add_argument("--checkpoint-minutes", type=float, default=2)
    return p.parse_args(argv)


def report(figures):
    """What the finished model is, in a few lines: card.py writes the whole of it."""
    for row in figures["swept"]["rows"]:
        what, value = ("loss", row["loss"]) if "loss" in row else ("exact match", row["exact_match"])
        print(f"T = {row['T']}: {what} {value:.4f} ({row['low']:.4f} to {row['high']:.4f})", file=sys.stderr)
    for row in figures.get("ngram", {"rows": []})["rows"]:
        print(f"{row['order']}-gram table: loss {row['loss']:.4f}", file=sys.stderr)
    if "context_kl" in figures:
        print(f"KL where the context is scrambled: {figures['context_kl']['mean']:.4f} nats", file=sys.stderr)
    print(f"attention entropy {figures['attention_entropy']['median']:.3f} nats of {figures['attention_entropy']['uniform']:.3f}; "
          f"|x(1) - x(0)| / |x(0)| {figures['relative_update']['median']:.3f}", file=sys.stderr)


def main(argv=None):
    a = arguments(argv)
    try:
        import torch
    except ImportError:
        sys.exit("train.py: PyTorch is missing; Debian's python3-torch is enough, or pip install torch")
    from descent_train import data as data_module, finished, listops
    from descent_train.build import build_model, products_type
    from descent_train.loop import Depths, Run
    if a.threads:
        torch.set_num_threads(a.threads)
    device = a.device if a.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        os.makedirs(a.run, exist_ok=True)
        data, items = finished.open_data(a, a.run)
        if items is not None:
            listops.write_items(items, os.path.join(a.run, "eval.tsv"))
        model = build_model(a, data.vocab.size, device, products_type(a.dtype, device))
        layered = model.config["model_type"] == "cem"
        trained = (a.steps, a.steps) if layered else a.steps
        depths = Depths(trained, *(a.random_steps or (None, None)))
        at = [int(t) for t in a.validate_at.split(",") if t] or [a.steps]
        options = {**vars(a), "validate_at": [(t, t) if layered else t for t in at]}
        run = Run(a.run, model, data, depths, options)
        settings = {k: v for k, v in vars(a).items() if k not in ("run", "threads", "device", "checkpoint_minutes")}
        run.open(settings)
        print(f"{model.count():,} parameters, {len(data.train):,} training tokens, {data.vocab.size:,} in the vocabulary; "
              f"products in {str(model.dtype).split('.')[1]} on {device}", file=sys.stderr)
        run.train()
        print(run.export())
        found = finished.Finished(a.run, device)
        measured = found.swept([found.depth(str(t)) for t in at])
        run.log(figures=measured)
        report(measured)
    except data_module.DataError as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
