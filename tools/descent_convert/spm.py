"""SentencePiece's tokenizer.model: a serialized protocol buffer, of which a handful of fields matter here.

Owns a small reader of the wire format (_fields), the fields by number, and what the engine's tokenizers honour: BPE and
unigram, with or without byte fallback, normalization by the precompiled map. Anything else is refused by name rather than ignored,
since a text split another way is a wrong answer nobody sees. Defaults are those of sentencepiece_model.proto.
"""

import struct
from dataclasses import dataclass

from . import jsonfile
from .errors import ConvertError, show

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNKNOWN_SURFACE = " \u2047 "  # what the library, and the engine, decode an unknown to
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
_KINDS = {1: "t5", 2: "llama"}  # what llama.cpp calls them


@dataclass
class SentencePiece:
    tokens: list
    scores: list
    types: list
    bos: int | None
    eos: int | None
    unknown: int
    padding: int | None
    add_space_prefix: bool
    remove_extra_whitespaces: bool
    charsmap: bytes
    add_bos: bool = False
    add_eos: bool = False
    kind: str = "llama"

    def write(self, writer):
        writer.add_tokenizer_model(self.kind)
        writer.add_token_list(self.tokens)
        writer.add_token_scores(self.scores)
        writer.add_token_types(self.types)
        write_frame(writer, self)
        writer.add_remove_extra_whitespaces(self.remove_extra_whitespaces)
        if self.charsmap:
            writer.add_precompiled_charsmap(self.charsmap)


def write_frame(writer, tokenizer):
    """What frames a text: special tokens, whether BOS and EOS are added, and the space in front."""
    for value, put in ((tokenizer.bos, writer.add_bos_token_id), (tokenizer.eos, writer.add_eos_token_id),
                       (tokenizer.unknown, writer.add_unk_token_id), (tokenizer.padding, writer.add_pad_token_id)):
        if value is not None:
            put(value)
    writer.add_add_bos_token(tokenizer.add_bos)
    writer.add_add_eos_token(tokenizer.add_eos)
    writer.add_add_space_prefix(tokenizer.add_space_prefix)


def from_model(data, what):
    pieces, trainer, normalizer, denormalizer = [], {}, {}, {}
    parts = {2: trainer, 3: normalizer, 5: denormalizer}
    for number, value in _fields(data, what):
        if number == 1:
            pieces.append(_piece(_message(value, what), len(pieces), what))
        elif number in parts:  # a message that comes in parts is one message
            parts[number].update(_message(value, what))
    kind = _honoured(trainer, normalizer, denormalizer, what)
    tokens, scores, types = ([p[i] for p in pieces] for i in range(3))
    ids = {}
    for i, token in enumerate(tokens):
        if ids.setdefault(token, i) != i:
            raise ConvertError(f"{what}: pieces {ids[token]} and {i} are both {show(token)}")
    _bytes_complete(tokens, types, bool(_integer(trainer, 35, 0, what)), what)
    if kind == "t5":
        _no_nul(tokens, what)
    unknown = [i for i, t in enumerate(types) if t == UNKNOWN]
    if len(unknown) != 1:
        raise ConvertError(f"{what}: {len(unknown)} pieces of type unknown; a model has one")

    def control(number, default):
        i = ids.get(_text(trainer, number, default, what))
        return i if i is not None and types[i] == CONTROL else None

    return SentencePiece(tokens, scores, types, control(46, "<s>"), control(47, "</s>"), unknown[0], control(48, "<pad>"),
                         bool(_integer(normalizer, 3, 1, what)), bool(_integer(normalizer, 4, 1, what)),
                         _bytes(normalizer, 2, what), kind=kind)


def apply_tokenizer_config(tokenizer, data, what):
    """Hugging Face's tokenizer_config.json beside the model may say that BOS or EOS frame a text."""
    config = jsonfile.Config(jsonfile.loads(data, what), what)
    tokenizer.add_bos = config.flag("add_bos_token", False)
    tokenizer.add_eos = config.flag("add_eos_token", False)
    for flag, value, name in ((tokenizer.add_bos, tokenizer.bos, "bos"), (tokenizer.add_eos, tokenizer.eos, "eos")):
        if flag and value is None:
            raise ConvertError(f"{what}: add_{name}_token is true, but the tokenizer has no {name.upper()} piece")


