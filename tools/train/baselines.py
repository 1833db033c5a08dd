#!/usr/bin/env python3
"""baselines.py: trains the models that docs/science.md compares, and keeps them with one index in models/science.

    tools/train/baselines.py --text tinyshakespeare.txt     trains what models/science lacks, what says most first
    tools/train/baselines.py                                goes on where that was broken off
    tools/train/baselines.py --list                         every run, what it takes, what there is of it
    tools/train/baselines.py --only 'listops-*-1'           some of them

Each run is one of train.py, in a directory of its own under --runs; a finished one is converted to GGUF (F16), measured by
the engine, and put into models/science/index.json at once, so that the index is right at any moment and may lack any run.
The plan is descent_train/plan.py; docs/train.md says how runs are matched. Status 0: all that was asked for is in the index;
2: a wrong option; 1: anything else, an interruption included.

models/science/index.json, format 1:

    format, experiments {name: what is compared}, runs: a list, in the order of the plan, of
      name, file            the run, its model (beside the index)
      family                as train.py --model: nrgpt gpt gpt-rec-parallel cem llama cem-swiglu llama-cem
      experiments           those it belongs to: families, listops-sizes, cem-variants, gap, depths
      seed                  of weights and batches; of ListOps also of lines and test items
      matched               null, or {reference: a run, in: parameters | inference | training, off: its share above it}
      options, shape        train.py's words; {width heads hidden block [layers diagonal rank]}
      T, trained_steps      the trained T as the engine writes it (4, 2x2, none); null, or [low, high] that batches drew T from
      parameters, weights, file_bytes
      multiply_adds         a token at T, counted by the engine over whole windows, the prediction included
      training_tokens, training_multiply_adds      counted: one pass forwards, two backwards (descent_train/cost.py)
      train_loss            null for ListOps; nats a token at T, on texts.training
      validation            null for ListOps; a list of {T, multiply_adds, loss, low, high}, on texts.validation
      exact_match           null for texts; a list of {T, multiply_adds, right, items}, on texts.items
      texts                 {validation, training} or {items}: files, from the directory of the index
      seconds               of CPU that training took, on a machine others used too
"""
import argparse
import fnmatch
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CONVERT = os.path.join(ROOT, "tools", "convert.py")
sys.path.insert(0, HERE)
try:
    import numpy  # noqa: F401
except ImportError:
    sys.exit("baselines.py: numpy is missing; Debian's python3-torch has it with PyTorch")
from descent_train import cost, plan  # noqa: E402
from descent_train.data import DataError, read_text, split_text  # noqa: E402
from descent_train.engine import Engine  # noqa: E402
from descent_train.index import Index, entry  # noqa: E402

STRETCHES = 8  # of training text that the training loss is measured on


def arguments(argv):
    p = argparse.ArgumentParser(prog="baselines.py", formatter_class=argparse.ArgumentDefaultsHelpFormatter,
                                description="Train, convert, measure and index the models of docs/science.md.")
    p.add_argument("--text", help="tiny Shakespeare; kept in --runs, so needed once")
    p.add_argument("--runs", default="runs/baselines", help="directory of the runs")
    p.add_argument("--to", default=os.path.join(ROOT, "models", "science"), help="directory of the index and the models")
    p.add_argument("--only", default="*", metavar="PATTERN", help="runs with such a name, as a shell matches file names")
    p.add_argument("--list", action="store_true", help="show the runs instead")
    p.add_argument("--descent", default=os.path.join(ROOT, "build", "release", "descent"), help="the program")
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args(argv)
    a.chosen = [run for run in plan.runs() if fnmatch.fnmatchcase(run.name, a.only)]
    if not a.chosen:
        p.error(f"--only {a.only!r}: no run of the plan has such a name")
    return a


class Interrupted(Exception):
    """SIGINT or SIGTERM came; the run that was going on has saved a checkpoint."""


