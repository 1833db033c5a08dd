"""BPE as the converter writes it and the engine runs it, against tiktoken and Hugging Face's tokenizers: the same ids for every
text, special tokens parsed or not, and the same text for any ids."""

import pathlib
import random
import sys
import unicodedata

import gguf
import pytest

import bpe_vocabularies as vocabularies
import strings
from conftest import Tool, corpus

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from descent_convert import bpe, source  # noqa: E402

COUNT = 10500
BYTE_OF = {c: byte for byte, c in vocabularies.BYTE_ALPHABET.items()}
NAMES = [f"trained-{name}" for name in vocabularies.TRAINED] + [f"real-{name}" for name in vocabularies.REAL]


class Pair:
    """A reference and our tool on one vocabulary."""

    def __init__(self, path, encode, decode, special, folder):
        self.encode, self.decode, self.special = encode, decode, special
        self.tokenizer = source.read_tokenizer(str(path), bpe.MAX_TOKENS)
        out = folder / "tokenizer.gguf"
        writer = gguf.GGUFWriter(out, "nrgpt")
        self.tokenizer.write(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        self.tool = Tool(out)


@pytest.fixture(scope="module", params=NAMES)
def pair(request, tmp_path_factory):
    kind, name = request.param.split("-", 1)
    folder = tmp_path_factory.mktemp(name)
    if kind == "trained":
        path = folder / "tokenizer.json"
        made = vocabularies.hugging_face(path, vocabularies.trained(name, corpus()[1], path))
    else:
        made = vocabularies.real(name, folder)
    pair = Pair(*made, folder)
    pair.name = request.param
    yield pair
    pair.tool.close()


@pytest.fixture(scope="module")
def texts(words):
    """Texts of assigned characters: Unicode versions of the libraries differ, and what one knows another may not."""
    valid = []
    for data in strings.generate(words, 2 * COUNT, seed=21):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        valid.append("".join(c for c in text if c.isascii() or unicodedata.category(c) != "Cn"))
    assert len(valid) > COUNT
    return valid[:COUNT]


def is_utf8(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture(scope="module")
def broken(words):
    return [text for text in strings.generate(words, 9000, seed=31) if not is_utf8(text)]


def with_special(texts, special, seed):
    """A third of the texts with special tokens put in, in words and between spaces."""
    rng = random.Random(seed)
    for text in texts:
        if rng.random() < 0.34:
            for _ in range(rng.randint(1, 3)):
                at = rng.randint(0, len(text))
                text = text[:at] + rng.choice(["", " ", "  ", "\n"]) + rng.choice(special) + rng.choice(["", " ", "\t "]) + text[at:]
        yield text


def test_same_ids(pair, texts):
    """Special tokens parsed in every other text."""
    for i, text in enumerate(with_special(texts, pair.special, seed=1)):
        special = i % 2 == 0
        assert pair.tool.encode(text.encode(), special) == pair.encode(text, special), (text, special)


def test_any_ids_decode_the_same(pair, texts):
    """What is left out on purpose: special tokens, which decode to nothing here; added tokens whose letters ByteLevel takes for
    bytes, or whose space in front Strip takes for its own; random byte tokens, since ByteFallback gives up a whole run of them
    where one byte is wrong, and a stream that is read as it comes cannot take back what it said."""
    rng = random.Random(2)
    byte_level = pair.tokenizer.kind == "gpt2"

    def comparable(text, kind):
        return kind == 1 or kind == 4 and (text.isascii() if byte_level else not text.startswith(" "))

    usable = [i for i, (text, kind) in enumerate(zip(pair.tokenizer.tokens, pair.tokenizer.types)) if comparable(text, kind)]
    bytes_too = {*usable, *(i for i, kind in enumerate(pair.tokenizer.types) if kind == 6)}
    compared = 0
    for text in texts[:1500]:
        ids = pair.encode(text, False)
        if bytes_too.issuperset(ids):
            compared += 1
            assert "".join(pair.tool.decode(ids)) == pair.decode(ids), ids
    assert compared > 1000
    for _ in range(2000):
        ids = [rng.choice(usable) for _ in range(rng.choice([0, 1, 2, 3, 8, 40]))]
        assert "".join(pair.tool.decode(ids)) == pair.decode(ids), ids


def token_bytes(tokenizer, i):
    """What token i stands for, from its spelling."""
    text, kind = tokenizer.tokens[i], tokenizer.types[i]
    if kind == 6:
        return bytes([int(text[3:5], 16)])
    if kind == 1 and tokenizer.kind == "gpt2":
        return bytes(BYTE_OF[c] for c in text)
    return text.replace(vocabularies.SPACE, " ").encode() if tokenizer.kind == "llama" else text.encode()


def test_bytes_that_are_no_utf8(pair, broken):
    """Every byte of any text that normalization leaves alone is in its tokens, in order; the libraries take valid text only.
    Where the tokenizer puts a space in front of a text, that is in the tokens too."""
    tokenizer, compared = pair.tokenizer, 0
    for text in broken:
        characters = text.decode(errors="surrogateescape")
        if tokenizer.normalizer == "nfc" and not unicodedata.is_normalized("NFC", characters):
            continue
        compared += 1
        expected = text.replace(vocabularies.SPACE.encode(), b" ") if tokenizer.kind == "llama" else text
        lacking = [] if pair.name != "trained-unknown" else vocabularies.LACKING
        expected = b"".join(b"<unk>" if byte in lacking else bytes([byte]) for byte in expected)
        found = b"".join(token_bytes(tokenizer, i) for i in pair.tool.encode(text))
        assert found == expected or tokenizer.add_space_prefix and spaces_put(found, expected), text
    assert compared > 1000


def spaces_put(found, expected):
    """Whether `found` is `expected` with single spaces put in: one before each text between added tokens."""
    at = 0
    for byte in found:
        if at < len(expected) and byte == expected[at]:
            at += 1
        elif byte != 0x20:
            return False
    return at == len(expected)


@pytest.mark.parametrize("name, bos, added", [
    ("llama2", "<s>", True), ("llama3", "<|begin_of_text|>", False), ("gpt2", "<|endoftext|>", False), ("qwen3", None, False)])
def test_framing(name, bos, added, tmp_path):
    tokenizer = source.read_tokenizer(str(vocabularies.real(name, tmp_path)[0]), bpe.MAX_TOKENS)
    assert (tokenizer.tokens[tokenizer.bos] if tokenizer.bos is not None else None) == bos
    assert tokenizer.add_bos is added and tokenizer.add_eos is False
