"""Reads a pickle as data. Owns: the opcodes, and the short list of names a checkpoint may mention.

A pickle is a program for a small stack machine, and Python's own machine lets it call anything that can be imported.
This one interprets the opcodes itself and has nothing to call: a name resolves to a marker when it is on the list below
and is an error otherwise, and the only "calls" it knows are written out in _reduce. The result is made of dict, list,
tuple, str, bytes, int, float, bool, None and TensorRef; whoever asked decides what they mean.

What a pickle can cost is bounded before it is read: its length, its opcodes, the digits of a number. Containers are
shared, never copied, so nothing grows faster than the pickle is long; keys are text or numbers, so that no nest of
shared tuples has to be hashed. torchzip reads data.pkl with it, words reads nanoGPT's meta.pkl.
"""

import struct
from dataclasses import dataclass

from .errors import ConvertError, show

MAX_BYTES = 16 << 20
MAX_OPCODES = 1_500_000
MAX_INT_BYTES = 16
MAX_DIMENSIONS = 8

# torch's storage classes: the element type of a tensor's numbers.
STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8",
    "ByteStorage": "U8", "BoolStorage": "BOOL",
}

_ORDERED_DICT = "collections.OrderedDict"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_PARAMETER = "torch._utils._rebuild_parameter"
_KNOWN = {_ORDERED_DICT, _TENSOR, _PARAMETER} | {"torch." + name for name in STORAGES}


@dataclass(frozen=True, slots=True)
class Name:
    """A name on the list, where the pickle mentions it. Inert."""

    path: str


@dataclass(frozen=True, slots=True)
class StorageRef:
    dtype: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A view of a storage: element offset, sizes and strides, checked to stay inside `storage.count`."""

    storage: StorageRef
    offset: int
    shape: tuple
    strides: tuple


class OrderedDict(dict):
    """collections.OrderedDict of the pickle; torch hangs a `_metadata` attribute on it, which is dropped."""


class _Mark:
    pass


_MARK = _Mark()


def loads(data, what):
    """The value the pickle `data` describes. `what` names it in messages."""
    if len(data) > MAX_BYTES:
        raise ConvertError(f"{what}: {len(data)} bytes of pickle; at most {MAX_BYTES} are read")
    return _Machine(data, what).run()


class _Machine:
    def __init__(self, data, what):
        self.data, self.what, self.at = data, what, 0
        self.stack, self.memo = [], {}

    def error(self, text):
        return ConvertError(f"{self.what}: {text} (at byte {self.at} of the pickle)")

    def run(self):
        for _ in range(MAX_OPCODES):
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                value = self.pop()
                if isinstance(value, (Name, StorageRef)):
                    raise self.error("the pickle holds no dictionary")
                return value
            action = _ACTIONS.get(code)
            if action is None:
                raise self.error(f"opcode 0x{code:02x} has no place in a checkpoint; nothing was run")
            action(self)
        raise self.error(f"more than {MAX_OPCODES} opcodes")

    # -- Bytes

    def take(self, count):
        if count > len(self.data) - self.at:
            raise self.error("the pickle ends early")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, layout):
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self, count):
        try:
            return self.take(count).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("text that is not UTF-8") from None

    def line(self):
        end = self.data.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise self.error("a name that does not end")
        value = self.text(end - self.at)
        self.at += 1
        return value

    def long(self, count):
        if count > MAX_INT_BYTES:
            raise self.error(f"an integer of {count} bytes; at most {MAX_INT_BYTES} are read")
        return int.from_bytes(self.take(count), "little", signed=True)

    # -- Stack

    def push(self, value):
        self.stack.append(value)

    def pop(self):
        if not self.stack or self.stack[-1] is _MARK:
            raise self.error("the pickle takes more from its stack than it put there")
        return self.stack.pop()

    def top(self, kind, what):
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise self.error(f"{what} expected on the stack")
        return self.stack[-1]

    def pop_mark(self):
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                values = self.stack[i + 1:]
                del self.stack[i:]
                return values
        raise self.error("no mark on the stack")

    def tuple_of(self, count):
        values = tuple(self.pop() for _ in range(count))
        self.push(values[::-1])

    def remember(self, index):
        if not self.stack or self.stack[-1] is _MARK:
            raise self.error("nothing to remember")
        self.memo[index] = self.stack[-1]

    def recall(self, index):
        if index not in self.memo:
            raise self.error(f"memo entry {index} was never set")
        self.push(self.memo[index])

    # -- Containers

    def append(self, values):
        self.top(list, "a list").extend(values)

    def set_items(self, values):
        target = self.top(dict, "a dictionary")
        if len(values) % 2:
            raise self.error("a key without a value")
        for key, value in zip(values[::2], values[1::2]):
            if not isinstance(key, (str, bytes, int, float)) and key is not None:
                raise self.error(f"a dictionary key of type {type(key).__name__}; text and numbers are read")
            target[key] = value

    def dict_of(self, values):
        self.push({})
        self.set_items(values)

    # -- Names and what may be done with them

    def name(self, module, attribute):
        path = f"{module}.{attribute}"
        if path not in _KNOWN:
            raise ConvertError(f"{self.what} names {show(path)}: a checkpoint may hold tensors, containers, numbers and "
                               "text; nothing was run")
        self.push(Name(path))

    def stack_global(self):
        attribute, module = self.pop(), self.pop()
        if not isinstance(attribute, str) or not isinstance(module, str):
            raise self.error("a name that is not text")
        self.name(module, attribute)

    def persistent(self):
        """A storage: ('storage', class, key in the archive, device, number of elements)."""
        value = self.pop()
        match value:
            case ("storage", Name(path), str(key), str(), int(count)) if path.removeprefix("torch.") in STORAGES:
                if isinstance(count, bool) or count < 0:
                    raise self.error("a storage of a negative number of elements")
                self.push(StorageRef(STORAGES[path.removeprefix("torch.")], key, count))
            case _:
                raise self.error("a persistent id that is no tensor storage")

    def reduce(self):
        arguments, callee = self.pop(), self.pop()
        if not isinstance(callee, Name) or not isinstance(arguments, tuple):
            raise self.error("a call of something that is not a name; nothing was run")
        self.push(self.reduced(callee.path, arguments))

    def reduced(self, path, arguments):
        if path == _ORDERED_DICT and arguments == ():
            return OrderedDict()
        if path == _TENSOR and len(arguments) in (6, 7):
            return self.tensor(*arguments[:4])
        if path == _PARAMETER and len(arguments) == 3 and isinstance(arguments[0], TensorRef):
            return arguments[0]
        raise self.error(f"{path} with arguments that torch does not write")

    def tensor(self, storage, offset, shape, strides):
        if not isinstance(storage, StorageRef):
            raise self.error("a tensor without a storage")
        if not (isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)):
            raise self.error("a tensor whose sizes and strides do not match")
        if len(shape) > MAX_DIMENSIONS:
            raise self.error(f"a tensor of {len(shape)} dimensions")
        if not all(type(n) is int and 0 <= n < 1 << 48 for n in (offset, *shape, *strides)):
            raise self.error("a tensor whose offset, sizes or strides are not counts")
        if 0 not in shape and offset + sum((n - 1) * s for n, s in zip(shape, strides)) >= storage.count:
            raise self.error(f"a tensor that reaches past its storage of {storage.count} elements")
        return TensorRef(storage, offset, shape, strides)

    def build(self):
        """torch's state dictionaries carry `_metadata` as an attribute: version numbers, which nobody here needs."""
        state = self.pop()
        target = self.top(object, "a dictionary")
        if type(target) is not OrderedDict or type(state) is not dict or set(state) - {"_metadata"}:
            raise self.error("an object with a state of its own; nothing was run")

    def protocol(self):
        version = self.take(1)[0]
        if version > 5:
            raise self.error(f"pickle protocol {version}")


