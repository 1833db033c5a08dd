"""The parts of a SentencePiece model file that our metadata carries, read from its protobuf wire format or written in it, and
written into a GGUF file through the public gguf package."""

import struct
from dataclasses import dataclass, field

import gguf


@dataclass
class Model:
    kind: str = "t5"  # tokenizer.ggml.model
    pieces: list = field(default_factory=list)
    scores: list = field(default_factory=list)
    types: list = field(default_factory=list)
    ids: dict = field(default_factory=dict)
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data):
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, at = _varint(data, at)
            value = data[at:at + size]
            at += size
        yield key >> 3, value


def read(data):
    model = Model()
    ids = {40: 0, 41: 1, 42: 2, 43: -1}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            model.pieces.append(piece[1])
            model.scores.append(struct.unpack("<f", piece.get(2, bytes(4)))[0])
            model.types.append(piece.get(3, 1))
        elif number == 2:
            trainer = dict(_fields(value))
            ids.update((n, v) for n, v in trainer.items() if n in ids)
            model.kind = {1: "t5", 2: "llama"}[trainer.get(3, 1)]
        elif number == 3:
            spec = dict(_fields(value))
            model.charsmap = spec.get(2, b"")
            model.add_dummy_prefix = bool(spec.get(3, 1))
            model.remove_extra_whitespaces = bool(spec.get(4, 1))
            assert spec.get(5, 1) == 1
    for number, name in ((40, "unknown"), (41, "bos"), (42, "eos"), (43, "padding")):
        value = ids[number] & 0xFFFFFFFF
        if value < len(model.pieces):
            model.ids[name] = value
    return model


def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(*fields):
    """Fields as (number, value): bytes, a float or an integer."""
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            out += varint(number << 3) + varint(value)
    return out


def write(model):
    """A model file the sentencepiece library takes."""
    pieces = [(1, _message((1, piece), (2, score), (3, kind)))
              for piece, score, kind in zip(model.pieces, model.scores, model.types)]
    ids = {name: model.ids.get(name, -1) for name in ("unknown", "bos", "eos", "padding")}
    trainer = _message((3, {"t5": 1, "llama": 2}[model.kind]), (35, int(6 in model.types)), (40, ids["unknown"]),
                       (41, ids["bos"]), (42, ids["eos"]), (43, ids["padding"]))
    normalizer = _message((2, model.charsmap), (3, int(model.add_dummy_prefix)), (4, int(model.remove_extra_whitespaces)))
    return _message(*pieces, (2, trainer), (3, normalizer))


def write_gguf(model, path, **changed):
    """`changed` replaces fields of the model."""
    fields = {**model.__dict__, **changed}
    writer = gguf.GGUFWriter(path, "cem")
    writer.add_tokenizer_model(fields["kind"])
    writer.add_token_list(fields["pieces"])
    writer.add_token_scores(fields["scores"])
    writer.add_token_types(fields["types"])
    for name, value in fields["ids"].items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", value)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(fields["add_dummy_prefix"])
    writer.add_remove_extra_whitespaces(fields["remove_extra_whitespaces"])
    if fields["charsmap"]:
        writer.add_precompiled_charsmap(fields["charsmap"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
