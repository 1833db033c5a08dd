"""A checkpoint, its tokenizer, and what is done with both most of the time."""
import ctypes
import os
from dataclasses import dataclass
from typing import Dict, Tuple

import numpy as np

from . import _native
from ._handles import Gate, Handle, Life
from ._native import Code, Error, call, library
from ._run import Recorder, Run
from ._sequence import Cache, choice, fill, id_array, observe_flags, pointer


@dataclass(frozen=True)
class Info:
    """descent_model_info. `kinds` names the kinds of sub-layer; in their order, `terms` holds each kind's energy terms (none:
    it has no energy) and `trained` each kind's depth (0: it has no T and runs once)."""
    name: str
    family: str
    variant: str
    weight_type: str
    parameters: int
    file_bytes: int
    resident_bytes: int
    fingerprint: int
    width: int
    vocab: int
    context: int
    layers: int
    kinds: Tuple[str, ...]
    terms: Tuple[Tuple[str, ...], ...]
    trained: Tuple[int, ...]
    deepens: bool

    @classmethod
    def of(cls, native):
        plain = {name: getattr(native, name) for name, _ in native._fields_ if name in cls.__dataclass_fields__}
        text = {name: plain[name].decode() for name in ("name", "family", "variant", "weight_type")}
        count = native.kinds
        lists = {
            "kinds": tuple(name.decode() for name in native.kind_names[:count]),
            "terms": tuple(tuple(name.decode() for name in native.term_names[k][:native.terms[k]]) for k in range(count)),
            "trained": tuple(native.trained.steps[:count]),
        }
        return cls(**{**plain, **text, **lists})


@dataclass(frozen=True)
class Tensor:
    name: str
    type: str
    dims: Tuple[int, ...]  # fastest first, as GGUF stores them
    bytes: int


@dataclass(frozen=True)
class TokenizerInfo:
    """Ids are None where the tokenizer has no such token."""
    model: str
    vocab: int
    bos: int
    eos: int
    pad: int
    unknown: int
    adds_bos: bool
    adds_eos: bool


class Core:
    """What a model's caches, sequences and batches need of it; Model has this and a default cache, which has only this."""

    def __init__(self, path):
        model = ctypes.c_void_p()
        call("descent_model_open", os.fsencode(path), ctypes.byref(model))
        self.life = Life(Gate(), library.descent_model_close, model.value)
        self.info = Info.of(library.descent_model_describe(self.life.pointer).contents)

    def depth(self, steps):
        if isinstance(steps, str):
            depth = _native.Depth()
            call("descent_depth_parse", self.life.pointer, steps.encode(), ctypes.byref(depth))
            return depth
        kinds = self.info.kinds
        if steps is None:
            steps = self.info.trained
        elif not isinstance(steps, tuple):
            if not any(self.info.trained):
                raise Error(Code.BAD_ARGUMENT, f"steps is {steps}; no sub-layer of {self.info.name} has a T")
            steps = tuple(steps if trained else 0 for trained in self.info.trained)
        if len(steps) != len(kinds):
            raise Error(Code.BAD_ARGUMENT, f"steps is {steps}, expected one number for each of {', '.join(kinds)}")
        for kind, number, trained in zip(kinds, steps, self.info.trained):
            if trained and (not 1 <= number <= _native.MAX_STEPS or number != int(number)):
                raise Error(Code.BAD_ARGUMENT, f"steps is {number}, expected 1 to {_native.MAX_STEPS}")
            if not trained and number != 0:
                raise Error(Code.BAD_ARGUMENT, f"steps is {number} for {kind}, which has no T here; expected 0")
        return _native.Depth((ctypes.c_uint16 * _native.MAX_KINDS)(*map(int, steps)))

    def depth_dict(self, depth):
        return dict(zip(self.info.kinds, depth.steps))

    def depth_tuple(self, depth):
        return tuple(depth.steps[:len(self.info.kinds)])


