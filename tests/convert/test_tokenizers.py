"""Tokenizers beside a checkpoint: which is found, what of it is written, what is refused. The sentencepiece library says
what a tokenizer.model holds."""

import io
import json
import pickle
import random
import struct

import pytest
import sentencepiece

import checkpoints
import reading
from checkpoints import nrgpt_state, training
from descent_convert import gpt2, spm, words
from descent_convert.errors import ConvertError
from conftest import GOLDEN, ROOT


@pytest.fixture
def pt(tmp_path):
    """A checkpoint of V ids, alone in its directory."""
    def write(V=11):
        (tmp_path / "in").mkdir(exist_ok=True)
        return checkpoints.write_pt(tmp_path / "in" / "ckpt.pt", training(nrgpt_state(V=V)))
    return write


def tokenizer_fields(out):
    return {k.removeprefix("tokenizer.ggml."): v for k, v in reading.fields(out).items() if k.startswith("tokenizer.")}


# -- None

@pytest.mark.parametrize("V", [11, 50257, 50304])
def test_without(V, convert, pt, tmp_path, monkeypatch):
    monkeypatch.setattr(gpt2, "_folders", lambda directory: [])
    result = convert(pt(V), tmp_path / "out.gguf")
    assert result.status == 0 and result.out.endswith("tokenizer: none\n")
    assert result.err.count("\n") == 1 and "no tokenizer beside it" in result.err
    assert ("GPT-2" in result.err) == (V != 11)
    assert tokenizer_fields(tmp_path / "out.gguf") == {}


# -- Characters

def meta(tokens, **more):
    return {"vocab_size": len(tokens), "itos": dict(enumerate(tokens)), "stoi": {c: i for i, c in enumerate(tokens)}, **more}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_meta(protocol, good, pt):
    path, tokens = pt(), list("\n a\u00e9\u4e2d\U0001f600,\t'\0z")
    (path.parent / "meta.pkl").write_bytes(pickle.dumps(meta(tokens), protocol))
    assert tokenizer_fields(good(path)) == {"model": "chars", "tokens": tokens}


def test_golden_meta(good):
    expected = pickle.loads((GOLDEN / "nrgpt-ff1" / "meta.pkl").read_bytes())["itos"]
    assert tokenizer_fields(good(GOLDEN / "nrgpt-ff1"))["tokens"] == [expected[i] for i in range(65)]


@pytest.mark.parametrize("value", [
    [], 5, {}, {"itos": {}}, {"itos": 5}, meta(["a", "bc"]), meta(["a", ""]), meta(["a", 3]), meta(["a", "a"]),
    meta(["a", "b"], vocab_size=3), meta(["a", "b"], stoi={"a": 1, "b": 0}), meta(["a", "b"], stoi=3),
    {"itos": {0: "a", 2: "b"}}, {"itos": {1: "a"}}, {"itos": {"0": "a"}}, meta([chr(97 + i) for i in range(12)])])
def test_bad_meta(value, refused, pt):
    path = pt()
    (path.parent / "meta.pkl").write_bytes(pickle.dumps(value, 4))
    refused(path, "meta.pkl")


def test_fewer_characters_than_ids(convert, pt, tmp_path):
    path = pt(V=64)
    (path.parent / "meta.pkl").write_bytes(pickle.dumps(meta(list("abc"))))
    result = convert(path, tmp_path / "out.gguf")
    assert result.status == 0 and "3 tokens for 64 ids" in result.err
    fields = reading.fields(tmp_path / "out.gguf")
    assert fields["tokenizer.ggml.tokens"] == list("abc") and fields["nrgpt.vocab_size"] == 64


