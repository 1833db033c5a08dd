"""What Model.run saw of a descent, as arrays. Shapes: T steps, L tokens, C width; a layered family's have the layers first.

    states, g          [T, L, C]   x(t) and norm(x(t)); T + 1 with "final"
    logits             [T, L, V]   what the head reads at x(t); T + 1 with "final". A layered family's: [L, V] for each layer, at the
                                   end of its sub-layer, and NaN without "final"
    energy[term]       [T, L]      E at x(t), keys of step t; T + 1 with "final"
    own_change         [T, L]      index t is the change from t to t + 1
    history_change     [T, L]      the same; the last needs "final" and is NaN without
    update_norm        [T, L]      |x(t+1) - x(t)|
    relative_change    [T, L]      |g(t+1) - g(t)| / |g(t)|
    slope              [T, L]      what a small step loses of the energy for each unit of step_scale; see descent.h

What was not asked for is None, and energy is empty.
"""
import ctypes
from dataclasses import dataclass, field
from typing import Dict, Optional

import numpy as np


@dataclass
class Trace:
    """The descents of one kind of sub-layer."""
    states: Optional[np.ndarray] = None
    g: Optional[np.ndarray] = None
    energy: Dict[str, np.ndarray] = field(default_factory=dict)
    own_change: Optional[np.ndarray] = None
    history_change: Optional[np.ndarray] = None
    update_norm: Optional[np.ndarray] = None
    relative_change: Optional[np.ndarray] = None
    slope: Optional[np.ndarray] = None
    logits: Optional[np.ndarray] = None

    @property
    def total_energy(self):
        """The sum of the terms."""
        return sum(self.energy.values()) if self.energy else None


class Run:
    """logits [L, V], final [L, C] (the states the logits are read from), tokens [L], depth, and `traces` by kind of
    sub-layer. Where there is one kind its trace's arrays are attributes of the run; where there are two they are
    dicts by kind. `energy` has the terms of all kinds."""

    def __init__(self, tokens, depth, logits, final, traces):
        self.tokens = tokens
        self.depth = depth
        self.logits = logits
        self.final = final
        self.traces = traces

    def __getattr__(self, name):
        if name not in ("states", "g", "own_change", "history_change", "update_norm", "relative_change", "slope", "total_energy"):
            raise AttributeError(name)
        by_kind = {kind: getattr(trace, name) for kind, trace in self.traces.items()}
        return by_kind if len(by_kind) > 1 else next(iter(by_kind.values()))

    @property
    def energy(self):
        return {term: values for trace in self.traces.values() for term, values in trace.energy.items()}


def _nan(*shape):
    return np.full(shape, np.nan, np.float32)


class Recorder:
    """An observer that writes into arrays, [layers, T or T + 1, L, ...]. Kinds are numbers here."""

    def __init__(self, info, depth, length, observe):
        self.info = info
        self.traces = []
        energy, convergence, state, slope, logits, final = (
            name in observe for name in ("energy", "convergence", "state", "slope", "logits", "final"))
        for kind, terms in enumerate(info.terms):
            steps = depth.steps[kind] or 1  # a sub-layer without T runs once
            shape, seen = (info.layers, steps, length), (info.layers, steps + final, length)
            trace = Trace()
            if state:
                trace.states, trace.g = _nan(*seen, info.width), _nan(*seen, info.width)
            if energy and terms:
                trace.energy = {term: _nan(*seen) for term in terms}
                trace.own_change, trace.history_change = _nan(*shape), _nan(*shape)
            if convergence:
                trace.update_norm, trace.relative_change = _nan(*shape), _nan(*shape)
            if logits:
                trace.logits = _nan(*(seen if info.deepens else (info.layers, length)), info.vocab)
            if slope and terms:
                trace.slope = _nan(*shape)
            self.traces.append(trace)

    def __call__(self, seen):
        site = seen.site
        trace = self.traces[site.kind]
        here = (site.layer, site.step, site.position)
        if trace.states is not None:
            for array, values in ((trace.states, seen.x), (trace.g, seen.g)):
                ctypes.memmove(array[here].ctypes.data, values, 4 * self.info.width)
        if trace.logits is not None and seen.logits:
            place = here if self.info.deepens else (site.layer, site.position)
            ctypes.memmove(trace.logits[place].ctypes.data, seen.logits, 4 * self.info.vocab)
        for i, values in enumerate(trace.energy.values()):
            values[here] = seen.energy[i]
        if trace.history_change is not None and site.step > 0:
            trace.history_change[site.layer, site.step - 1, site.position] = seen.history_change
        if seen.final:
            return
        if trace.own_change is not None:
            trace.own_change[here] = seen.own_change
        if trace.update_norm is not None:
            trace.update_norm[here] = seen.update_norm
            trace.relative_change[here] = seen.relative_change
        if trace.slope is not None:
            trace.slope[here] = seen.slope

    def by_kind(self):
        """The traces by the names of their kinds, without the layers' axis where one block is the whole model."""
        if self.info.layers == 1 and len(self.info.kinds) == 1:
            return {self.info.kinds[0]: _without_layers(self.traces[0])}
        return dict(zip(self.info.kinds, self.traces))


def _without_layers(trace):
    first = {name: None if value is None else value[0] for name, value in vars(trace).items() if name != "energy"}
    return Trace(energy={term: values[0] for term, values in trace.energy.items()}, **first)