class Child:
    """A program, and the seconds of CPU it took. While it runs SIGINT and SIGTERM are its own: train.py saves and ends."""

    def __init__(self, words, cwd, log):
        caught = []
        with open(log, "ab") as to:
            child = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True)

        def forward(number, _):
            caught.append(number)
            child.send_signal(number)
        before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
        _, status, usage = os.wait4(child.pid, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        self.status = child.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = usage.ru_utime + usage.ru_stime
        self.interrupted = bool(caught)


class Trainer:
    """The runs in one directory, and the index they end up in."""

    def __init__(self, a):
        self.runs, self.threads = os.path.abspath(a.runs), a.threads
        self.index = Index(a.to, os.path.join(ROOT, "models", "data"))
        os.makedirs(self.runs, exist_ok=True)
        self.text = os.path.join(self.runs, plan.SHAKESPEARE)
        if a.text:
            shutil.copyfile(a.text, self.text)
        self.engine = Engine(os.path.abspath(a.descent), self.runs, a.threads)
        self.by_name = {run.name: run for run in plan.runs()}

    def path(self, name):
        return os.path.join(self.runs, name)

    def log(self, run):
        return self.path(run.name + ".log")

    def train(self, run):
        """Trains a run to its end, or goes on with it; returns seconds of CPU, those of earlier calls included."""
        if run.trained_on == "shakespeare" and not os.path.exists(self.text):
            raise DataError(f"{self.text} is not there yet; say --text FILE")
        words = [sys.executable, os.path.join(HERE, "train.py"), run.name, *shlex.split(run.words),
                 "--threads", str(self.threads), "--validate-every", str(run.settings.iterations)]
        child = Child(words, self.runs, self.log(run))
        spent = self.path(run.name + ".seconds")
        with open(spent, "a", encoding="ascii") as file:
            file.write(f"{child.seconds:.1f}\n")
        if child.interrupted:
            raise Interrupted
        if child.status:
            raise DataError(f"train.py ended with status {child.status}; {self.log(run)} says why")
        with open(spent, encoding="ascii") as file:
            return sum(map(float, file))

    def can_convert(self):
        """Raises what convert.py would say behind the training: that packages it needs are missing."""
        done = subprocess.run([sys.executable, CONVERT, "--help"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise DataError(done.stderr.strip())

    def convert(self, run):
        """The run's model as GGUF; returns its path."""
        out = self.path(run.name + ".gguf")
        words = [sys.executable, CONVERT, os.path.join(self.path(run.name), "model"), out,
                 "--type", "f16", "--name", run.name]
        if Child(words, self.runs, self.log(run)).status:
            raise DataError(f"convert.py failed; {self.log(run)} says why")
        return out

    def texts(self, run):
        """({what: path from the index}, a text of n tokens) that the run is measured on."""
        if run.trained_on == "listops":
            with open(os.path.join(self.path(run.name), "eval.tsv"), "rb") as file:
                return {"items": self.index.keep(file.read(), f"listops-{run.seed}.eval.tsv")}, lambda n: ",".join("7" * n)
        training, validation = split_text(read_text(self.text))
        kept = {"validation": self.index.keep(validation.encode(), "shakespeare.val.txt"),
                "training": self.index.keep(sample(training, len(validation)).encode(), "shakespeare.train.txt")}
        return kept, lambda n: validation[0] * n

    def finish(self, run, seconds):
        """Converts, measures and indexes a trained run; returns its entry."""
        model = self.convert(run)
        texts, words = self.texts(run)
        found = self.engine.measured(model, run.settings, words,
                                     {what: os.path.join(self.index.directory, path) for what, path in texts.items()})
        made = entry(run, self.by_name.get(run.reference), {**found, "texts": texts}, seconds)
        self.index.put(made, model)
        return made


def sample(text, length):
    """STRETCHES pieces of a text, evenly apart, `length` characters in all."""
    each = length // STRETCHES
    apart = (len(text) - each) // max(1, STRETCHES - 1)
    return "".join(text[i * apart : i * apart + each] for i in range(STRETCHES))


def said(made):
    """What a finished run is, in a few words."""
    rows = made["validation"] or made["exact_match"]
    (row,) = (row for row in rows if row["T"] == made["T"])
    what = f"loss {row['loss']:.4f}" if made["validation"] else f"{row['right']} of {row['items']} right"
    return f"{what} at T {made['T']}, {made['seconds']:.0f} s"


def show(a, trainer):
    """The table of --list."""
    print(f"{'run':36} {'parameters':>10} {'mul-adds':>10} {'training':>9} {'minutes':>7}  matched, state")
    left = 0.0
    for run in a.chosen:
        s, done = run.settings, trainer.index.has(run)
        seconds = plan.seconds(run)
        left += 0 if done else seconds
        matched = f"{run.matched} {100 * plan.off(run, trainer.by_name[run.reference]):+.1f}%, " if run.matched else ""
        state = "in the index" if done else "begun" if os.path.exists(trainer.path(run.name)) else "to do"
        print(f"{run.name:36} {cost.parameters(s):10,} {cost.inference(s):10,.0f} {1e-9 * cost.training(s):8,.0f}G "
              f"{seconds / 60:7.1f}  {matched}{state}")
    print(f"{len(a.chosen)} runs, about {left / 60:.0f} minutes of a core left")


def work(a, trainer):
    """Trains what is to do; returns the names of runs that failed."""
    todo = [run for run in a.chosen if not trainer.index.has(run)]
    minutes = sum(map(plan.seconds, todo)) / 60
    print(f"{len(a.chosen) - len(todo)} of {len(a.chosen)} runs are in the index; the others take about {minutes:.0f} minutes of a core", file=sys.stderr)
    if todo:
        trainer.can_convert()
    began, done, failed = time.monotonic(), 0.0, []
    for number, run in enumerate(todo, 1):
        try:
            what = said(trainer.finish(run, trainer.train(run)))
        except (DataError, OSError) as error:
            what = f"failed: {error}"
            failed.append(run.name)
        done += plan.seconds(run)
        left = sum(map(plan.seconds, todo[number:])) * (time.monotonic() - began) / done
        print(f"{number}/{len(todo)} {run.name}: {what}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)
    return failed


def main(argv=None):
    a = arguments(argv)
    try:
        trainer = Trainer(a)
        if a.list:
            return show(a, trainer)
        failed = work(a, trainer)
    except (Interrupted, KeyboardInterrupt):
        sys.exit("baselines.py: interrupted; the same command again goes on")
    except (DataError, OSError) as error:
        sys.exit(f"baselines.py: {error}")
    if failed:
        sys.exit(f"baselines.py: {len(failed)} runs failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
