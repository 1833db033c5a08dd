"""Byte pair encodings: the tokenizer that is written for them, and the checks that all files they are read from share.

Two kinds (docs/format.md): `gpt2` merges bytes, each spelled as one character of GPT-2's alphabet; `llama` merges characters
and falls back to byte tokens. Token i has id i. Added tokens are those found in a text before anything else is done with it.
"""

from dataclasses import dataclass, field

from .errors import ConvertError, show
from .spm import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, write_frame

LSTRIP, RSTRIP, SINGLE_WORD, NORMALIZED, OUTSIDE = 1, 2, 4, 8, 16  # flags of an added token
MAX_TOKENS = 1 << 22
MAX_TOKEN_BYTES = 65535
MAX_MERGES = 1 << 23


def _byte_alphabet():
    """Character of each byte: itself where it is visible in Latin-1, else the next one from U+0100 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


BYTE_ALPHABET = _byte_alphabet()
_ALPHABET = frozenset(BYTE_ALPHABET)
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def spell(data):
    """Bytes in GPT-2's alphabet."""
    return "".join(BYTE_ALPHABET[byte] for byte in data)


@dataclass
class Added:
    """A token found in the text as it stands; special ones (BOS, EOS and the like) only where the caller allows it."""

    id: int
    text: str
    special: bool
    flags: int = 0


@dataclass
class BytePairs:
    kind: str  # gpt2 or llama
    tokens: list
    types: list
    merges: list  # (left, right), best first
    flags: list  # per token
    pre: str | None = None  # the pattern's name, gpt2 only
    normalizer: str = "none"
    ignore_merges: bool = False
    add_space_prefix: bool = False
    space_prefix: str = "prepend"
    bos: int | None = None
    eos: int | None = None
    unknown: int | None = None
    padding: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    notes: list = field(default_factory=list)  # what a person should know of the conversion

    def write(self, writer):
        writer.add_tokenizer_model(self.kind)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges([f"{left} {right}" for left, right in self.merges])
        if self.kind == "gpt2":
            writer.add_tokenizer_pre(self.pre)
            writer.add_string("tokenizer.descent.normalizer", self.normalizer)
            writer.add_bool("tokenizer.descent.ignore_merges", self.ignore_merges)
        else:
            writer.add_token_scores(self._scores())
            writer.add_string("tokenizer.descent.space_prefix", self.space_prefix)
        if any(self.flags):
            writer.add_array("tokenizer.descent.token_flags", bytes(self.flags))
        write_frame(writer, self)

    def _scores(self):
        """For readers that merge by score, as SentencePiece does: -rank of the merge that makes a token first, characters last."""
        ranks = {}
        for rank, (left, right) in enumerate(self.merges):
            ranks.setdefault(left + right, rank)
        return [-float(ranks.get(token, len(self.merges))) if kind == NORMAL else 0.0
                for token, kind in zip(self.tokens, self.types)]


# -- Checks

def check_token(text, where):
    """A token's text: what GGUF can hold and the engine reads."""
    if not isinstance(text, str) or not text:
        raise ConvertError(f"{where}: a token that is {'empty' if text == '' else 'no text'}")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise ConvertError(f"{where}: token {show(text)} holds half a surrogate pair, which is no text") from None
    if size > MAX_TOKEN_BYTES:
        raise ConvertError(f"{where}: a token of {size} bytes; at most {MAX_TOKEN_BYTES} are read")


def check_vocab(vocab, limit, where):
    """`vocab`: an object from token to id below `limit`, no id twice. Holes are allowed."""
    if not isinstance(vocab, dict) or not vocab:
        raise ConvertError(f"{where}: no object from token to id")
    texts = {}
    for text, i in vocab.items():
        check_token(text, where)
        check_id(i, text, limit, where)
        if texts.setdefault(i, text) != text:
            raise ConvertError(f"{where}: {show(texts[i])} and {show(text)} both have id {i}")


def check_id(i, text, limit, where):
    if type(i) is not int or i < 0:
        raise ConvertError(f"{where}: token {show(text)} has an id that is no whole number from 0 on")
    if i >= limit:
        raise ConvertError(f"{where}: token {show(text)} has id {i}; the model has ids below {limit}")


