"""A .safetensors file as a dictionary of lazy tensors: an 8-byte length, a JSON header, the numbers.

As the format demands, tensors neither overlap nor leave gaps; with that, what the header describes is never more than
what the file holds.
"""

import os
import struct

from . import jsonfile
from .errors import ConvertError, show, shape_text
from .tensor import SIZES, Tensor

MAX_HEADER = 8 << 20


def read(file, path):
    """Name to lazy Tensor for every tensor in the open file."""
    length = os.fstat(file.fileno()).st_size
    start = os.pread(file.fileno(), 8, 0)
    if len(start) < 8:
        raise ConvertError(f"{path}: {length} bytes are no safetensors file")
    size, = struct.unpack("<Q", start)
    if size > MAX_HEADER or size > length - 8:
        raise ConvertError(f"{path}: a header of {size} bytes in a file of {length}; is it complete?")
    header = jsonfile.loads(os.pread(file.fileno(), size, 8), f"{path}: header")
    if not isinstance(header, dict):
        raise ConvertError(f"{path}: header: an object expected")
    header.pop("__metadata__", None)
    tensors = {name: _tensor(file, path, name, entry, 8 + size) for name, entry in header.items()}
    at = 8 + size
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset != at:
            raise ConvertError(f"{path}: {show(tensor.name)} begins at byte {tensor.offset}; expected {at}, where the "
                               "tensor before it ends")
        at += tensor.nbytes
    if at != length:
        raise ConvertError(f"{path}: the tensors end at byte {at}, the file at {length}")
    return tensors


def _counts(value):
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in value)


def _tensor(file, path, name, entry, data):
    what = f"{path}: {show(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ConvertError(f"{what}: dtype, shape and data_offsets expected")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise ConvertError(f"{what}: type {show(dtype)} is not read")
    if not _counts(shape) or len(shape) > 8:
        raise ConvertError(f"{what}: shape is not a list of at most 8 counts")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ConvertError(f"{what}: data_offsets are not two counts in order")
    tensor = Tensor(file, name, dtype, tuple(shape), data + offsets[0])
    if tensor.nbytes != offsets[1] - offsets[0]:
        raise ConvertError(f"{what}: shape {shape_text(shape)} of {dtype} needs {tensor.nbytes} bytes, data_offsets give "
                           f"{offsets[1] - offsets[0]}")
    return tensor
