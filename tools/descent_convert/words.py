"""Tokenizers that are lists: characters (nanoGPT's meta.pkl, tokenizer.chars.json) and words (a text file, one a line).

Tokens are written as GGUF strings, so each must be text that UTF-8 can hold. Token i has id i; a model may have more ids
than tokens (its vocabulary rounded up), and those have no text.
"""

from dataclasses import dataclass

import gguf

from . import jsonfile, unpickle
from .errors import ConvertError, show

SEPARATOR = ","
END = "<eos>"


@dataclass(frozen=True)
class Chars:
    tokens: list
    kind = "chars"

    def write(self, writer):
        writer.add_tokenizer_model(self.kind)
        writer.add_token_list(self.tokens)


@dataclass(frozen=True)
class Words:
    tokens: list
    kind = "words"

    def write(self, writer):
        writer.add_tokenizer_model(self.kind)
        writer.add_string("tokenizer.descent.separator", SEPARATOR)
        writer.add_token_list(self.tokens)
        normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
        writer.add_token_types([control if t == END else normal for t in self.tokens])
        if END in self.tokens:
            writer.add_eos_token_id(self.tokens.index(END))


def from_meta(data, what):
    """nanoGPT's meta.pkl: `itos` from id to character, `stoi` back, `vocab_size`."""
    meta = unpickle.loads(data, what)
    itos = meta.get("itos") if isinstance(meta, dict) else None
    if isinstance(itos, list):
        itos = dict(enumerate(itos))
    if not isinstance(itos, dict) or not itos:
        raise ConvertError(f"{what}: no dictionary 'itos' from id to character")
    for i in range(len(itos)):
        if i not in itos:
            raise ConvertError(f"{what}: itos has {len(itos)} entries, but none for id {i}")
    tokens = _characters([itos[i] for i in range(len(itos))], what)
    if meta.get("stoi", tokens) not in (tokens, {c: i for i, c in enumerate(tokens)}):
        raise ConvertError(f"{what}: stoi is not the inverse of itos")
    if meta.get("vocab_size", len(tokens)) != len(tokens):
        raise ConvertError(f"{what}: vocab_size is not the number of characters, {len(tokens)}")
    return Chars(tokens)


def from_chars_json(data, what):
    config = jsonfile.Config(jsonfile.loads(data, what), what)
    config.choice("type", ("chars",), jsonfile.REQUIRED)
    config.ignore("tokens")
    config.finish()
    tokens = config.values.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise ConvertError(f"{what}: tokens is no list of characters")
    return Chars(_characters(tokens, what))


def from_lines(data, what):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ConvertError(f"{what}: byte {e.start} is not UTF-8") from None
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise ConvertError(f"{what}: no tokens")
    for number, token in enumerate(lines, 1):
        if token == "" or SEPARATOR in token:
            raise ConvertError(f"{what}: line {number}: {show(token)} cannot be a token of words joined by {show(SEPARATOR)}")
    _distinct(lines, what)
    return Words(lines)


def _characters(tokens, what):
    for i, token in enumerate(tokens):
        if not isinstance(token, str) or len(token) != 1 or 0xD800 <= ord(token) < 0xE000:
            raise ConvertError(f"{what}: token {i} is not one character")
    _distinct(tokens, what)
    return tokens


def _distinct(tokens, what):
    seen = {}
    for i, token in enumerate(tokens):
        if token in seen:
            raise ConvertError(f"{what}: tokens {seen[token]} and {i} are both {show(token)}")
        seen[token] = i
