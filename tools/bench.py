"""The whole benchmark: paper-sized models with random weights made, peers built, everything measured in one run, one JSON.

    python3 tools/bench.py --work FOLDER > bench.json
    python3 tools/plot_bench.py bench.json --svg docs/bench.svg --readme README.md

The folder, outside the repository, keeps what takes long to make: models and llama.cpp's build. With them there a run takes some
minutes on two cores, which must have nothing else to do. Figures that are compared come in turns, so that a change of the
machine's pace hits both. docs/bench.md tells what is measured.
"""
import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import bench_targets  # noqa: E402
from peers import llama, llama_models  # noqa: E402

# What a generated model is called here: (shape of generate_model.py, its changes).
MADE = {"nrgpt-90m": ("nrgpt-90m", []), "nrgpt-128m": ("nrgpt-128m", []),
        "cem-llama160m-tied": ("cem-llama160m", ["--head", "tied", "--steps", "1x1"])}
# The types each is measured in; "f16" is as generated, the others are made of it by `descent quantize`.
TYPES = {"nrgpt-90m": ("f16", "q8_0", "q6_k", "q4_k", "q4_0"), "nrgpt-128m": ("f16", "q8_0"), "cem-llama160m-tied": ("f16", "q8_0")}
DEPTHS = (1, 2, 4, 8, 12, 16, 24, 32)
CONTEXTS = (64, 512, 1024)


