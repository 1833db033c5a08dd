"""Writes torch's .pt format without torch: the pickle opcode by opcode, the archive through zipfile.

    save(path, {"model": state, ...})     as torch.save; numpy arrays are tensors
    View(array, shape, strides, offset)   a tensor that is a view of another's storage
    Raw(opcodes)                          anything, for pickles nobody should read
"""

import io
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

STORAGE_OF = {"float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage",
              "bool": "BoolStorage", "uint16": "BFloat16Storage"}


@dataclass(eq=False)
class View:
    """`strides` and `offset` in elements of `array`, which is stored once however many views it has."""

    array: np.ndarray
    shape: tuple
    strides: tuple
    offset: int = 0


@dataclass
class Raw:
    opcodes: bytes


def packed_strides(shape):
    return tuple(int(np.prod(shape[i + 1:])) for i in range(len(shape)))


def global_(path):
    module, _, name = path.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


class Writer:
    def __init__(self):
        self.storages = []  # arrays, by key

    def key(self, array):
        for i, known in enumerate(self.storages):
            if known is array:
                return i
        self.storages.append(array)
        return len(self.storages) - 1

    def tensor(self, view):
        storage = (b"(" + text("storage") + global_("torch." + STORAGE_OF[view.array.dtype.name])
                   + text(str(self.key(view.array))) + text("cpu") + self.value(view.array.size) + b"tQ")
        return (global_("torch._utils._rebuild_tensor_v2") + b"(" + storage + self.value(view.offset)
                + self.value(tuple(view.shape)) + self.value(tuple(view.strides)) + b"\x89"
                + global_("collections.OrderedDict") + b")RtR")

    def items(self, mapping):
        return b"(" + b"".join(self.value(k) + self.value(v) for k, v in mapping.items()) + b"u"

    def value(self, value):
        match value:
            case Raw(opcodes):
                return opcodes
            case np.ndarray():
                return self.tensor(View(value, value.shape, packed_strides(value.shape)))
            case View():
                return self.tensor(value)
            case None | True | False:
                return {None: b"N", True: b"\x88", False: b"\x89"}[value]
            case int():
                size = value.bit_length() // 8 + 1
                return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)
            case float():
                return b"G" + struct.pack(">d", value)
            case str():
                return text(value)
            case tuple():
                return b"(" + b"".join(map(self.value, value)) + b"t"
            case list():
                return b"](" + b"".join(map(self.value, value)) + b"e"
            case OrderedDict():  # a state dictionary, with the attribute torch gives it
                metadata = b"}" + text("_metadata") + global_("collections.OrderedDict") + b")Rsb"
                return global_("collections.OrderedDict") + b")R" + self.items(value) + metadata
            case dict():
                return b"}" + self.items(value)
        raise TypeError(type(value))

    def pickle(self, value):
        return b"\x80\x02" + self.value(value) + b"."


def pickled(value):
    return Writer().pickle(value)


def save(path, value, compression=zipfile.ZIP_STORED, root="archive", extra=(), pickle=None):
    """`extra`: further entries (name, bytes); `pickle`: instead of the pickle of `value`."""
    writer = Writer()
    data = writer.pickle(value)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(f"{root}/data.pkl", data if pickle is None else pickle)
        for key, array in enumerate(writer.storages):
            archive.writestr(f"{root}/data/{key}", array.tobytes())
        archive.writestr(f"{root}/version", b"3\n")
        for name, content in extra:
            archive.writestr(name, content)


def saved(value, **options):
    buffer = io.BytesIO()
    save(buffer, value, **options)
    return buffer.getvalue()
