"""A tensor whose numbers are made when they are read: what descent_convert takes for a tensor of a checkpoint.

A number is the sum of the four 16-bit parts of one 64-bit word of Philox (a counter-based generator keyed by the seed and
the tensor's name), centred and multiplied by a float32: nearly normal, never beyond 3.47 deviations, and made without a
transcendental function, so that the same seed gives the same bits on every machine. Memory is one chunk, whatever the shape.
"""

import hashlib
import math

import numpy as np

from descent_convert.tensor import CHUNK

_PARTS = 4
_CENTRE = _PARTS * 65535 / 2
_DEVIATION = math.sqrt(_PARTS * (2.0 ** 32 - 1) / 12)


class RandomTensor:
    """mean + diagonal * identity + std * noise, of shape `shape` (rows first). `signs`: std times +1 or -1 instead."""

    dtype = "F32"

    def __init__(self, seed, name, shape, std=0.0, mean=0.0, diagonal=0.0, signs=False):
        self.name, self.shape = name, tuple(shape)
        self.mean, self.diagonal, self.signs = np.float32(mean), np.float32(diagonal), signs
        self.std = np.float32(std)
        digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        self._key = np.frombuffer(digest[:16], "<u8")

    @property
    def count(self):
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return 4 * self.count

    def chunks(self):
        """The numbers in order, as float32 arrays [rows at once, row]."""
        row = self.shape[-1]
        rows, at_once = self.count // row, max(1, CHUNK // row)
        words = np.random.Philox(key=self._key)
        for first in range(0, rows, at_once):
            n = min(at_once, rows - first)
            values = self._noise(words, n * row).reshape(n, row)
            values += self.mean
            if self.diagonal:
                there = np.arange(first, min(first + n, row))
                values[there - first, there] += self.diagonal
            yield values

    def _noise(self, words, count):
        if not self.std:
            return np.zeros(count, np.float32)
        raw = words.random_raw(count)
        if self.signs:
            return np.where(raw >> np.uint64(63), self.std, -self.std)
        noise = raw.view("<u2").reshape(count, _PARTS).sum(axis=1, dtype=np.int32).astype(np.float32)
        noise -= np.float32(_CENTRE)
        noise *= np.float32(float(self.std) / _DEVIATION)
        return noise