def assemble(vocab, added, normal_type, where):
    """Tokens, types and flags by id. `normal_type(text)`: the type of a token of the vocabulary that is not added."""
    tokens = [None] * (1 + max([*vocab.values(), *(a.id for a in added)]))
    types, flags = [UNUSED] * len(tokens), [0] * len(tokens)
    for text, i in vocab.items():
        tokens[i], types[i] = text, normal_type(text)
    seen = dict(vocab)
    for a in added:
        if tokens[a.id] not in (None, a.text):
            raise ConvertError(f"{where}: added token {show(a.text)} has id {a.id}, which is {show(tokens[a.id])}")
        if seen.setdefault(a.text, a.id) != a.id:
            raise ConvertError(f"{where}: added token {show(a.text)} has ids {seen[a.text]} and {a.id}")
        tokens[a.id], types[a.id], flags[a.id] = a.text, CONTROL if a.special else USER_DEFINED, a.flags
    for i, text in enumerate(tokens):
        if text is None:  # an id without a token: the list needs a name for it
            text = f"[PAD{i}]"
            while text in seen:
                text = f"[{text}]"
            tokens[i] = text
            seen[text] = i
    return tokens, types, flags


def check_bytes(vocab, added, unknown, types, where):
    """Every byte has a token of its own or is `unknown`, and every token that is not an added one is spelled in the alphabet."""
    for byte, character in enumerate(BYTE_ALPHABET):
        if character not in vocab and unknown is None:
            raise ConvertError(f"{where}: no token for byte 0x{byte:02X} ({show(character)}); texts with it could not be encoded")
        if character in vocab and not _merges(character, types[vocab[character]]):
            raise ConvertError(f"{where}: the token of byte 0x{byte:02X}, {show(character)}, is an added one, found as text")
    plain = {a.text for a in added}
    for text in vocab:
        if text not in plain and not _ALPHABET.issuperset(text):
            raise ConvertError(f"{where}: token {show(text)} is not spelled in the byte alphabet of ByteLevel")


def check_fallback(vocab, where):
    missing = [text for text in BYTE_TOKENS if text not in vocab]
    if missing:
        raise ConvertError(f"{where}: byte_fallback is true, but {len(missing)} of the tokens <0x00> to <0xFF> are missing, "
                           f"the first {missing[0]}")


def fallback_type(text):
    return BYTE if text in _BYTE_TOKENS else NORMAL


_BYTE_TOKENS = frozenset(BYTE_TOKENS)


def _merges(text, kind):
    """Whether a token takes part in merges; an added one, found as text, only where that is what its bytes spell too."""
    return kind == NORMAL or kind == USER_DEFINED and all(" " < c <= "~" for c in text)


def check_merges(merges, vocab, types, where):
    """Every merge makes a token of two tokens, none of them special or a byte's, and no pair is there twice."""
    seen = set()
    for rank, pair in enumerate(merges):
        left, right = pair
        if pair in seen:
            raise ConvertError(f"{where}: merge {rank}, {show(' '.join(pair))}, is there twice")
        seen.add(pair)
        for text in (left, right, left + right):
            i = vocab.get(text)
            if i is None:
                raise ConvertError(f"{where}: merge {rank}, {show(' '.join(pair))}: {show(text)} is no token")
            if not _merges(text, types[i]):
                raise ConvertError(f"{where}: merge {rank}, {show(' '.join(pair))}: {show(text)} is no token of the text, but an "
                                   "added or a byte's one")


def split_merges(merges, where):
    """Pairs from either spelling, \"left right\" or [\"left\", \"right\"]."""
    if not isinstance(merges, list) or not merges:
        raise ConvertError(f"{where}: no list of merges")
    if len(merges) > MAX_MERGES:
        raise ConvertError(f"{where}: {len(merges)} merges; at most {MAX_MERGES} are read")
    pairs = []
    for rank, merge in enumerate(merges):
        parts = tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) if isinstance(merge, list) else ()
        if len(parts) != 2 or not all(isinstance(part, str) and part and " " not in part for part in parts):
            raise ConvertError(f"{where}: merge {rank} is no pair of tokens without spaces")
        pairs.append(parts)
    return pairs
