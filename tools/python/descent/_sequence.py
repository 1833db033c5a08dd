"""Caches, sequences and batches: descent.h's objects with numpy arrays for arguments and results."""
import ctypes
import os
from dataclasses import dataclass
from typing import Optional

import numpy as np

from . import _native
from ._handles import Gate, Handle, Life
from ._native import Code, Error, call, library


def id_array(ids):
    """Token ids as uint32; refuses what is not a list of whole numbers in range instead of wrapping them."""
    array = np.asarray(ids)
    if array.size == 0:
        return np.zeros(0, np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise Error(Code.BAD_ARGUMENT, f"token ids are {array.dtype} of shape {array.shape}, expected one row of integers")
    if array.min() < 0 or array.max() > 0xFFFFFFFF:
        raise Error(Code.BAD_ARGUMENT, f"token ids run from {array.min()} to {array.max()}, expected 0 to 4294967295")
    return np.ascontiguousarray(array, np.uint32)


def pointer(array, kind):
    return array.ctypes.data_as(ctypes.POINTER(kind))


def vector(values, width):
    array = np.ascontiguousarray(values, np.float32)
    if array.shape != (width,):
        raise Error(Code.BAD_ARGUMENT, f"values of shape {array.shape}, expected ({width},)")
    return array


def choice(what, name, among):
    if name not in among:
        raise Error(Code.BAD_ARGUMENT, f"{what} is {name!r}, expected one of {', '.join(among)}")
    return among[name]


def fill(struct, **values):
    """Sets fields; refuses the integers that ctypes would wrap."""
    for name, value in values.items():
        setattr(struct, name, value)
        if isinstance(value, (int, np.integer)) and getattr(struct, name) != value:
            raise Error(Code.BAD_ARGUMENT, f"{name} is {value}, which is out of range")
    return struct


def exit_struct(exit):
    """None, a threshold of "state", or a dict of descent_exit's fields, its criterion by name ("state" where it has none)."""
    if exit is None:
        return _native.Exit()
    given = {"criterion": "state", **exit} if isinstance(exit, dict) else {"criterion": "state", "threshold": exit}
    known = [name for name, _ in _native.Exit._fields_]
    for name in given:
        if name not in known:
            raise Error(Code.BAD_ARGUMENT, f"exit has {name!r}, expected some of {', '.join(known)}")
    criterion = choice("exit criterion", given.pop("criterion"), _native.EXITS)
    given.setdefault("threshold", library.descent_exit_default_threshold(criterion))
    return fill(_native.Exit(criterion=criterion), **given)


def noise_struct(noise):
    """None, a sigma, or a dict of sigma, seed and schedule."""
    given = dict(noise) if isinstance(noise, dict) else {"sigma": noise or 0.0}
    for name in given:
        if name not in ("sigma", "seed", "schedule"):
            raise Error(Code.BAD_ARGUMENT, f"noise has {name!r}, expected some of sigma, seed, schedule")
    given["schedule"] = choice("schedule", given.get("schedule", "fixed"), _native.NOISE_SCHEDULES)
    return fill(_native.Noise(seed=1), **given)


def solver_struct(solver):
    """None, a residual, or a dict of residual and nstep, of Anderson's method."""
    if solver is None:
        return _native.Solver()
    given = dict(solver) if isinstance(solver, dict) else {"residual": solver}
    for name in given:
        if name not in ("residual", "nstep"):
            raise Error(Code.BAD_ARGUMENT, f"solver has {name!r}, expected some of residual, nstep")
    return fill(_native.Solver(method=_native.SOLVERS["anderson"], residual=1e-4), **given)


def history_struct(history, prompt_steps, prompt):
    return fill(_native.History(), policy=choice("history", history, _native.HISTORIES), prompt_steps=prompt_steps or 0,
                prompt=prompt)


def motion_struct(step_scale, momentum, step_rule, noise):
    """A number, or a list of one for each step."""
    scales = np.atleast_1d(np.asarray(step_scale, np.float32)).ravel()
    if not 1 <= len(scales) <= _native.MAX_SCALES:
        raise Error(Code.BAD_ARGUMENT, f"step_scale has {len(scales)} numbers; expected 1 to {_native.MAX_SCALES}")
    motion = fill(_native.Motion(), n_scales=len(scales), momentum=momentum,
                  rule=choice("step_rule", step_rule, _native.STEP_RULES), noise=noise_struct(noise))
    for t, scale in enumerate(scales):
        motion.step_scale[t] = scale
    return motion


def observe_flags(observe):
    names = (observe,) if isinstance(observe, str) else tuple(observe)
    return sum(choice("observe", name, _native.OBSERVE) for name in dict.fromkeys(names))


@dataclass(frozen=True)
class Observation:
    """What one step of one token was; see descent_observation. What was not asked for is None or NaN."""
    layer: int
    kind: str
    step: int
    position: int
    final: bool
    energy: dict
    own_change: float
    history_change: float
    update_norm: float
    relative_change: float
    slope: float
    x: Optional[np.ndarray]
    g: Optional[np.ndarray]
    logits: Optional[np.ndarray]


class Cache(Handle):
    """Holds the history of many sequences. One thread at a time is let in, the others wait. Model.cache makes it.

    page_type: "f32", "f16", "bf16" or "q8". byte_limit: of everything in it; 0 is half of what this process may use. max_rows, threads: of the
    batch its sequences use unless they are put into another (0: 512 rows, as many threads as the process may use).
    """

    def __init__(self, core, page_type, byte_limit, max_rows, threads):
        options = fill(_native.CacheOptions(), page_type=choice("page_type", page_type, _native.PAGE_TYPES),
                       byte_limit=byte_limit)
        cache = ctypes.c_void_p()
        call("descent_cache_create", core.life.pointer, ctypes.byref(options), ctypes.byref(cache))
        self._life = Life(Gate(), library.descent_cache_destroy, cache.value, core.life)
        self._core = core
        self._batch_options = (max_rows, threads)
        self._batch = None

    def sequence(self, steps=None, share_group=0, sharing=True, step_scale=1.0, exit=None, momentum=0.0,
                 step_rule="plain", noise=None, solver=None, history="own", prompt_steps=None, prompt=0):
        """A new, empty sequence at depth `steps` (default: as trained), each of its steps step_scale times as long (a list: step t
        step_scale[t] times, the last number also for all behind), with momentum, by the rule "plain" or
        "angular", and with `noise`: a sigma, or a dict of sigma, seed and schedule ("fixed", "decay"). `solver`: a residual,
        or a dict of residual and nstep, for the limit of large T by Anderson acceleration (`converged` says of which tokens).
        `exit`: tokens stop early once r_t is below this threshold; or a dict of criterion (state, cosine, energy, entropy,
        kl, argmax), threshold (each has its default), min_steps, check_every, first.
        `history`: what is read of earlier tokens, "own", "latest" or "last"; the first `prompt` tokens take `prompt_steps`."""
        return Sequence._create(self, steps, share_group, sharing, exit, motion_struct(step_scale, momentum, step_rule, noise),
                                solver_struct(solver), history_struct(history, prompt_steps, prompt))

    def restore(self, path):
        """The sequence that Sequence.save wrote to a file."""
        return Sequence._restore(self, path)

    def batch(self, max_rows=0, threads=0):
        return Batch(self, max_rows, threads)

    @property
    def usage(self):
        """bytes, byte_limit, pages, idle_pages, shared_hits."""
        with self._gate.enter():
            usage = library.descent_cache_describe(self._pointer)
        return {name: getattr(usage, name) for name, _ in usage._fields_}

    def _default_batch(self):
        if self._batch is None or self._batch.closed:
            self._batch = self.batch(*self._batch_options)
        return self._batch


class Sequence(Handle):
    """One timeline: tokens, and for each how far its descent has come. Cache.sequence or Model.sequence make it."""

    def __init__(self):
        raise TypeError("made by Cache.sequence, Model.sequence or restore")

    @classmethod
    def _new(cls, cache, handle):
        self = cls.__new__(cls)
        self._life = Life(cache._gate, library.descent_sequence_destroy, handle.value, cache._life)
        self.cache = cache
        self._core = cache._core
        return self

    @classmethod
    def _create(cls, cache, steps, share_group, sharing, exit, motion, solver, history):
        options = fill(_native.SequenceOptions(), depth=cache._core.depth(steps), motion=motion, solver=solver, exit=exit_struct(exit),
                       history=history, share_group=share_group, no_sharing=not sharing)
        handle = ctypes.c_void_p()
        with cache._gate.enter():
            call("descent_sequence_create", cache._pointer, ctypes.byref(options), ctypes.byref(handle))
            return cls._new(cache, handle)

    @classmethod
    def _restore(cls, cache, path):
        handle = ctypes.c_void_p()
        with cache._gate.enter():
            call("descent_sequence_restore", cache._pointer, os.fsencode(path), ctypes.byref(handle))
            return cls._new(cache, handle)

    def _call(self, name, *arguments):
        with self._gate.enter():
            call(name, self._pointer, *arguments)

    def _get(self, name, *arguments):
        with self._gate.enter():
            return getattr(library, name)(self._pointer, *arguments)

    def append(self, ids):
        array = id_array(ids)
        self._call("descent_sequence_append", pointer(array, ctypes.c_uint32), array.size)

    def truncate(self, count):
        """Keeps the first `count` tokens."""
        if not 0 <= count <= len(self):
            raise Error(Code.BAD_ARGUMENT, f"truncated to {count} tokens, expected 0 to {len(self)}")
        self._call("descent_sequence_truncate", count)

    def set_depth(self, steps):
        """Other depth for the tokens not there yet and those to come; where the model deepens nothing is run again."""
        self._call("descent_sequence_set_depth", self._core.depth(steps))

    @property
    def depth(self):
        """Steps of each kind of sub-layer: {"block": 12} or {"attention": 3, "mlp": 2}."""
        return self._core.depth_dict(self._get("descent_sequence_depth"))

    def __len__(self):
        return self._get("descent_sequence_length")

    @property
    def tokens(self):
        with self._gate.enter():
            count = library.descent_sequence_length(self._pointer)
            if count == 0:
                return np.zeros(0, np.uint32)
            return np.ctypeslib.as_array(library.descent_sequence_tokens(self._pointer), (count,)).copy()

    @property
    def finished(self):
        """Tokens, from the first, that have reached the depth."""
        return self._get("descent_sequence_finished")

    @property
    def reused(self):
        """Tokens, from the first, found in the cache instead of computed."""
        return self._get("descent_sequence_reused")

    @property
    def steps_run(self):
        return self._get("descent_sequence_steps_run")

    @property
    def logits_read(self):
        """States whose logits were read for the observer so far."""
        return self._get("descent_sequence_logits_read")

    @property
    def exit_cost(self):
        """What was run beside the steps to see which tokens stop: {"readings": logits, "energies": energies}."""
        cost = self._get("descent_sequence_exit_cost")
        return {"readings": cost.readings, "energies": cost.energies}

    def converged(self, position):
        """False where the token came to its T without the residual its solver was asked for."""
        return self._get("descent_sequence_converged", position)

    def token_steps(self, position):
        """Row steps that the state of a token took: fewer than its depth asks where it stopped early."""
        return self._get("descent_sequence_token_steps", self._position(position))

    def check(self):
        """Raises the Error that ended the sequence, if one did."""
        self._call("descent_sequence_state_code")

    def state(self, position):
        """x of a token at the step it has come to, and that step."""
        x = np.empty(self._core.info.width, np.float32)
        steps = ctypes.c_uint32()
        self._call("descent_sequence_state", self._position(position), pointer(x, ctypes.c_float), ctypes.byref(steps))
        return x, steps.value

    def states(self):
        """x of every token, [L, C]."""
        return np.stack([self.state(i)[0] for i in range(len(self))]) if len(self) else np.zeros(
            (0, self._core.info.width), np.float32)

    def save(self, path):
        self._call("descent_sequence_save", os.fsencode(path))

    def observe(self, observe, callback=None):
        """Calls callback(Observation) for every row step from now on; observe: some of "energy", "convergence", "state",
        "slope", "logits", "final". An empty `observe` or callback None ends it. The callback may not call into the cache; what it raises
        comes out of the call that stepped the batch. Rows found in the cache are not seen: make the sequence with sharing=False.
        A callback that refers to the sequence keeps it open until close() or observe(())."""
        info = self._core.info

        def copy(seen):
            site, kind = seen.site, seen.site.kind
            return Observation(
                layer=site.layer, kind=info.kinds[kind], step=site.step, position=site.position, final=seen.final,
                energy=dict(zip(info.terms[kind], seen.energy)), own_change=seen.own_change,
                history_change=seen.history_change, update_norm=seen.update_norm, relative_change=seen.relative_change,
                slope=seen.slope,
                x=np.ctypeslib.as_array(seen.x, (info.width,)).copy() if seen.x else None,
                g=np.ctypeslib.as_array(seen.g, (info.width,)).copy() if seen.g else None,
                logits=np.ctypeslib.as_array(seen.logits, (info.vocab,)).copy() if seen.logits else None)

        self._observe(observe_flags(observe) if callback else 0, lambda seen: callback(copy(seen)))

    def _observe(self, flags, function):
        gate = self._gate

        def observer(_, seen):
            if gate.failing:
                return
            try:
                function(seen.contents)
            except BaseException as error:  # ctypes would print it and go on
                gate.failed(error)

        native = _native.Observer(observer) if flags else _native.Observer()
        with gate.enter():
            call("descent_sequence_observe", self._pointer, flags, native, None)
            gate.keep(self._pointer, native)

    def intervene(self, position, step, values, how="set_x", layer=0, kind=0):
        """Replaces or adds to x or g ("set_x", "add_x", "set_g", "add_g") before a step that has not run."""
        array = vector(values, self._core.info.width)
        self._call("descent_sequence_intervene", self._site(position, step, layer, kind),
                   choice("how", how, _native.INTERVENTIONS), pointer(array, ctypes.c_float))

    def start(self, position, step, x, layer=0, kind=0):
        """A token that has not begun starts at `step` with state x instead of at step 0 from its embedding."""
        array = vector(x, self._core.info.width)
        self._call("descent_sequence_start", self._site(position, step, layer, kind), pointer(array, ctypes.c_float))

    def finish(self):
        """Steps until every token has reached the depth; sequences in the same batch advance beside it."""
        self.cache._default_batch().finish(self)

    def logits(self, positions=None):
        """Next-token logits after the tokens at `positions` (default: all), [n, V]; finishes the sequence first."""
        batch = self.cache._default_batch()
        batch.finish(self)
        return batch.logits(self, positions)

    def _position(self, position):
        if not 0 <= position < len(self):
            raise Error(Code.BAD_ARGUMENT, f"position {position}, expected 0 to {len(self) - 1}")
        return position

    def _site(self, position, step, layer, kind):
        kinds = self._core.info.kinds
        if isinstance(kind, str):
            if kind not in kinds:
                raise Error(Code.BAD_ARGUMENT, f"kind is {kind!r}, expected one of {', '.join(kinds)}")
            kind = kinds.index(kind)
        return fill(_native.Site(), layer=layer, kind=kind, step=step, position=self._position(position))


class Batch(Handle):
    """Advances rows of sequences of one cache, whatever their depths, by one step at a time. Cache.batch makes it."""

    def __init__(self, cache, max_rows, threads):
        options = fill(_native.BatchOptions(), max_rows=max_rows, threads=threads)
        batch = ctypes.c_void_p()
        with cache._gate.enter():
            call("descent_batch_create", cache._pointer, ctypes.byref(options), ctypes.byref(batch))
        self._life = Life(cache._gate, library.descent_batch_destroy, batch.value, cache._life)
        self._core = cache._core

    def add(self, sequence, most=None):
        """Enrols the next unfinished tokens, at most `most`; returns how many."""
        added = ctypes.c_size_t()
        with self._gate.enter():
            call("descent_batch_add", self._pointer, self._of_cache(sequence),
                 ctypes.c_size_t(-1).value if most is None else most, ctypes.byref(added))
        return added.value

    def remove(self, sequence):
        with self._gate.enter():
            library.descent_batch_remove(self._pointer, self._of_cache(sequence))

    @property
    def rows(self):
        with self._gate.enter():
            return library.descent_batch_rows(self._pointer)

    def step(self):
        """One step; returns {"rows", "finished", "diverged"}."""
        report = _native.StepReport()
        with self._gate.enter():
            call("descent_batch_step", self._pointer, ctypes.byref(report))
        return {name: getattr(report, name) for name in ("rows", "finished", "diverged")}

    def finish(self, sequence):
        with self._gate.enter():
            call("descent_batch_finish", self._pointer, self._of_cache(sequence))

    def logits(self, sequence, positions=None):
        """Next-token logits of finished tokens, [n, V]."""
        length = len(sequence)
        positions = range(length) if positions is None else [sequence._position(i) for i in positions]
        readings = (_native.Reading * len(positions))(*((self._of_cache(sequence), i) for i in positions))
        logits = np.empty((len(positions), self._core.info.vocab), np.float32)
        with self._gate.enter():
            call("descent_batch_logits", self._pointer, readings, len(positions), pointer(logits, ctypes.c_float))
        return logits

    def _of_cache(self, sequence):
        if sequence._life.parent is not self._life.parent:
            raise Error(Code.BAD_ARGUMENT, "the sequence lives in another cache than the batch")
        return sequence._pointer
