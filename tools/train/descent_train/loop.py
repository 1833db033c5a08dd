"""The training loop: batches, depths, steps, validation, checkpoints. A run is a directory; what was started there goes on
there, to the same losses: model, optimizer and every random draw are in its checkpoint.

    run/settings.json     what was asked, compared on resumption
    run/state.pt          the newest checkpoint, replaced atomically
    run/log.jsonl         a line each time progress was reported or validated
    run/model/            the finished model: safetensors, config.json, its vocabulary - what tools/convert.py takes
"""
import argparse
import io
import json
import math
import os
import pickle
import shutil
import signal
import sys
import time

import torch
import torch.nn.functional as F

from . import data as data_module
from . import depth, measure, options
from .optim import Optimizer, schedule
from .safetensors_out import write_safetensors


class Depths:
    """How the depth of a batch is chosen: the trained T, or a number drawn for each batch, for CEM one for each sub-layer."""

    def __init__(self, trained, low=None, high=None):
        self.trained, self.low, self.high = trained, low, high

    def draw(self, rng):
        if self.low is None:
            return self.trained
        if isinstance(self.trained, tuple):
            return tuple(int(rng.integers(self.low, self.high + 1)) for _ in self.trained)
        return int(rng.integers(self.low, self.high + 1))


class Stopped(Exception):
    """A signal asked the run to stop; it did, at a checkpoint."""


class Signals:
    """While this is entered, a first SIGINT or SIGTERM sets `caught`, so that a batch ends and a checkpoint is written before
    the run does; a second one ends it at once."""

    caught = None

    def __enter__(self):
        self.before = {number: signal.signal(number, self._catch) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _catch(self, number, _):
        if self.caught:
            raise KeyboardInterrupt
        self.caught = signal.Signals(number).name

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)