def _honoured(trainer, normalizer, denormalizer, what):
    """The engine's name for the model's algorithm."""
    kind = _integer(trainer, 3, 1, what)
    if kind not in _KINDS:
        raise ConvertError(f"{what}: a SentencePiece model of type {_MODEL_TYPES.get(kind, kind)}; supported: unigram, BPE")
    if _integer(trainer, 24, 0, what):
        raise ConvertError(f"{what}: treat_whitespace_as_suffix is not honoured by this engine's tokenizer")
    if _text(trainer, 44, UNKNOWN_SURFACE, what) != UNKNOWN_SURFACE:
        raise ConvertError(f"{what}: an unk_surface of its own is not honoured by this engine's tokenizer")
    if not _integer(normalizer, 5, 1, what):
        raise ConvertError(f"{what}: escape_whitespaces = false is not honoured by this engine's tokenizer")
    if _bytes(denormalizer, 2, what):
        raise ConvertError(f"{what}: a denormalizer is not honoured by this engine's tokenizer")
    return _KINDS[kind]


def _piece(values, index, what):
    token = _text(values, 1, "", what)
    if not token:
        raise ConvertError(f"{what}: piece {index} is empty")
    score = values.get(2, (5, b"\0\0\0\0"))
    kind = _integer(values, 3, NORMAL, what)
    if score[0] != 5 or kind not in range(1, 7):
        raise ConvertError(f"{what}: piece {index} has a score or type of the wrong kind")
    score = struct.unpack("<f", score[1])[0]
    if score - score != 0:
        raise ConvertError(f"{what}: piece {index} has a score that is not finite")
    return token, score, kind


def _no_nul(tokens, what):
    """The library's unigram ends a piece at its first NUL, so that such a piece would be found where it does not stand."""
    for i, token in enumerate(tokens):
        if "\0" in token:
            raise ConvertError(f"{what}: piece {i}, {show(token)}, holds a NUL, which unigram models do not honour")


def _bytes_complete(tokens, types, fallback, what):
    """Byte fallback needs a piece for every byte; without it byte pieces would never be used."""
    found = {t for t, kind in zip(tokens, types) if kind == BYTE}
    expected = {f"<0x{b:02X}>" for b in range(256)} if fallback else set()
    if found != expected:
        raise ConvertError(f"{what}: byte_fallback is {str(fallback).lower()}, but there are {len(found)} byte pieces "
                           "instead of " + ("<0x00> to <0xFF>" if fallback else "none"))


# -- Protocol buffer wire format: a field is a varint of (number << 3 | wire type), then its value.

def _varint(data, at, what):
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ConvertError(f"{what}: no SentencePiece model (ends inside a field)")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ConvertError(f"{what}: no SentencePiece model (a number of more than ten bytes)")


def _fields(data, what):
    """(field number, (wire type, value)) in order: int for varints, bytes for the rest."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at, what)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at, what)
        else:
            if wire == 2:
                size, at = _varint(data, at, what)
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
            else:
                raise ConvertError(f"{what}: no SentencePiece model (wire type {wire} at byte {at})")
            if size > len(data) - at:
                raise ConvertError(f"{what}: no SentencePiece model (ends inside a field)")
            value = bytes(data[at:at + size])
            at += size
        if number == 0:
            raise ConvertError(f"{what}: no SentencePiece model (field number 0)")
        yield number, (wire, value)


def _message(value, what):
    """The fields of a message by number; of one that appears more than once the last counts."""
    if value[0] != 2:
        raise ConvertError(f"{what}: no SentencePiece model (a message expected)")
    return dict(_fields(value[1], what))


def _integer(values, number, default, what):
    wire, value = values.get(number, (0, default))
    if wire != 0:
        raise ConvertError(f"{what}: field {number} is no number")
    return value


def _bytes(values, number, what):
    wire, value = values.get(number, (2, b""))
    if wire != 2:
        raise ConvertError(f"{what}: field {number} is no text")
    return value


def _text(values, number, default, what):
    if number not in values:
        return default
    try:
        return _bytes(values, number, what).decode("utf-8")
    except UnicodeDecodeError:
        raise ConvertError(f"{what}: text that is not UTF-8") from None