class Model(Handle):
    """A GGUF checkpoint. Close it, or use it in a `with`, or leave it to the garbage collector.

    steps, wherever it is asked for, is a depth: a number for every kind of sub-layer that has a T, a tuple of one for each
    kind (0 for those without), or text as the command line takes it ("12", "3x2", "none"); None is the depth the model was trained at.
    """

    def __init__(self, path):
        self._core = Core(path)
        self._life = self._core.life
        self.info = self._core.info
        self._cache = None

    # ---- What it is

    @property
    def metadata(self) -> Dict[str, str]:
        """Every metadata key of the file and its value as text, long arrays shortened."""
        entries, key, value = {}, ctypes.c_char_p(), ctypes.create_string_buffer(4096)
        while library.descent_model_metadata(self._pointer, len(entries), ctypes.byref(key), value, len(value)):
            entries[key.value.decode()] = value.value.decode()
        return entries

    @property
    def tensors(self) -> Tuple[Tensor, ...]:
        found, native = [], _native.TensorInfo()
        while library.descent_model_tensor(self._pointer, len(found), ctypes.byref(native)):
            found.append(Tensor(native.name.decode(), native.type.decode(), tuple(native.dims[:native.n_dims]), native.bytes))
        return tuple(found)

    def bytes_needed(self, tokens, steps=None, page_type="f32"):
        """Memory a sequence of so many tokens holds at this depth."""
        page = choice("page_type", page_type, _native.PAGE_TYPES)
        options = _native.SequenceOptions(depth=self._core.depth(steps))
        return library.descent_cache_bytes_needed(self._pointer, page, tokens, options)

    def multiply_adds(self, tokens, predictions=1, steps=None):
        """What running a text of so many tokens takes at this depth, its logits read at `predictions` of them, counted by the model's
        shape: {"weights", "attention", "head"}."""
        cost = _native.ModelCost()
        call("descent_model_count", self._pointer, ctypes.byref(cost))
        counted = library.descent_measure_cost(ctypes.byref(cost), self._core.depth(steps), tokens, predictions).cost
        return {name: getattr(counted, name) for name in ("weights", "attention", "head")}

    def history_term(self, position):
        """What attention's energy at a position owes to the number of keys alone: energy + history_term compares positions."""
        return library.descent_model_history_term(self._pointer, position)

    # ---- Text

    @property
    def _tokenizer(self):
        tokenizer = library.descent_model_tokenizer(self._pointer)
        if not tokenizer:
            raise Error(Code.UNSUPPORTED, f"{self.info.name} carries no tokenizer: give it token ids")
        return tokenizer

    @property
    def tokenizer(self):
        """TokenizerInfo, or None where the file carries no tokenizer."""
        if not library.descent_model_tokenizer(self._pointer):
            return None
        native = library.descent_tokenizer_describe(self._tokenizer).contents
        values = {name: getattr(native, name) for name, _ in native._fields_}
        for name in ("bos", "eos", "pad", "unknown"):
            values[name] = values[name] if values[name] >= 0 else None
        return TokenizerInfo(**{**values, "model": native.model.decode()})

    def rate(self, layer=0, kind=0, step=0):
        """The rate R of a step beside the norm's weight gamma: the lowest and highest of R_cc / gamma_c, and the share of R's square
        off its diagonal. None where that sub-layer descends no energy. Where low = high > 0 and nothing is off the diagonal no
        slope is negative."""
        rate = _native.Rate()
        site = fill(_native.Site(), layer=layer, kind=kind, step=step, position=0)
        if not library.descent_model_rate(self._pointer, site, ctypes.byref(rate)):
            return None
        return {name: getattr(rate, name) for name, _ in rate._fields_}

    def encode(self, text, add_special=False, parse_special=False):
        """Token ids of a str or bytes, uint32."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        flags = _native.ADD_SPECIAL * bool(add_special) | _native.PARSE_SPECIAL * bool(parse_special)
        ids, count = ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_size_t()
        call("descent_tokenizer_encode", self._tokenizer, data, len(data), flags, ctypes.byref(ids), ctypes.byref(count))
        try:
            return np.ctypeslib.as_array(ids, (count.value,)).copy()
        finally:
            library.descent_free(ids)

    def piece(self, token):
        """The bytes a token appends to a text."""
        size = ctypes.c_size_t()
        text = library.descent_tokenizer_piece(self._tokenizer, token, ctypes.byref(size))
        return ctypes.string_at(text, size.value) if size.value else b""

    def spelling(self, token):
        """The token as the file spells it, its name also where it has no text: "</s>"."""
        size = ctypes.c_size_t()
        text = library.descent_tokenizer_spelling(self._tokenizer, token, ctypes.byref(size))
        return ctypes.string_at(text, size.value).decode() if size.value else ""

    def decode(self, ids):
        """Text of token ids; bytes that are no UTF-8 come out as U+FFFD."""
        return "".join(self.decode_stream(id_array(ids).tolist()))

    def decode_stream(self, ids):
        """Yields the text that has become certain after each id, and last what was held back."""
        decoder = ctypes.c_void_p()
        call("descent_decoder_create", self._tokenizer, ctypes.byref(decoder))
        size = ctypes.c_size_t()

        def text(data):
            if not data:
                raise Error(Code.NO_MEMORY, "no memory to decode")
            return ctypes.string_at(data, size.value).decode()

        try:
            for token in ids:
                yield text(library.descent_decoder_push(decoder, token, ctypes.byref(size)))
            yield text(library.descent_decoder_finish(decoder, ctypes.byref(size)))
        finally:
            library.descent_decoder_destroy(decoder)

    # ---- Descents

    def cache(self, page_type="f32", byte_limit=0, max_rows=0, threads=0):
        """A cache of its own: for f16 pages, a memory limit, or a thread of its own."""
        return Cache(self._core, page_type, byte_limit, max_rows, threads)

    def _default_cache(self):
        if self._cache is None or self._cache.closed:
            self._cache = self.cache()
        return self._cache

    def sequence(self, steps=None, **how):
        """A new sequence in the model's default cache; `how` as Cache.sequence takes it."""
        return self._default_cache().sequence(steps, **how)

    def restore(self, path):
        """The sequence that Sequence.save wrote to a file, in the default cache."""
        return self._default_cache().restore(path)

    def run(self, ids, steps=None, observe=()):
        """Descends a text from its embeddings and returns a Run. observe: some of "energy" (and the split of its changes),
        "convergence" (update norm, relative change), "state" (x and g), "slope", "final" (each of these at x(T) too)."""
        flags, ids = observe_flags(observe), id_array(ids)
        names = tuple(name for name, bit in _native.OBSERVE.items() if flags & bit)
        depth = self._core.depth(steps)
        with self._default_cache().sequence(self._core.depth_tuple(depth), sharing=False) as sequence:
            recorder = Recorder(self.info, depth, ids.size, names)
            if flags:
                sequence._observe(flags, recorder)
            sequence.append(ids)
            logits = sequence.logits()
            return Run(ids, self._core.depth_dict(depth), logits, sequence.states(), recorder.by_kind())

    def logits(self, ids, steps=None):
        """Next-token logits after every token, [L, V]. A list of depths gives [n, L, V]: where the model deepens the whole
        sweep costs its largest depth."""
        sweep = steps if isinstance(steps, list) else [steps]
        depths = [self._core.depth_tuple(self._core.depth(one)) for one in sweep]
        ids = id_array(ids)
        out = np.empty((len(depths), ids.size, self.info.vocab), np.float32)
        with self._default_cache().sequence(sharing=False) as sequence:
            for i in sorted(range(len(depths)), key=depths.__getitem__):
                sequence.set_depth(depths[i])
                if len(sequence) == 0:
                    sequence.append(ids)
                out[i] = sequence.logits()
        return out if isinstance(steps, list) else out[0]

    # ---- Sampling

    def sample(self, logits, tokens=(), prompt_count=None, **knobs):
        """The id that follows `tokens` (the first `prompt_count` of them the prompt, default all) given logits [V]. Knobs
        are the fields of descent_sampling; `bias` is a dict from id to what is added. The random number used depends on
        seed, prompt, choice and the number of tokens alone."""
        logits, tokens = np.ascontiguousarray(logits, np.float32), id_array(tokens)
        if logits.shape != (self.info.vocab,):
            raise Error(Code.BAD_ARGUMENT, f"logits of shape {logits.shape}, expected ({self.info.vocab},)")
        sampling, chosen = sampling_of(knobs), ctypes.c_uint32()
        call("descent_sample", ctypes.byref(sampling), library.descent_model_tokenizer(self._pointer),
             pointer(logits, ctypes.c_float), self.info.vocab, pointer(tokens, ctypes.c_uint32), tokens.size,
             tokens.size if prompt_count is None else prompt_count, ctypes.byref(chosen))
        return chosen.value

    def generate_ids(self, ids, steps=None, max_tokens=None, **knobs):
        """Yields ids that continue `ids`, until EOS (not yielded), `max_tokens` or the context's end."""
        eos = self.tokenizer.eos if self.tokenizer else None
        prompt = id_array(ids)
        room = self.info.context - prompt.size
        with self.sequence(steps) as sequence:
            sequence.append(prompt)
            for _ in range(room if max_tokens is None else min(max_tokens, room)):
                sequence.finish()
                last = sequence.logits([len(sequence) - 1])[0]
                token = self.sample(last, sequence.tokens, prompt.size, **knobs)
                if token == eos:
                    return
                yield token
                sequence.append([token])

    def generate(self, prompt, steps=None, max_tokens=None, **knobs):
        """Yields pieces of text that continue `prompt`; knobs as in sample."""
        ids = self.encode(prompt, add_special=True)
        for text in self.decode_stream(self.generate_ids(ids, steps, max_tokens, **knobs)):
            if text:
                yield text


def sampling_of(knobs):
    """descent_sampling with its defaults where knobs says nothing."""
    sampling = library.descent_sampling_defaults()
    fields = dict(_native.Sampling._fields_)
    for name, value in knobs.items():
        if name not in fields or name == "n_bias":
            known = ", ".join(field for field in fields if field != "n_bias")
            raise TypeError(f"{name!r} is no sampling knob; there are {known}")
        if name == "bias":
            entries = [fill(_native.LogitBias(), token=token, bias=added) for token, added in value.items()]
            sampling.bias, sampling.n_bias = (_native.LogitBias * len(entries))(*entries), len(entries)
        else:
            fill(sampling, **{name: value})
    return sampling
