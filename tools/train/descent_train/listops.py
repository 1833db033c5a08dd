"""ListOps: nested operations modulo 10, generated with their worked chains.

An expression is `op,(,a,b[,c],)` of two or three operands, each a digit or, with probability `nest`, an operation in its
turn down to `depth` operations deep. A training line works it out: the expression, then after each `=` the expression with
its first innermost operation evaluated, down to one digit, and `<eos>`:

    add_10,(,median_10,(,0,2,6,),5,),=,add_10,(,2,5,),=,7,<eos>

Here an expression is a flat list of token ids, which is also how it is worked out: the first `)` closes the first innermost
operation. `data` makes the Data (data.py) and the test items that training draws from and is measured on: the training
lines hold no expression that is a test item and windows begin where lines do, as prompts do. What a line asks is not
trained on: its digits are random, and would be most of the loss. The validation tokens are the worked chains of the test
items. Everything follows from the seed, by Python's own generator, whose random() is the same in every version.
"""

import math
import random
from dataclasses import dataclass, replace

import numpy as np

from .data import Data
from .vocab import END, DataError, Words

OPERATIONS = {
    "min_10": min,
    "max_10": max,
    "median_10": lambda *a: sorted(a)[len(a) // 2],
    "add_10": lambda *a: sum(a) % 10,
    "prod_10": lambda *a: math.prod(a) % 10,
    "nadd_10": lambda a, b, c=0: (a - b + c) % 10,
}
VOCAB = Words([END, "(", ")", "=", *OPERATIONS, *map(str, range(10))])
EOS, OPEN, CLOSE, EQUALS = range(4)
_FIRST_OPERATION, _ZERO = 4, 4 + len(OPERATIONS)
TEST_ITEMS = 1000  # of a run
_TRIES = 1000  # draws for a test item that is new


@dataclass(frozen=True)
class Settings:
    operations: tuple = tuple(OPERATIONS)
    depth: int = 2
    operands: tuple = (2, 3)  # fewest, most
    nest: float = 0.25
    weights: tuple = ()  # how often each operation is drawn for a training line, against 1; (): all alike, as in test items
    flat: float = 0.0  # share of the training lines that nest nothing

    def __post_init__(self):
        for name in self.operations:
            if name not in OPERATIONS:
                raise DataError(f"{name!r} is no operation of ListOps; expected some of {', '.join(OPERATIONS)}")
        fewest, most = self.operands
        if not self.operations or self.depth < 1 or not 2 <= fewest <= most <= 3 or not 0 <= self.nest <= 1:
            raise DataError("ListOps: expected an operation, a depth of at least 1, 2 to 3 operands, 0 <= nest <= 1")
        if self.weights and (len(self.weights) != len(self.operations) or min(self.weights) < 1) or not 0 <= self.flat <= 1:
            raise DataError("ListOps: expected a weight of at least 1 for each operation, and a share of flat lines from 0 to 1")

    def training(self):
        """(settings of a training line that nests, of one that does not)."""
        often = self.weights or (1,) * len(self.operations)
        names = tuple(name for name, weight in zip(self.operations, often) for _ in range(weight))
        nested = replace(self, operations=names, weights=())
        return nested, replace(nested, depth=1)


def parse(text, flat=0.0):
    """Settings of `add_10:4,max_10`: operations, and how often training lines draw them."""
    names, _, weights = zip(*(part.partition(":") for part in text.split(",")))
    if not all(w == "" or w.isdecimal() and len(w) < 4 for w in weights):
        raise DataError(f"{text!r} names no operations of ListOps; expected for example add_10:4,max_10")
    return Settings(operations=names, weights=tuple(int(w or 1) for w in weights) if any(weights) else (), flat=flat)


@dataclass(frozen=True)
class Item:
    """A test item: ids of its expression with the first `=`, and of its value."""

    prompt: tuple
    answer: int

    @property
    def operations(self):
        return self.prompt.count(OPEN)


def data(settings, lines, test_items, seed):
    """(Data, [Item]): `lines` training lines, and `test_items` different expressions that are not among them."""
    draw = random.Random(f"listops test {seed}").random
    held_out = {}
    for _ in range(test_items):
        tries = (tuple(expression(draw, settings)) for _ in range(_TRIES))
        new = next((e for e in tries if e not in held_out), None)
        if new is None:
            raise DataError(f"ListOps: only {len(held_out)} different expressions found, {test_items} test items wanted")
        held_out[new] = chain(new)
    draw = random.Random(f"listops train {seed}").random
    nested, flat = settings.training()
    train, made = bytearray(), 0  # ids are below 256
    while made < lines:
        drawn = expression(draw, flat if settings.flat and draw() < settings.flat else nested)
        if tuple(drawn) not in held_out:
            train.extend(chain(drawn))
            made += 1
    val = [token for worked in held_out.values() for token in worked]
    items = [Item(e + (EQUALS,), worked[-2]) for e, worked in held_out.items()]
    tokens = np.frombuffer(train, np.uint8).astype(np.uint16)
    starts = np.concatenate(([0], np.flatnonzero(tokens[:-1] == EOS) + 1))
    return Data(tokens, np.array(val, np.uint16), VOCAB, VOCAB.decode(val), starts, _questions(tokens, starts)), items


def _questions(tokens, starts):
    """[n] bool: the expression a line begins with, its first `=` included."""
    equals = np.flatnonzero(tokens == EQUALS)
    first = equals[np.searchsorted(equals, starts)]
    lengths = np.diff(np.append(starts, len(tokens)))
    return np.arange(len(tokens)) <= np.repeat(first, lengths)


def expression(draw, settings, depth=None):
    """A random expression; `draw` gives numbers in [0, 1)."""
    depth = settings.depth if depth is None else depth
    fewest, most = settings.operands
    name = settings.operations[int(draw() * len(settings.operations))]
    tokens = [_OPERATION_ID[name], OPEN]
    for _ in range(fewest + int(draw() * (most - fewest + 1))):
        if depth > 1 and draw() < settings.nest:
            tokens += expression(draw, settings, depth - 1)
        else:
            tokens.append(_ZERO + int(draw() * 10))
    tokens.append(CLOSE)
    return tokens


def chain(tokens):
    """The worked chain of an expression, <eos> included; the token before it is the value."""
    tokens = list(tokens)
    out = []
    while len(tokens) > 1:
        out += tokens
        out.append(EQUALS)
        close = tokens.index(CLOSE)
        opened = close - 3 if tokens[close - 3] == OPEN else close - 4
        tokens[opened - 1 : close + 1] = [_VALUES[tokens[opened - 1]][tuple(tokens[opened + 1 : close])]]
    return out + tokens + [EOS]


def write_items(items, path):
    """Lines `prompt TAB answer`, what `descent eval --match` takes."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for item in items:
            file.write(f"{VOCAB.decode(item.prompt)}\t{VOCAB.tokens[item.answer]}\n")


def read_items(path):
    """Items of a file of such lines; the prompt ends at its first `=`."""
    items = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            prompt, tab, answer = line.rstrip("\r\n").partition("\t")
            if not tab:
                raise DataError(f"{path}, line {number}: expected a prompt, a tab and its answer")
            ids = VOCAB.encode(prompt).tolist()
            if EQUALS not in ids or answer not in VOCAB.tokens:
                raise DataError(f"{path}, line {number}: expected a prompt with a '=' and an answer of one word")
            items.append(Item(tuple(ids[: ids.index(EQUALS) + 1]), VOCAB.tokens.index(answer)))
    return items


def _values():
    """{operation id: {operand ids: id of the value}}: 1,100 entries each."""
    digits = range(10)
    pairs = [(a, b) for a in digits for b in digits]
    operands = pairs + [p + (c,) for p in pairs for c in digits]
    return {_FIRST_OPERATION + i: {tuple(_ZERO + d for d in given): _ZERO + apply(*given) for given in operands}
            for i, apply in enumerate(OPERATIONS.values())}


_OPERATION_ID = {name: _FIRST_OPERATION + i for i, name in enumerate(OPERATIONS)}
_VALUES = _values()
