"""Vocabularies: text to token ids and back, trained in place and saved as the file tools/convert.py takes.

Three kinds with one interface, each as the engine's tokenizer of that kind reads it:

    Chars   one token a character                         tokenizer.chars.json
    Pieces  SentencePiece, BPE or unigram, byte fallback  tokenizer.model
    Words   words joined by a separator (ListOps)         vocab.txt

`size` tokens; `encode(text)` gives a numpy array of the smallest unsigned type that holds an id, `decode(ids)` the text;
`token_bytes` [size] the bytes of text each token stands for; `data` and `file` what `save(directory)` writes and where.
Numpy only; sentencepiece is imported where a Pieces is made. data.py and listops.py make these, the training loop saves them.
"""

import io
import json
import os

import numpy as np

SEPARATOR = ","
END = "<eos>"
SPACE = "\u2581"  # how SentencePiece writes a space
_ENCODED_AT_ONCE = 1 << 20  # characters
_FIXED_PIECES = 3 + 256  # of any SentencePiece model: unknown, begin, end, and the bytes


class DataError(ValueError):
    """A text or setting that data cannot be made of; the message says what and where."""


def id_type(size):
    """The type token ids are stored as."""
    return np.uint16 if size <= 1 << 16 else np.uint32


class Vocab:
    def save(self, directory):
        path = os.path.join(directory, self.file)
        with open(path, "wb") as out:
            out.write(self.data)
        return path


class Chars(Vocab):
    """Characters in the order of their code points. `unknown`, one of them, stands for every character that is not."""

    kind, file = "chars", "tokenizer.chars.json"

    def __init__(self, characters, unknown=None):
        self.tokens = sorted(set(characters))
        self.size = len(self.tokens)
        self.unknown = unknown
        if unknown is not None and unknown not in self.tokens:
            raise DataError(f"{unknown!r} cannot stand for unknown characters: it is not in the vocabulary itself")
        self._points = np.array([ord(c) for c in self.tokens], np.uint32)
        self.token_bytes = np.array([len(c.encode()) for c in self.tokens])

    @property
    def data(self):
        return (json.dumps({"type": "chars", "tokens": self.tokens}) + "\n").encode()

    def encode(self, text):
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        ids = np.minimum(np.searchsorted(self._points, points), self.size - 1)
        unseen = np.flatnonzero(self._points[ids] != points)
        if len(unseen):
            if self.unknown is None:
                raise DataError(f"character {unseen[0]} is {text[unseen[0]]!r}, which the training text does not have "
                                 f"({len(unseen)} such in all); pieces (--vocab bpe:N) spell any")
            ids[unseen] = self.tokens.index(self.unknown)
        return ids.astype(id_type(self.size))

    def decode(self, ids):
        return "".join(self.tokens[i] for i in ids)


class Words(Vocab):
    """Words joined by SEPARATOR; a text is whole words, with or without a separator at its end."""

    kind, file = "words", "vocab.txt"

    def __init__(self, words):
        self.tokens = list(words)
        self.size = len(self.tokens)
        self._ids = {word: i for i, word in enumerate(self.tokens)}
        if len(self._ids) != self.size or any(not w or SEPARATOR in w or "\n" in w for w in self.tokens):
            raise DataError("words must differ, and have no separator or newline in them")
        # The engine writes a separator after every word but the end of text, which has no text.
        self.token_bytes = np.array([0 if w == END else len(w.encode()) + len(SEPARATOR) for w in self.tokens])

    @property
    def data(self):
        return "".join(word + "\n" for word in self.tokens).encode()

    def encode(self, text):
        words = text.split(SEPARATOR)
        if words[-1] == "":
            words.pop()
        try:
            return np.array([self._ids[word] for word in words], id_type(self.size))
        except KeyError as missing:
            raise DataError(f"{missing} is not a word of the vocabulary") from None

    def decode(self, ids):
        return SEPARATOR.join(self.tokens[i] for i in ids)


class Pieces(Vocab):
    """A SentencePiece model, from its serialized form; `train` makes one."""

    kind, file = "pieces", "tokenizer.model"

    def __init__(self, data):
        self.data = data
        self._model = _sentencepiece().SentencePieceProcessor(model_proto=data)
        self.size = self._model.get_piece_size()
        self.token_bytes = np.array([self._bytes_of(i) for i in range(self.size)])

    def _bytes_of(self, i):
        if self._model.is_byte(i):
            return 1
        if self._model.is_control(i):
            return 0
        return len(self._model.id_to_piece(i).replace(SPACE, " ").encode())

    @staticmethod
    def train(text, size, algorithm="bpe"):
        """A model of `size` pieces that takes any text as it is: nothing normalized or put in front, what no piece spells in
        bytes. A newline is a byte, so that no piece crosses a line. The same text gives the same model."""
        if size > len(text) + _FIXED_PIECES:  # sentencepiece would look for them all before it said so
            raise DataError(f"no SentencePiece {algorithm} model of {size} pieces: the text has {len(text)} characters")
        out = io.BytesIO()
        lines = text.split("\n")
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=out, model_type=algorithm, vocab_size=size,
                byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
                max_sentence_length=4 * max(map(len, lines)) + 1, num_threads=1, minloglevel=2)
        except (RuntimeError, OSError) as error:
            raise DataError(f"no SentencePiece {algorithm} model of {size} pieces: {error}") from None
        return Pieces(out.getvalue())

    def encode(self, text):
        """Some lines at a time: since no piece crosses a newline these are the ids of the whole."""
        out = []
        lines = text.splitlines(keepends=True) if "\n" in text else [text]
        held, length = [], 0
        for line in lines:
            held.append(line)
            length += len(line)
            if length >= _ENCODED_AT_ONCE and line.endswith("\n"):
                out.append(self._model.encode("".join(held)))
                held, length = [], 0
        out.append(self._model.encode("".join(held)))
        return np.concatenate([np.asarray(ids, id_type(self.size)) for ids in out])

    def decode(self, ids):
        return self._model.decode([int(i) for i in ids])


def load(kind, data, unknown=None):
    """The vocabulary whose `kind` and `data` these are."""
    if kind == "chars":
        return Chars(json.loads(data)["tokens"], unknown)
    if kind == "words":
        return Words(data.decode().split("\n")[:-1])
    return Pieces(data)


def _sentencepiece():
    try:
        import sentencepiece
    except ImportError:
        raise DataError("a vocabulary of pieces needs the Python package sentencepiece "
                        "(Debian: python3-sentencepiece)") from None
    return sentencepiece
