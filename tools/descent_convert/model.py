"""What the two families have in common: the state dictionary they take tensors from, the model they make of it.

A Model is what gguf_out writes: metadata in order, and tensors that know their GGUF name and where their numbers lie.
Shapes here are in numpy's order, rows first.
"""

from dataclasses import dataclass, field

from .errors import ConvertError, show, shape_text
from .tensor import FLOATS

MAX_STEPS = 65535
MAX_COUNT = (1 << 31) - 1

_WRAPPERS = ("_orig_mod.", "module.")  # torch.compile and DistributedDataParallel put these before every name


@dataclass(frozen=True)
class Weight:
    """`matrix`: takes the type asked for; the rest stays F32."""

    name: str
    source: object
    shape: tuple
    matrix: bool


@dataclass
class Model:
    architecture: str
    variant: str
    vocab: int
    metadata: list = field(default_factory=list)  # (key after the architecture's prefix, "u32" | "i32" | "f32" | "string", value)
    weights: list = field(default_factory=list)

    def add(self, name, source, matrix=False, shape=None):
        self.weights.append(Weight(name, source, shape or source.shape, matrix))

    def put(self, kind, **values):
        """Metadata keys of one type; a double underscore stands for the dot in a key."""
        for key, value in values.items():
            self.metadata.append((key.replace("__", "."), kind, value))

    @property
    def parameters(self):
        return sum(w.source.count for w in self.weights)


class State:
    """A checkpoint's tensors by name, wrappers' prefixes removed. What nobody takes is an error at `finish`."""

    def __init__(self, tensors, what):
        self.what, self.tensors, self.taken = what, {}, set()
        for name, tensor in tensors.items():
            short = name
            while short.startswith(_WRAPPERS):
                short = short[short.index(".") + 1:]
            if short in self.tensors:
                raise ConvertError(f"{what}: two tensors are called {show(short)} once prefixes are removed")
            self.tensors[short] = tensor

    def __contains__(self, name):
        return name in self.tensors

    def __iter__(self):
        return iter(self.tensors)

    def peek(self, name, dimensions=None):
        """The tensor, before its whole shape is known."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ConvertError(f"{self.what}: tensor {show(name)} is missing")
        if dimensions is not None and len(tensor.shape) != dimensions:
            raise ConvertError(f"{self.what}: {show(name)} has shape {shape_text(tensor.shape)}; "
                               f"{dimensions} dimensions expected")
        if any(n == 0 or n > MAX_COUNT for n in tensor.shape):
            raise ConvertError(f"{self.what}: {show(name)} has shape {shape_text(tensor.shape)}")
        return tensor

    def take(self, name, *shape):
        """The weight of that name, which must have that shape."""
        tensor = self.peek(name)
        self.taken.add(name)
        if tensor.shape != shape:
            raise ConvertError(f"{self.what}: {show(name)} has shape {shape_text(tensor.shape)}; "
                               f"{shape_text(shape)} expected")
        if tensor.dtype not in FLOATS:
            raise ConvertError(f"{self.what}: {show(name)} is of type {tensor.dtype}; expected one of {', '.join(FLOATS)}")
        return tensor

    def take_number(self, name):
        """A single number, saved with or without its dimension."""
        return self.take(name, *(() if self.peek(name).shape == () else (1,)))

    def drop(self, name):
        self.taken.add(name)

    def finish(self):
        for name in self.tensors:
            if name not in self.taken:
                raise ConvertError(f"{self.what}: tensor {show(name)} is not part of this model")


def agree(what, key, stated, found, where):
    """A number the configuration states and the tensors show must be the same."""
    if stated is not None and stated != found:
        raise ConvertError(f"{what}: {key} is {stated}, but {where} says {found}")
