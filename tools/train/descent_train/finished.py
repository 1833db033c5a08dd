"""A finished run, opened again and measured: from a run's directory (loop.py says what lies there) to the figures its card is
written from (figures.py). Measured in float32, whatever the products of training were.
"""

import argparse
import json
import os

import numpy as np
import torch

from . import data as data_module
from . import figures, listops, measure
from .build import build_model

_PROBED = 8  # windows that attention and the first step are looked at on


def open_data(options, directory):
    """(Data, items or None): what a run with these options trains on; items are the test items of ListOps."""
    if bool(options.text) == bool(options.listops):
        raise data_module.DataError("expected one of --text FILE and --listops OPS")
    if options.text:
        kind, _, size = options.vocab.partition(":")
        if size and not size.isdecimal():
            raise data_module.DataError(f"--vocab is {options.vocab!r}; expected chars, bpe:N or unigram:N")
        return data_module.text_data(options.text, os.path.join(directory, "data"), vocab=kind, size=int(size or 0)), None
    settings = listops.Settings(operations=tuple(options.listops.split(",")))
    return listops.data(settings, options.lines, listops.TEST_ITEMS, options.seed)


class Finished:
    """The model, data and settings of the run in `directory`."""

    def __init__(self, directory, device="cpu"):
        self.directory, self.device = directory, device
        with open(os.path.join(directory, "settings.json"), encoding="utf-8") as file:
            self.options = argparse.Namespace(**json.load(file))
        self.data, self.items = open_data(self.options, directory)
        self.model = build_model(self.options, self.data.vocab.size, device, torch.float32)
        state = torch.load(os.path.join(directory, "state.pt"), map_location=device)
        if state["step"] < self.options.iterations:
            raise data_module.DataError(f"{directory}: the run stands at step {state['step']} of {self.options.iterations}")
        with torch.no_grad():
            for name, parameter in self.model.parameters.items():
                parameter.copy_(state["model"][name])

    @property
    def layered(self):
        return self.model.config["model_type"] == "cem"

    @property
    def trained(self):
        """The T the model is served at."""
        return (self.options.steps, self.options.steps) if self.layered else self.options.steps

    def depth(self, text):
        """A T as the user writes it: 4 or, for layers, 4x2; 4 is then 4x4."""
        numbers = [int(n) for n in text.split("x")]
        if min(numbers) < 1 or len(numbers) > 1 + self.layered:
            raise ValueError(f"{text!r} is no depth of this model")
        return tuple(numbers * (3 - len(numbers)))[:2] if self.layered else numbers[0]

    def losses(self, depths):
        return measure.losses(self.model.sweep, self.data.val, self.options.block, depths, device=self.device)

    def right(self, T):
        return measure.exact_match(self.model.sweep, self.items, T, self.options.block, device=self.device)

    def swept(self, depths):
        """What the figures of this one model hold beside text: read at every T of `depths`, looked into at the trained T."""
        if self.items is not None:
            return {"swept": figures.match_table({T: self.right(T) for T in depths}, self.items), **self.inside()}
        losses = self.losses(depths)
        kl = measure.context_kl(self.model.sweep, self.data.val, self.options.block, self.trained, device=self.device)
        return {"swept": figures.depth_table(losses, self.data),
                "ngram": figures.ngram_table(self.data, self.options.block, losses), "context_kl": kl, **self.inside()}

    @torch.no_grad()
    def inside(self):
        """attention_entropy and relative_update, at the trained T, of windows that lie evenly apart in the validation text."""
        length = min(self.options.block, len(self.data.val))
        starts = np.linspace(0, len(self.data.val) - length, _PROBED).astype(int)
        ids = torch.from_numpy(self.data.val[starts[:, None] + np.arange(length)].astype(np.int64)).to(self.device)
        entropies, moves = measure.Entropies(), measure.Moves()
        if self.layered:
            self.model.logits(ids, self.trained, entropies, moves)
        else:
            x0, x1, *_ = self.model.states(ids, self.trained, entropies)
            moves(x0, x1)
        moved = {"of": "a layer" if self.layered else "the first step", "median": moves.result()}
        return {"attention_entropy": entropies.result(), "relative_update": moved}


def fixed(runs):
    """The part `fixed` of {T: Finished}, runs alike but for the T they were trained at: each is read at its own."""
    first = next(iter(runs.values()))
    alike = ("model", "text", "listops", "vocab", "block", "width", "heads", "layers", "hidden", "iterations", "batch",
             "lines", "seed")
    for T, run in runs.items():
        if run.trained != T or run.options.random_steps:
            raise ValueError(f"{run.directory} was not trained at T = {measure.label(T)} alone")
        other = [k for k in alike if getattr(run.options, k) != getattr(first.options, k)]
        if other:
            raise ValueError(f"{run.directory} and {first.directory} differ in more than T: {', '.join(other)}")
    if first.items is not None:
        return figures.match_table({T: run.right(T) for T, run in runs.items()}, first.items)
    return figures.depth_table({T: run.losses([T])[T] for T, run in runs.items()}, first.data)
