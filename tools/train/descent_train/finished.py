"""A finished run, opened again and measured: from a run's directory (loop.py says what lies there) to the figures its card is
written from (figures.py). Measured in float32, whatever the products of training were.
"""

import argparse
import os

import numpy as np
import torch

from . import data as data_module
from . import depth, figures, listops, loop, measure
from .build import build_model

_NOT_COMPARED = ("steps", "random_steps", "validate_at", "validate_every", "validate_windows", "dtype")  # fixed()
_PROBED = 8  # windows that attention and the first step are looked at on


def open_data(options, directory):
    """(Data, items or None): what a run with these options trains on; items are the test items of ListOps."""
    if options.text:
        kind, _, size = options.vocab.partition(":")
        cache = os.path.join(directory, "data")
        if os.path.exists(os.path.join(directory, "state.pt")) and data_module.is_of_another_text(cache, options.text):
            raise data_module.DataError(f"{options.text}: not the text that the run in {directory} was started with")
        data, items = data_module.text_data(options.text, cache, vocab=kind, size=int(size or 0)), None
    else:
        settings = listops.parse(options.listops, getattr(options, "flat_lines", 0.0))
        data, items = listops.data(settings, options.lines, listops.TEST_ITEMS, options.seed)
    if len(data.train) <= options.block or len(data.val) < 2:
        raise data_module.DataError(f"{len(data.train)} training and {len(data.val)} validation tokens are too few for "
                                    f"windows of {options.block}; expected at least {options.block + 1} and 2")
    return data, items


class Finished:
    """The model, data and settings of the run in `directory`."""

    def __init__(self, directory, device="cpu"):
        self.directory, self.device = directory, device
        self.options = argparse.Namespace(**loop.read_settings(directory))
        self.data, self.items = open_data(self.options, directory)
        self.model = build_model(self.options, self.data.vocab.size, device, torch.float32)
        state = loop.read_state(directory, device)
        if state["step"] < self.options.iterations:
            raise data_module.DataError(f"{directory}: the run stands at step {state['step']} of {self.options.iterations}")
        with torch.no_grad():
            for name, parameter in self.model.parameters.items():
                parameter.copy_(state["model"][name])

    @property
    def trained(self):
        """The T the model is served at."""
        return depth.trained(self.options)

    def losses(self, depths):
        return measure.losses(self.model.sweep, self.data.val, self.options.block, depths, device=self.device)

    def right(self, T):
        return measure.exact_match(self.model.sweep, self.items, T, self.options.block, device=self.device)

    def swept(self, depths):
        """What the figures of this one model hold beside text: read at every T of `depths`, looked into at the trained T."""
        if self.items is not None:
            return {"swept": figures.match_table({T: self.right(T) for T in depths}, self.items), **self.inside()}
        losses = self.losses(depths)
        found = {"swept": figures.depth_table(losses, self.data),
                 "ngram": figures.ngram_table(self.data, self.options.block, losses), **self.inside()}
        length = min(self.options.block, len(self.data.val))
        if length >= measure.SHORTEST_SCRAMBLED:
            found["context_kl"] = measure.context_kl(self.model.sweep, self.data.val, length, self.trained, device=self.device)
        return found

    @torch.no_grad()
    def inside(self):
        """attention_entropy and relative_update, at the trained T, of windows that lie evenly apart in the validation text."""
        length = min(self.options.block, len(self.data.val))
        starts = np.linspace(0, len(self.data.val) - length, _PROBED).astype(int)
        ids = torch.from_numpy(self.data.val[starts[:, None] + np.arange(length)].astype(np.int64)).to(self.device)
        entropies, moves = measure.Entropies(), measure.Moves()
        layered = self.model.config["model_type"] == "cem"
        if layered:
            self.model.logits(ids, self.trained, entropies, moves)
        else:
            x0, x1, *_ = self.model.states(ids, self.trained, entropies)
            moves(x0, x1)
        of = "a layer" if layered else "the first block" if self.trained is None else "the first step"
        moved = {"of": of, "median": moves.result()}
        return {"attention_entropy": entropies.result(), "relative_update": moved}


def fixed(runs):
    """The part `fixed` of {T: Finished}, runs alike but for the T they were trained at: each is read at its own."""
    first = next(iter(runs.values()))
    for T, run in runs.items():
        if T is None or run.trained != T or run.options.random_steps or run.options.read != "last":
            raise ValueError(f"{run.directory} was not trained at T = {depth.label(T)} alone")
        other = [k for k, value in vars(run.options).items() if k not in _NOT_COMPARED and value != getattr(first.options, k)]
        if other:
            raise ValueError(f"{run.directory} and {first.directory} differ in more than T: {', '.join(other)}")
    if first.items is not None:
        return figures.match_table({T: run.right(T) for T, run in runs.items()}, first.items)
    return figures.depth_table({T: run.losses([T])[T] for T, run in runs.items()}, first.data)
