"""A lazy tensor: where numbers lie in a file, read as float32 a few rows at a time.

Both readers (torchzip, stfile) make these; gguf_out reads them. A contiguous tensor, the usual case, never has more than
the rows asked for in memory; a strided one (a transposed or sliced view) has the stretch of the file it covers.
"""

import math
import os
from dataclasses import dataclass

import numpy as np

from .errors import ConvertError, show

CHUNK = 1 << 20  # numbers read at once

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_STORED = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U8": "<u1", "BOOL": "<u1",
}
FLOATS = ("F64", "F32", "F16", "BF16")


def _to_float32(values, dtype):
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


@dataclass(eq=False)
class Tensor:
    """`offset` in bytes from the start of `file`; `strides` in elements, None where rows follow each other closely."""

    file: object
    name: str
    dtype: str
    shape: tuple
    offset: int
    strides: tuple | None = None

    def __post_init__(self):
        if self.strides == self._packed():
            self.strides = None

    @property
    def count(self):
        return math.prod(self.shape)

    def _packed(self):
        strides, step = [], 1
        for n in reversed(self.shape):
            strides.append(step)
            step *= n
        return tuple(reversed(strides))

    @property
    def nbytes(self):
        return self.count * SIZES[self.dtype]

    def _read(self, offset, count):
        """`count` stored elements from byte `offset` of the file."""
        size = count * SIZES[self.dtype]
        buffer = np.empty(size, np.uint8)
        view, done = memoryview(buffer), 0
        while done < size:
            got = os.preadv(self.file.fileno(), [view[done:]], offset + done)
            if got == 0:
                raise ConvertError(f"{show(self.name)}: the file became shorter while it was read")
            done += got
        return buffer.view(_STORED[self.dtype])

    def chunks(self):
        """The numbers in order, as float32 arrays of whole rows (a row is the last dimension)."""
        row = self.shape[-1] if self.shape else 1
        rows = self.count // row if row else 0
        at_once = max(1, CHUNK // max(row, 1))
        strided = self._strided() if self.strides is not None else None
        for first in range(0, rows, at_once):
            n = min(at_once, rows - first)
            if strided is None:
                values = self._read(self.offset + first * row * SIZES[self.dtype], n * row)
            else:
                values = strided[first:first + n]
            yield _to_float32(values, self.dtype).reshape(n, row)

    def _strided(self):
        """A view [rows, row] of the stretch of file a strided tensor covers; copied only where no view exists."""
        reach = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        stored = self._read(self.offset, reach)
        size = SIZES[self.dtype]
        view = np.lib.stride_tricks.as_strided(stored, self.shape, [s * size for s in self.strides], writeable=False)
        return view.reshape(-1, self.shape[-1] if self.shape else 1)


@dataclass(eq=False)
class Stack:
    """Tensors of one row length and type, one under the other, read as the one tensor that they make."""

    parts: list
    name: str

    @property
    def shape(self):
        return (sum(p.shape[0] for p in self.parts), *self.parts[0].shape[1:])

    @property
    def count(self):
        return sum(p.count for p in self.parts)

    @property
    def nbytes(self):
        return sum(p.nbytes for p in self.parts)

    def chunks(self):
        for part in self.parts:
            yield from part.chunks()