_ACTIONS = {
    0x80: _Machine.protocol,
    0x95: lambda m: m.take(8),  # FRAME: a hint for buffered readers
    0x28: lambda m: m.push(_MARK),
    0x30: lambda m: m.pop(),
    0x31: lambda m: m.pop_mark(),
    0x32: lambda m: m.push(m.top(object, "a value")),  # DUP
    0x4E: lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x4A: lambda m: m.push(m.number("<i")),
    0x4B: lambda m: m.push(m.number("<B")),
    0x4D: lambda m: m.push(m.number("<H")),
    0x8A: lambda m: m.push(m.long(m.number("<B"))),
    0x8B: lambda m: m.push(m.long(m.number("<I"))),
    0x47: lambda m: m.push(m.number(">d")),
    0x58: lambda m: m.push(m.text(m.number("<I"))),
    0x8C: lambda m: m.push(m.text(m.number("<B"))),
    0x8D: lambda m: m.push(m.text(m.number("<Q"))),
    0x42: lambda m: m.push(bytes(m.take(m.number("<I")))),
    0x43: lambda m: m.push(bytes(m.take(m.number("<B")))),
    0x5D: lambda m: m.push([]),
    0x6C: lambda m: m.push(m.pop_mark()),
    0x61: lambda m: m.append([m.pop()]),
    0x65: lambda m: m.append(m.pop_mark()),
    0x29: lambda m: m.push(()),
    0x74: lambda m: m.push(tuple(m.pop_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    0x7D: lambda m: m.push({}),
    0x64: lambda m: m.dict_of(m.pop_mark()),
    0x73: lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    0x75: lambda m: m.set_items(m.pop_mark()),
    0x71: lambda m: m.remember(m.number("<B")),
    0x72: lambda m: m.remember(m.number("<I")),
    0x94: lambda m: m.remember(len(m.memo)),
    0x68: lambda m: m.recall(m.number("<B")),
    0x6A: lambda m: m.recall(m.number("<I")),
    0x63: lambda m: m.name(m.line(), m.line()),
    0x93: _Machine.stack_global,
    0x51: _Machine.persistent,
    0x52: _Machine.reduce,
    0x62: _Machine.build,
}
