"""Writes the seeds of the GGUF fuzzer, tests/fuzz/corpus/gguf: small files that open and a few that are refused late.

Run by hand when the seeds change; the files themselves are in the repository.
"""

import pathlib
import struct

VALUES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "u64": 10, "i64": 11, "f64": 12}
CODES = dict(zip(VALUES, "BbHhIif?Qqd"))
STRING, ARRAY = 8, 9


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def number(kind, value):
    return struct.pack("<I" + CODES[kind], VALUES[kind], value)


def string(value):
    return struct.pack("<I", STRING) + text(value)


def strings(*values):
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(text, values))


def numbers(kind, *values):
    return struct.pack(f"<IIQ{len(values)}{CODES[kind]}", ARRAY, VALUES[kind], len(values), *values)


def nested(*arrays):
    """Arrays made by the two above, less their own leading type."""
    return struct.pack("<IIQ", ARRAY, ARRAY, len(arrays)) + b"".join(a[4:] for a in arrays)


def tensor(name, dims, kind, data):
    return name, dims, kind, data


def file(metadata, tensors=(), alignment=32, end=b""):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value for key, value in metadata)
    data = b""
    for name, dims, kind, raw in tensors:
        data += bytes(-len(data) % alignment)
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += raw
    return head + bytes(-len(head) % alignment) + data + end


def seeds():
    yield "empty", file([])
    yield "numbers", file([(kind, number(kind, 1)) for kind in VALUES])
    yield "strings", file([("a", string("plain")), ("b", string("caf\u00e9 \U0001f600\n\x00")), ("c", string(b"\xff\xc2\x85\\"))])
    yield "arrays", file([
        ("tokens", strings("a", "", "\u2581the", b"\x80\"")), ("scores", numbers("f32", 0.5, -1e30)), ("types", numbers("i32", 1, -1)),
        ("ids", numbers("u32", 1, 2**32 - 1)), ("map", numbers("u8", *range(20))), ("flags", numbers("bool", True, False)),
        ("none", numbers("u64"))])
    yield "nested", file([("n", nested(numbers("u8", 1, 2), strings("x"), nested(numbers("f64", 1.0)), nested()))])
    yield "tensors", file(
        [("general.architecture", string("nrgpt")), ("nrgpt.steps", number("u32", 12)), ("nrgpt.norm_epsilon", number("f32", 1e-5))],
        [tensor("f32", [2, 3], 0, bytes(24)), tensor("f16", [3], 1, bytes(6)), tensor("q8_0", [32, 2], 8, bytes(68)),
         tensor("bf16", [1, 1, 1, 2], 30, bytes(4)), tensor("q4_k", [256], 12, bytes(144))])
    yield "alignment", file([("general.alignment", number("u32", 8))], [tensor("a", [3], 24, b"abc"), tensor("b", [1], 28, bytes(8))], 8)
    yield "duplicate_key", file([("k", number("u8", 1)), ("k", number("u8", 2))])
    yield "overlap", file([], [tensor("a", [1], 24, b""), tensor("b", [1], 24, b"x")])
    yield "cut_short", file([], [tensor("a", [64], 24, bytes(63))])


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "corpus" / "gguf"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)