def replace(path, data):
    """The file at `path` becomes `data`, whole and on the disk, or stays what it was."""
    try:
        with open(path + ".new", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
    except OSError as error:
        raise data_module.DataError(f"{path}: {error.strerror}; the one before stays") from None


def _finite(number):
    """The number, or None where JSON has none for it."""
    return number if math.isfinite(number) else None


class Progress:
    """A line on a terminal that overwrites itself; in a pipe, a line each time there is something to say."""

    def __init__(self, total, first):
        """Steps from `first` to `total`."""
        self.total, self.first, self.started, self.live = total, first, time.monotonic(), sys.stderr.isatty()

    def show(self, step, text, lasting):
        share = step / self.total
        left = f" {self.left(step):.0f} min left"
        if self.live:
            bar = "#" * int(20 * share) + "." * (20 - int(20 * share))
            sys.stderr.write(f"\r\x1b[K[{bar}] {step}/{self.total} {text}{left}" + ("\n" if lasting else ""))
            sys.stderr.flush()
        elif lasting:
            print(f"{step}/{self.total} {text}{left}", file=sys.stderr, flush=True)

    def end(self):
        """Leaves the line that overwrites itself."""
        if self.live:
            sys.stderr.write("\n")

    def left(self, step):
        return (time.monotonic() - self.started) / max(1, step - self.first) * (self.total - step) / 60


def read_settings(directory):
    """The settings of the run in a directory; what has become an option since is what it is where it is not given."""
    path = os.path.join(directory, "settings.json")
    try:
        with open(path, encoding="utf-8") as file:
            return {**options.settings(argparse.Namespace(**options.defaults())), **json.load(file)}
    except ValueError as error:
        raise data_module.DataError(f"{path}: expected the settings of a run, as JSON: {error}") from None


def read_state(directory, device):
    """The checkpoint of the run in a directory."""
    path = os.path.join(directory, "state.pt")
    try:
        return torch.load(path, map_location=device)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        said = str(error).partition("\n")[0]
        raise data_module.DataError(f"{path}: no checkpoint: {said}; without this file the run begins anew") from None


class Run:
    """One training run in `directory`. `chosen` has: iterations batch block lr muon_lr optimizer decay warmup clip
    dropout short_windows read validate_every validate_at validate_windows checkpoint_minutes seed."""

    def __init__(self, directory, model, data, depths, chosen):
        self.directory, self.model, self.data, self.depths, self.o = directory, model, data, depths, chosen
        inside = [n for n, p in model.parameters.items() if p.dim() == 2 and "embed" not in n and "lm_head" not in n
                  and "precond" not in n]
        by_muon = inside if chosen["optimizer"] == "muon" else []
        self.optimizer = Optimizer(model.parameters, by_muon, chosen["decay"], model.dtype)
        self.rng = data_module.new_rng(chosen["seed"])
        self.step = 0
        self.seconds = 0.0
        self.tokens = 0

    # ---- Checkpoints ----

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def open(self, settings):
        """Takes up the run found in the directory, or begins one. Settings that differ from the run's are an error."""
        os.makedirs(self.directory, exist_ok=True)
        said = self.path("settings.json")
        if os.path.exists(said):
            before = read_settings(self.directory)
            changed = [k for k in sorted(set(before) | set(settings)) if before.get(k) != settings.get(k)]
            if changed:
                raise data_module.DataError(f"{said}: this run was started with other settings ("
                                            + ", ".join(f"{k} {before.get(k)!r}, now {settings.get(k)!r}" for k in changed)
                                            + "); start a new one in another directory")
        else:
            replace(said, json.dumps(settings, indent=1).encode())
        if os.path.exists(self.path("state.pt")):
            self._load(read_state(self.directory, self.model.device))

    def _load(self, state):
        with torch.no_grad():
            for n, p in self.model.parameters.items():
                p.copy_(state["model"][n])
        self.optimizer.restore(state["optimizer"])
        self.rng = data_module.rng_from_state(state["rng"])
        self.step, self.seconds, self.tokens = state["step"], state["seconds"], state["tokens"]

    def save(self):
        state = {"model": {n: p.detach() for n, p in self.model.parameters.items()}, "optimizer": self.optimizer.state(),
                 "rng": data_module.rng_state(self.rng), "step": self.step, "seconds": self.seconds, "tokens": self.tokens}
        whole = io.BytesIO()  # torch.save on a full disk ends the process (PyTorch 1.13 aborts)
        torch.save(state, whole)
        replace(self.path("state.pt"), whole.getbuffer())

    # ---- Training ----

    def window(self):
        """Length of this batch's windows: short ones first, where most of what can be learnt is near."""
        share, block = self.o["short_windows"], self.o["block"]
        progress = self.step / self.o["iterations"]
        if progress < share / 2:
            return max(options.SHORTEST, block // 4)
        return max(options.SHORTEST, block // 2) if progress < share else block

    def loss(self, x, y, depth, where):
        if self.o["read"] == "last":
            return F.cross_entropy(self.model.logits(x, depth, **where).float().flatten(0, 1), y)
        total = 0.0
        for t, state in enumerate(self.model.states(x, depth, **where)):
            if t:
                total = total + t * F.cross_entropy(self.model.read(state).float().flatten(0, 1), y)
        return total / (depth * (depth + 1) / 2)

    def advance(self):
        """One optimizer step; returns the batch's loss."""
        o, length = self.o, self.window()
        rows = o["batch"] * o["block"] // length
        x, y = data_module.batch(self.data.train, self.rng, rows, length, self.data.starts, self.data.given)
        depth = self.depths.draw(self.rng)
        # Short windows stand anywhere in the context, so that no position is new to the model when long ones come.
        anywhere = self.model.positions and self.data.starts is None
        where = {"start": int(self.rng.integers(0, o["block"] - length + 1))} if anywhere else {}
        x, y = (torch.from_numpy(a).to(self.model.device) for a in (x, y))
        for p in self.model.parameters.values():
            p.grad = None
        seed = int(self.rng.integers(2 ** 63)) if o["dropout"] else 0
        with self.model.dropping(o["dropout"], seed):
            loss = self.loss(x, y.flatten(), depth, where)
        loss.backward()
        for p in self.model.parameters.values():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        norm = self.optimizer.clip(o["clip"])
        if math.isfinite(norm):
            share = schedule(self.step, o["iterations"], o["warmup"])
            self.optimizer.step(o["lr"] * share, o["muon_lr"] * share)
        self.step += 1
        self.tokens += x.numel()
        return float(loss.detach()), norm

    def log(self, **line):
        with open(self.path("log.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step, "tokens": self.tokens, "seconds": round(self.seconds, 1), **line}) + "\n")

    def validate(self):
        depths = self.o["validate_at"]
        losses = measure.losses(self.model.sweep, self.data.val, self.o["block"], depths, device=self.model.device,
                                windows=self.o["validate_windows"])
        means = {depth.label(t): found.mean for t, found in losses.items()}
        self.log(validation={t: _finite(mean) for t, mean in means.items()})
        return means

    def train(self):
        o = self.o
        progress = Progress(o["iterations"], self.step)
        mean, saved = math.nan, time.monotonic()
        with Signals() as signals:
            while self.step < o["iterations"]:
                began = time.monotonic()
                loss, norm = self.advance()
                self.seconds += time.monotonic() - began
                if math.isfinite(loss):
                    mean = 0.98 * mean + 0.02 * loss if math.isfinite(mean) else loss
                due = self.step % o["validate_every"] == 0 or self.step == o["iterations"]
                text = f"loss {mean:.4f}  {self.tokens / max(1e-9, self.seconds):,.0f} tokens/s"
                if due:
                    text += "  validation " + " ".join(f"{v:.4f}" if t == "none" else f"T={t}:{v:.4f}"
                                                        for t, v in self.validate().items())
                    self.log(loss=_finite(mean), norm=_finite(norm))
                progress.show(self.step, text, due)
                ends = self.step == o["iterations"] or signals.caught
                if ends or time.monotonic() - saved > 60 * o["checkpoint_minutes"]:
                    self.save()
                    saved = time.monotonic()
                if signals.caught:
                    progress.end()
                    raise Stopped(f"{signals.caught}: stopped at step {self.step} of {o['iterations']}, saved")

    def export(self):
        """Writes the model as tools/convert.py takes it; returns the directory."""
        out = self.path("model")
        if os.path.isdir(out):
            shutil.rmtree(out)
        os.makedirs(out)
        tensors = {n: p.detach().float().cpu() for n, p in {**self.model.parameters, **self.model.frozen()}.items()}
        write_safetensors(os.path.join(out, "model.safetensors"), tensors)
        with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
            json.dump(self.model.config, file, indent=1)
        data_module.save_vocab(self.data, out)
        return out

