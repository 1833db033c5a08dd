"""The command: which claims are measured, in which order, with what progress, and where page, pictures and numbers go.

docs/science/results.json keeps what every claim's `measure` returned; page and pictures follow from it alone (`written`).
"""
import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from . import CLAIMS, page, plot
from .context import ROOT, Context, ScienceError

VERSION = 1  # of results.json


def claim(name):
    return importlib.import_module(f"{__package__}.{name}")


# ---- Progress -------------------------------------------------------------------------------------------------------------

def _clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Progress:
    """A line on standard error for each measurement: the claim, how long it has taken, and about how long the rest will."""

    def __init__(self, expected):
        self.expected, self.began, self.name, self.done = expected, time.monotonic(), None, 0.0

    def begin(self, name):
        if self.name:
            self.done += self.expected[self.name]
        self.name = name
        self.say("")

    def say(self, text):
        taken = time.monotonic() - self.began
        # As much slower or faster as it has been than expected, once enough is done to tell.
        pace = taken / self.done if self.done > 20 else 1.0
        left = max(0.0, (sum(self.expected.values()) - self.done) * pace)
        print(f"[{_clock(taken)}, about {_clock(left)} left] {self.name}{': ' if text else ''}{text}", file=sys.stderr, flush=True)


# ---- Measuring and writing ------------------------------------------------------------------------------------------------

def machine():
    """The processor, in words."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{len(os.sched_getaffinity(0))} processors of {name}"


def measure(ctx, names, told, progress):
    """Puts the results of these claims into `told`, and when what they are from was measured: that may be a while ago (--work)."""
    for name in names:
        progress.begin(name)
        ctx.stamps, began = [ctx.stamp()], time.monotonic()
        results = json.loads(json.dumps(claim(name).measure(ctx), allow_nan=False))
        stamps = ctx.stamps[1:] or ctx.stamps  # a claim whose models are not there measures nothing
        told["results"][name] = results
        told["measured"][name] = {"from": min(one["at"] for one in stamps), "to": max(one["at"] for one in stamps),
                                  "load": max(one["load"] for one in stamps), "seconds": round(time.monotonic() - began, 1)}
    for part in ("results", "measured"):
        told[part] = {name: told[part][name] for name in CLAIMS if name in told[part]}


def written(told, out):
    """Writes the page, and the pictures beside it, from what results.json holds."""
    sections = {name: claim(name).section(told["results"][name]) for name in CLAIMS if name in told["results"]}
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    out.write_text(page.render(told, sections, folder.name), encoding="utf-8")
    for name, section in sections.items():
        for document, table in section.elsewhere:
            if not told["quick"] and (out.parent / document).is_file():
                page.put(out.parent / document, name, table)
    drawn = {name: section.draw for name, section in sections.items() if section.draw}
    for path in folder.glob("*.svg"):
        if path.stem not in drawn:  # of a section that says less than before
            path.unlink()
    for name, draw in drawn.items():
        plot.save(draw(), folder / f"{name}.svg")


def read(path):
    """results.json, or an empty one."""
    if not path.is_file():
        return {"descent_science": VERSION, "results": {}, "measured": {}}
    told = json.loads(path.read_text(encoding="utf-8"))
    if told.get("descent_science") != VERSION:
        raise ScienceError(f"{path} is not what this command writes: descent_science is {told.get('descent_science')}, expected {VERSION}")
    return told


def arguments(argv):
    parser = argparse.ArgumentParser(prog="science.py", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Measures the papers' claims on the models that ship, and writes docs/science.md.")
    parser.add_argument("--descent", type=Path, default=ROOT / "build/release/descent", metavar="PROGRAM",
                        help="build/release/descent by default; its library is looked for beside it")
    parser.add_argument("--models", type=Path, default=ROOT / "models", metavar="DIR", help="the models that ship, by default")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/science.md", metavar="PAGE",
                        help="docs/science.md by default; pictures and results.json go into a folder of its name")
    parser.add_argument("--only", action="append", choices=CLAIMS, metavar="NAME",
                        help=f"measure this claim alone, and keep the others' numbers; may be repeated: {', '.join(CLAIMS)}")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep measurements here, and use those that are: a second run is quick")
    parser.add_argument("--quick", action="store_true", help="little of everything, in minutes")
    parser.add_argument("--render", action="store_true", help="measure nothing: page and pictures again, from results.json")
    return parser.parse_args(argv)


def run(args):
    told = read(args.out.with_suffix("") / "results.json")
    if args.render:
        written(told, args.out)
        return
    names = [name for name in CLAIMS if not args.only or name in args.only]
    quick = {name: told["quick"] for name in told["results"] if name not in names}
    if any(was != args.quick for was in quick.values()):
        raise ScienceError("what is kept of the other claims was measured with" + ("out" if args.quick else "") + " --quick: measure all")
    with tempfile.TemporaryDirectory() as folder:
        progress = Progress({name: claim(name).SECONDS * (0.2 if args.quick else 1) for name in names})
        ctx = Context(args.descent, args.models, args.work or folder, args.quick, progress.say)
        told.update(quick=args.quick, version=ctx.version, machine=machine())
        if not args.only:
            told["results"], told["measured"] = {}, {}
        measure(ctx, names, told, progress)
    written(told, args.out)


def main(argv=None):
    try:
        run(arguments(argv))
    except ScienceError as error:
        sys.exit(f"science.py: {error}")
    except OSError as error:
        sys.exit(f"science.py: {error.filename}: {error.strerror}")
