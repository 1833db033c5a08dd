#!/usr/bin/env python3
"""train.py: trains NRGPT, CEM and the models they are compared with, on a text or on ListOps.

    tools/train/train.py RUN --model nrgpt --text shakespeare.txt --width 192 --heads 2 --steps 4 --random-steps 1 8
    tools/train/train.py RUN ...            the same command again goes on where it was
    tools/convert.py RUN/model model.gguf

The run is a directory; when it ends RUN/model holds what tools/convert.py takes. docs/train.md tells the rest.
Status 0: finished; 2: a wrong option; 1: anything else that stopped it, an interruption included.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a waiting thread that spins takes the core from one that works
from descent_train.options import arguments, settings  # noqa: E402


def report(figures):
    """What the finished model is, in a few lines: card.py writes the whole of it."""
    for row in figures["swept"]["rows"]:
        what, value = ("loss", row["loss"]) if "loss" in row else ("exact match", row["exact_match"])
        at = "" if row["T"] == "none" else f"T = {row['T']}: "
        print(f"{at}{what} {value:.4f} ({row['low']:.4f} to {row['high']:.4f})", file=sys.stderr)
    for row in figures.get("ngram", {"rows": []})["rows"]:
        print(f"{row['order']}-gram table: loss {row['loss']:.4f}", file=sys.stderr)
    if "context_kl" in figures:
        print(f"KL where the context is scrambled: {figures['context_kl']['mean']:.4f} nats", file=sys.stderr)
    entropy, moved = figures["attention_entropy"], figures["relative_update"]
    print(f"attention entropy {entropy['median']:.3f} nats of {entropy['uniform']:.3f}; "
          f"|x(1) - x(0)| / |x(0)| {moved['median']:.3f}", file=sys.stderr)


def train(a):
    """The whole of a run: data, training, the finished model's files and its figures."""
    from descent_train import depth, finished, listops
    from descent_train.build import build_model, find_device, products_type
    from descent_train.loop import Depths, Run
    device = find_device(a.device)
    os.makedirs(a.run, exist_ok=True)
    data, items = finished.open_data(a, a.run)
    if items is not None:
        listops.write_items(items, os.path.join(a.run, "eval.tsv"))
    model = build_model(a, data.vocab.size, device, products_type(a.dtype, device))
    at = depth.several(a.validate_at, a)
    run = Run(a.run, model, data, Depths(depth.trained(a), *(a.random_steps or ())), {**vars(a), "validate_at": at})
    run.open(settings(a))
    print(f"{model.count():,} parameters, {len(data.train):,} training tokens, {data.vocab.size:,} in the vocabulary; "
          f"products in {str(model.dtype).split('.')[1]} on {device}", file=sys.stderr)
    run.train()
    print(run.export())
    figures = finished.Finished(a.run, device).swept(at)
    run.log(figures=figures)
    report(figures)


def main(argv=None):
    a = arguments(argv)
    try:
        import torch
    except ImportError:
        sys.exit("train.py: PyTorch is missing; Debian's python3-torch is enough, or pip install torch")
    from descent_train.data import DataError
    from descent_train.loop import Stopped
    if a.threads:
        torch.set_num_threads(a.threads)
    try:
        train(a)
    except (DataError, OSError) as error:
        sys.exit(f"train.py: {error}")
    except (KeyboardInterrupt, Stopped) as error:
        sys.exit(f"train.py: {error or 'interrupted'}; the same command again goes on from the last checkpoint")


if __name__ == "__main__":
    main()