def test_chars_json(good, refused, pt):
    path = pt()
    file = path.parent / "tokenizer.chars.json"
    file.write_text(json.dumps({"type": "chars", "tokens": list("ab\u00e9\n")}))
    assert tokenizer_fields(good(path)) == {"model": "chars", "tokens": list("ab\u00e9\n")}
    for bad in ({}, [], {"type": "chars"}, {"type": "words", "tokens": ["a"]}, {"type": "chars", "tokens": []},
                {"type": "chars", "tokens": "ab"}, {"type": "chars", "tokens": ["ab"]}, {"type": "chars", "tokens": ["\ud800"]},
                {"type": "chars", "tokens": ["a", "a"]}, {"type": "chars", "tokens": ["a"], "lower": True},
                {"type": "chars", "tokens": [chr(97 + i) for i in range(12)]}):
        file.write_text(json.dumps(bad))
        refused(path, "tokenizer.chars.json")


# -- Words

def test_words(good, pt):
    path = pt()
    (path.parent / "vocab.txt").write_text("(\n<eos>\nadd_10\n\u00e9\n")
    assert tokenizer_fields(good(path)) == {
        "model": "words", "tokens": ["(", "<eos>", "add_10", "\u00e9"], "token_type": [1, 3, 1, 1], "eos_token_id": 1,
        "tokenizer.descent.separator": ","}
    (path.parent / "vocab.txt").write_bytes(b"a\r\nb")
    fields = tokenizer_fields(good(path))
    assert fields["tokens"] == ["a", "b"] and "eos_token_id" not in fields


@pytest.mark.parametrize("text", [b"", b"\n", b"a\n\nb\n", b"a\na\n", b"a,b\n", b"\xff\n", b"a\n" + b"".join(b"%d\n" % i for i in range(12))])
def test_bad_words(text, refused, pt):
    path = pt()
    (path.parent / "vocab.txt").write_bytes(text)
    refused(path, "vocab.txt")


def test_vocab_option(good, refused, pt, tmp_path):
    """Named files come before those found, and their names say what they are."""
    path = pt()
    (path.parent / "meta.pkl").write_bytes(b"not even a pickle")
    (tmp_path / "tokens").write_text("x\ny\n")
    assert tokenizer_fields(good(path, "--vocab", tmp_path / "tokens"))["tokens"] == ["x", "y"]
    (tmp_path / "data_meta.pkl").write_bytes(pickle.dumps(meta(list("pq"))))
    assert tokenizer_fields(good(path, "--vocab", tmp_path / "data_meta.pkl"))["model"] == "chars"
    refused(path, "nowhere", options=["--vocab", tmp_path / "nowhere"])


def test_two_tokenizers(refused, pt):
    path = pt()
    (path.parent / "vocab.txt").write_text("a\n")
    (path.parent / "meta.pkl").write_bytes(pickle.dumps(meta(["a"])))
    refused(path, "meta.pkl, vocab.txt", "--tokenizer")


def test_two_forms_of_one_tokenizer(refused, good, pt, tmp_path):
    path = pt(V=300)
    (path.parent / "tokenizer.json").write_text("{}")
    refused(path, "tokenizer.json", "model")
    (path.parent / "tokenizer.model").write_bytes(trained(tmp_path)[0])
    assert tokenizer_fields(good(path))["model"] == "llama"


# -- SentencePiece

_TRAINED = {}


def trained(tmp_path, **options):
    """A small model of the library's own training, and the library with it loaded."""
    options = {"model_type": "bpe", "vocab_size": 290, "byte_fallback": True, "normalization_rule_name": "identity", **options}
    key = json.dumps(options, sort_keys=True)
    if key not in _TRAINED:
        rng = random.Random(5)
        lines = [" ".join("".join(rng.choices("abcdeh", k=rng.randrange(1, 7))) for _ in range(20)) for _ in range(200)]
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **options)
        _TRAINED[key] = model.getvalue()
    return _TRAINED[key], sentencepiece.SentencePieceProcessor(model_proto=_TRAINED[key])