class Run:
    """Where everything lies, and how programs are started."""

    def __init__(self, args):
        self.descent, self.work, self.threads, self.quick = args.descent, args.work, args.threads, args.quick
        self.torch_python = args.torch_python

    def model(self, name, kind):
        return self.work / f"{name}-{kind}.gguf"

    def say(self, what):
        print(what, file=sys.stderr, flush=True)

    def bench(self, model, *options):
        """What `descent bench --json` prints of a file."""
        self.say(f"descent bench {pathlib.Path(model).name} {' '.join(options)}")
        done = subprocess.run([self.descent, "bench", model, "-t", str(self.threads), "--page-type", "f16", "--json", *options],
                              check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def llama(self, name, kind, **how):
        self.say(f"llama-bench {name}-{kind} {how}")
        return llama.time(self.work, self.model(name, kind), self.threads, **how)


def recipe(kind):
    """What decides how `descent quantize` writes a file of that type."""
    sources = b"".join((ROOT / "engine" / name).read_bytes() for name in ("quantize.c", "blocks.c", "blocks_k.c"))
    return f"--type {kind.upper()}, by sources {hashlib.sha256(sources).hexdigest()}\n"


def is_made(made, kind):
    """Whether the file is there and, unless it was generated, as the program now would write it."""
    note = made.with_suffix(".recipe")
    return made.is_file() and (kind == "f16" or (note.is_file() and note.read_text() == recipe(kind)))


def prepare(run):
    """Makes what is not there yet, or was quantized in another way."""
    run.work.mkdir(parents=True, exist_ok=True)
    for name, types in TYPES.items():
        shape, changes = MADE[name]
        for kind in types:
            made = run.model(name, kind)
            if is_made(made, kind):
                continue
            run.say(f"making {made.name}")
            command = ([sys.executable, ROOT / "tools" / "generate_model.py", shape, made, "--type", kind, "--tokenizer", "none", *changes]
                       if kind == "f16" else
                       [run.descent, "quantize", run.model(name, "f16"), made, "--type", kind.upper(), "--force"])
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if kind != "f16":
                made.with_suffix(".recipe").write_text(recipe(kind))
    for name in llama_models.MODELS:
        for kind in llama_models.TYPES:
            made = run.model(name, kind)
            if not made.is_file():
                run.say(f"making {made.name}")
                llama_models.write(name, kind, str(made))
    run.say("llama.cpp, built unless it is there")
    llama.build(run.work)


def _decoded(told):
    """Tokens/s of the one decode line."""
    return next(line for line in told["lines"] if line["what"] == "decode")["tokens_per_second"]["median"]


def pairs(run):
    """Ours and theirs, in turns: [{"ours", "theirs", "type", "ours_rates", "their_rates", "ratio"}]."""
    told = []
    context = "80"  # the mean of what llama-bench's 32 tokens after 64 see
    one = ("--only", "decode", "--contexts", context, "--batches", "1", "--repeats", "3" if run.quick else "7")
    for ours, theirs, kind in (("nrgpt-90m", "gpt2-124m", "q8_0"), ("cem-llama160m-tied", "llama-160m", "q8_0"),
                               ("nrgpt-90m", "gpt2-124m", "f16"), ("cem-llama160m-tied", "llama-160m", "f16")):
        mine, other = [], []
        for _ in range(1 if run.quick else 3):
            mine.append(_decoded(run.bench(run.model(ours, kind), *one)))
            other.append(run.llama(theirs, kind, generated=32, depths=(64,), repeats=3)[0]["tokens_per_second"]["median"])
        told.append({"ours": ours, "theirs": theirs, "type": kind, "ours_rates": mine, "their_rates": other,
                     "ratio": statistics.median(a / b for a, b in zip(mine, other))})
    return told


def ours(run):
    """{name: what descent bench says}, the names those of the files without .gguf."""
    contexts = ",".join(map(str, CONTEXTS[:1] if run.quick else CONTEXTS))
    quick = ("--quick",) if run.quick else ()
    told = {"nrgpt-90m-q8_0": run.bench(run.model("nrgpt-90m", "q8_0"), *quick)}
    for name in ("nrgpt-128m", "cem-llama160m-tied"):
        told[f"{name}-q8_0"] = run.bench(run.model(name, "q8_0"), "--only", "prefill,decode,memory", "--batches", "1,16",
                                         "--contexts", contexts, "--repeats", "3", *quick)
    for kind in TYPES["nrgpt-90m"]:
        if kind != "q8_0":
            told[f"nrgpt-90m-{kind}"] = run.bench(run.model("nrgpt-90m", kind), "--only", "prefill,decode,memory", "--batches",
                                                  "1,16", "--contexts", contexts.rsplit(",", 1)[0], "--repeats", "3", *quick)
    for name in bench_targets.SHIPPED:
        told[name] = run.bench(ROOT / "models" / f"{name}.gguf", "--only", "sweep,deepening,latency,decode,drafts", "--batches", "1",
                               "--contexts", "64", *quick)
    return told


def products(run):
    """Products by themselves; no model's, but there has to be one."""
    return run.bench(ROOT / "models" / f"{bench_targets.SHIPPED[0]}.gguf", "--only", "products", *(("--quick",) if run.quick else ()))["products"]


def depths(run):
    """Tokens/s of NRGPT-90M in Q8_0 at context 64, by T."""
    return {steps: _decoded(run.bench(run.model("nrgpt-90m", "q8_0"), "-T", str(steps), "--only", "decode", "--contexts", "64",
                                      "--batches", "1", "--repeats", "5")) for steps in (DEPTHS[:2] if run.quick else DEPTHS)}


def theirs(run):
    """{name: what llama-bench says}; the longest context leaves room for the tokens it adds."""
    told = {}
    for name in llama_models.MODELS:
        for kind in llama_models.TYPES:
            full = kind == "q8_0" and not run.quick
            told[f"{name}-{kind}"] = run.llama(name, kind, prompts=(64, 512, 1000) if full else (64,), generated=24,
                                               depths=(64, 512, 1000) if full else (64,), repeats=3)
    return told


def plain(run):
    """The plain PyTorch implementation; None where there is no torch."""
    run.say("plain PyTorch")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "OMP_", "GOMP_"))}
    done = subprocess.run([run.torch_python, ROOT / "tools" / "peers" / "plain_nrgpt.py", "--tokens", "512", "-t", str(run.threads),
                           "-r", "1" if run.quick else "2"], capture_output=True, text=True, env=environment)
    if done.returncode:
        run.say(f"plain PyTorch is left out: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'it failed'}")
        return None
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, metavar="FOLDER", help="keeps models and llama.cpp's build")
    parser.add_argument("--descent", type=pathlib.Path, default=ROOT / "build" / "release" / "descent", metavar="PROGRAM",
                        help="the program to measure (build/release/descent)")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--torch-python", default="python3", metavar="PROGRAM", help="a Python that has torch (python3)")
    parser.add_argument("--prepare", action="store_true", help="make what takes long, measure nothing")
    parser.add_argument("--quick", action="store_true", help="few repetitions and contexts: to see that it works")
    args = parser.parse_args()
    if not args.descent.is_file():
        parser.error(f"{args.descent} is not there: build it first, or name it with --descent")
    run = Run(args)
    try:
        prepare(run)
        if args.prepare:
            return
        told = {"threads": args.threads, "pairs": pairs(run), "ours": ours(run), "products": products(run), "depths": depths(run),
                "theirs": theirs(run), "plain": plain(run)}
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench.py: {error}\n{error.stderr or ''}".rstrip())
    told["targets"] = bench_targets.judge(told)
    json.dump(told, sys.stdout, indent=1)
    print()
    for target in told["targets"]:
        run.say(bench_targets.line(target))


if __name__ == "__main__":
    main()
