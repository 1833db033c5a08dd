"""Data: a text, or generated expressions, as two arrays of token ids, and random windows of them.

`Data.train` [n] and `Data.val` [m] are ids of `Data.vocab`; `val_text` is the text `val` encodes, what `descent eval
--file` takes; `starts` are the places windows of `train` may begin at, where it has lines. `text_data` encodes a text once
and keeps the arrays beside the run, mapped from there afterwards; listops.py makes a Data too. `batch` draws from a numpy
generator whose state (`rng_state`) goes into the training loop's checkpoints, so that a run resumed draws what it would
have drawn. Numpy only: the loop makes tensors of what comes out.
"""

import hashlib
import json
import math
import os
from dataclasses import dataclass

import numpy as np

from . import vocab as vocabularies
from .vocab import Chars, Pieces, Vocab, DataError

SPLIT = 0.9
UNPREDICTED = -100  # in the place of a target: what PyTorch's cross-entropy passes over


@dataclass(frozen=True)
class Data:
    train: np.ndarray
    val: np.ndarray
    vocab: Vocab
    val_text: str
    starts: np.ndarray | None = None  # where windows of `train` may begin; None: anywhere
    given: np.ndarray | None = None  # [n] bool: tokens of `train` nobody could predict, a question say; None: none

    @property
    def predicted_bytes(self):
        """Bytes that the predicted tokens of `val`, all but the first, stand for."""
        return int(self.vocab.token_bytes[self.val[1:]].sum())

    def bits_per_byte(self, loss):
        """Of a loss over `val` in nats per token."""
        return loss * (len(self.val) - 1) / (math.log(2) * self.predicted_bytes)


def read_text(path):
    """The file's text, newlines as they are."""
    with open(path, "rb") as file:
        raw = file.read()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8") from None


def split_text(text, fraction=SPLIT):
    """(training, validation) text: the characters before and from int(fraction * n) on."""
    at = int(fraction * len(text))
    if at < 2 or len(text) - at < 2:
        raise DataError(f"{len(text)} characters split at {fraction} leave fewer than two on a side")
    return text[:at], text[at:]


def text_data(path, cache, fraction=SPLIT, vocab="chars", size=None, unknown=None):
    """The text at `path` as Data. `vocab` is chars, or bpe or unigram of `size` pieces, made from the training part alone;
    `unknown` is the character that stands for those of the validation part that the training part lacks. `cache` is a
    directory: a second call with the same text and settings reads there what the first one wrote."""
    text = read_text(path)
    settings = {"text": _digest(text), "fraction": fraction, "vocab": vocab, "size": size,
                "unknown": unknown}
    try:
        training, validation = split_text(text, fraction)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    if _cached(cache) != settings:
        _write_cache(cache, settings, training, validation, _make_vocab(training, vocab, size, unknown))
    with open(os.path.join(cache, "vocab.bin"), "rb") as file:
        made = vocabularies.load("chars" if vocab == "chars" else "pieces", file.read(), unknown)
    train, val = (np.load(os.path.join(cache, name + ".npy"), mmap_mode="r") for name in ("train", "val"))
    return Data(train, val, made, validation)


def _make_vocab(training, vocab, size, unknown):
    if vocab == "chars":
        return Chars(training, unknown)
    if vocab not in ("bpe", "unigram"):
        raise DataError(f"vocab is {vocab!r}; expected chars, bpe or unigram")
    if not size:
        raise DataError(f"a {vocab} vocabulary needs its size in pieces")
    return Pieces.train(training, size, vocab)


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _cached(cache):
    """The settings of what a directory holds; None where it holds nothing whole."""
    try:
        with open(os.path.join(cache, "data.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def is_of_another_text(cache, path):
    """True where a cache was made of a text other than the one now at `path`."""
    settings = _cached(cache)
    return settings is not None and settings["text"] != _digest(read_text(path))


def _write_cache(cache, settings, training, validation, vocab):
    """The settings last: a cache is whole when they are there."""
    os.makedirs(cache, exist_ok=True)
    said = os.path.join(cache, "data.json")
    if os.path.exists(said):
        os.unlink(said)
    for name, text in (("train", training), ("val", validation)):
        try:
            np.save(os.path.join(cache, name + ".npy"), vocab.encode(text))
        except DataError as error:
            raise DataError(f"the {'training' if name == 'train' else 'validation'} text: {error}") from None
    with open(os.path.join(cache, "vocab.bin"), "wb") as file:
        file.write(vocab.data)
    with open(said, "w", encoding="utf-8") as file:
        json.dump(settings, file)


def save_vocab(data, directory):
    """Writes the tokenizer file tools/convert.py takes; returns its path."""
    return data.vocab.save(directory)


def save_validation(data, path):
    """Writes the text that `descent eval --file` measures on, byte for byte."""
    with open(path, "wb") as file:
        file.write(data.val_text.encode())


def batch(tokens, rng, batch_size, length, starts=None, given=None):
    """(x, y), int64 [batch_size, length]: random windows of `tokens` and the tokens after each of theirs, UNPREDICTED where
    `given` says so; they begin at one of `starts` (rising) where these are given."""
    if len(tokens) <= length:
        raise DataError(f"{len(tokens)} tokens are too few for windows of {length}")
    if starts is None:
        starts = rng.integers(0, len(tokens) - length, batch_size)
    else:
        fitting = int(np.searchsorted(starts, len(tokens) - length))
        starts = starts[rng.integers(0, fitting, batch_size)]
    at = starts[:, None] + np.arange(length + 1)
    windows = np.asarray(tokens[at], np.int64)
    x, y = windows[:, :-1], windows[:, 1:]
    return x, y if given is None else np.where(given[at[:, 1:]], UNPREDICTED, y)


def new_rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


def rng_state(rng):
    """The generator's state as a dictionary that JSON and torch.save take."""
    return rng.bit_generator.state


def rng_from_state(state):
    rng = new_rng(0)
    rng.bit_generator.state = state
    return rng