@pytest.mark.parametrize("options", [
    {}, {"byte_fallback": False, "vocab_size": 40}, {"normalization_rule_name": "nmt_nfkc"}, {"add_dummy_prefix": False},
    {"remove_extra_whitespaces": False}, {"user_defined_symbols": ["<sep>", "abc"], "control_symbols": ["<mask>"]},
    {"pad_id": 3}, {"bos_id": -1}, {"eos_id": -1, "bos_id": -1}, {"unk_id": 5, "bos_id": 0, "eos_id": 1}, {"bos_piece": "<begin>"},
    {"model_type": "unigram"}, {"model_type": "unigram", "byte_fallback": False, "vocab_size": 40, "normalization_rule_name": "nmt_nfkc",
                                "user_defined_symbols": ["<sep>", "abc"], "unk_id": 2, "bos_id": -1, "eos_id": 1, "pad_id": 0},
], ids=str)
def test_sentencepiece(options, good, pt, tmp_path):
    data, library = trained(tmp_path, **options)
    path = pt(V=300)
    (path.parent / "tokenizer.model").write_bytes(data)
    fields = tokenizer_fields(good(path))
    ids = range(library.get_piece_size())
    assert fields["model"] == ("t5" if options.get("model_type") == "unigram" else "llama")
    assert fields["tokens"] == [library.id_to_piece(i) for i in ids]
    assert fields["scores"] == [library.get_score(i) for i in ids]
    kinds = [2 if library.is_unknown(i) else 3 if library.is_control(i) else 5 if library.is_unused(i)
             else 6 if library.is_byte(i) else 4 if library.id_to_piece(i) in options.get("user_defined_symbols", []) else 1
             for i in ids]
    assert fields["token_type"] == kinds
    for key, i in (("bos", library.bos_id()), ("eos", library.eos_id()), ("unknown", library.unk_id()), ("padding", library.pad_id())):
        assert fields.get(f"{key}_token_id", -1) == i, key
    assert fields["add_bos_token"] is False and fields["add_eos_token"] is False
    assert fields["add_space_prefix"] is options.get("add_dummy_prefix", True)
    assert fields["remove_extra_whitespaces"] is options.get("remove_extra_whitespaces", True)
    if options.get("normalization_rule_name") == "nmt_nfkc":
        charsmap = bytes(fields["precompiled_charsmap"])
        assert len(charsmap) > 100_000 and b"\x12" + varint(len(charsmap)) + charsmap in data
    else:
        assert "precompiled_charsmap" not in fields


def test_shipped_tokenizer():
    """The model shipped with the repository was converted by this code."""
    fields = reading.fields(ROOT / "models" / "cem-kjv.gguf")
    assert fields["tokenizer.ggml.model"] == "llama" and len(fields["tokenizer.ggml.tokens"]) == 2048
    assert fields["tokenizer.ggml.token_type"][:259] == [2, 3, 3] + [6] * 256


def test_tokenizer_config(good, refused, pt, tmp_path):
    path = pt(V=300)
    (path.parent / "tokenizer.model").write_bytes(trained(tmp_path)[0])
    config = path.parent / "tokenizer_config.json"
    config.write_text(json.dumps({"add_bos_token": True, "add_eos_token": True, "tokenizer_class": "LlamaTokenizer"}))
    fields = tokenizer_fields(good(path))
    assert fields["add_bos_token"] is True and fields["add_eos_token"] is True
    config.write_text(json.dumps({"add_bos_token": "yes"}))
    refused(path, "tokenizer_config.json", "add_bos_token")
    config.write_text(json.dumps({"add_bos_token": True}))
    (path.parent / "tokenizer.model").write_bytes(trained(tmp_path, bos_id=-1)[0])
    refused(path, "no BOS piece")


@pytest.mark.parametrize("model_type", ["char", "word"])
def test_other_model_types(model_type, refused, pt, tmp_path):
    data, _ = trained(tmp_path, model_type=model_type, byte_fallback=False, vocab_size={"char": 10, "word": 500}[model_type])
    path = pt(V=600)
    (path.parent / "tokenizer.model").write_bytes(data)
    refused(path, f"of type {model_type}", "supported: unigram, BPE")


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def message(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field, value):
    return varint(field << 3) + varint(value)


@pytest.mark.parametrize("more, words", [
    (message(2, number(24, 1)), "treat_whitespace_as_suffix"),
    (message(3, number(5, 0)), "escape_whitespaces"),
    (message(5, message(2, b"map")), "denormalizer"),
    (message(2, message(44, b"??")), "unk_surface"),
    (message(2, number(3, 9)), "type 9"),
    (message(2, number(35, 0)), "byte_fallback is false, but there are 256"),
    (message(1, message(1, b"<unk>")), "both '<unk>'"),
    (message(1, message(1, b"second") + number(3, 2)), "2 pieces of type unknown"),
    (message(1, message(1, b"<0x100>") + number(3, 6)), "257 byte pieces"),
    (message(1, message(1, b"")), "is empty"), (message(1, b""), "is empty"),
    (message(1, message(1, b"\xff\xfe")), "UTF-8"), (message(1, number(1, 5)), "no text"),
    (message(1, message(1, b"zz") + number(3, 7)), "wrong kind"), (message(1, message(1, b"zz") + message(3, b"")), "no number"),
    (message(1, message(1, b"zz") + number(2, 1)), "wrong kind"),
    (message(1, message(1, b"zz") + b"\x15" + struct.pack("<f", float("nan"))), "not finite"),
    (number(1, 5), "a message expected"), (number(2, 5), "a message expected"), (b"\x0b", "wire type 3"), (b"\x00\x00", "field number 0"),
    (b"\x0a\xff\xff\xff\xff\x0f", "ends inside"), (b"\x0a", "ends inside"), (b"\x80" * 11, "ten bytes"), (b"\x0d\x00", "ends inside"),
])
def test_bad_models(more, words, tmp_path):
    with pytest.raises(ConvertError, match=words.replace("??", r"\?\?")):
        spm.from_model(trained(tmp_path)[0] + more, "file")


def test_unigram_pieces_with_a_nul(tmp_path):
    """The library's unigram, not its BPE, would cut it short."""
    more = message(1, message(1, b"a\0b"))
    with pytest.raises(ConvertError, match="piece 290, .*, holds a NUL"):
        spm.from_model(trained(tmp_path, model_type="unigram")[0] + more, "file")
    assert spm.from_model(trained(tmp_path)[0] + more, "file").tokens[290] == "a\0b"


def test_unknown_fields_are_skipped(tmp_path):
    data = trained(tmp_path)[0]
    more = number(900, 5) + message(901, b"x") + varint(902 << 3 | 1) + bytes(8) + varint(903 << 3 | 5) + bytes(4)
    assert spm.from_model(data + more, "file") == spm.from_model(data, "file")


def test_more_pieces_than_ids(refused, pt, tmp_path):
    path = pt(V=289)
    (path.parent / "tokenizer.model").write_bytes(trained(tmp_path)[0])
    refused(path, "290 tokens for a model of 289")


def test_damaged_models(tmp_path):
    """Cut anywhere or changed anywhere: an error of ours or a tokenizer, nothing else."""
    data, rng = trained(tmp_path)[0], random.Random(3)
    for length in range(0, len(data), 29):
        try:
            spm.from_model(data[:length], "file")
        except ConvertError:
            pass
    refused = 0
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(data))] = rng.randrange(256)
        try:
            assert len(spm.from_model(bytes(changed), "file").tokens) > 0
        except ConvertError:
            refused += 1
    assert refused > 0


def test_damaged_lists():
    rng = random.Random(4)
    data = pickle.dumps(meta(list("abcdefgh")), 4)
    for read, good in ((words.from_meta, data), (words.from_chars_json, b'{"type": "chars", "tokens": ["a", "b"]}')):
        assert read(good, "file").tokens
        for _ in range(500):
            changed = bytearray(good)
            changed[rng.randrange(len(good))] = rng.randrange(256)
            try:
                assert read(bytes(changed), "file").tokens
            except ConvertError as e:
                assert "\n" not in str(e)
