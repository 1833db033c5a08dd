"""The tokenizer of a generated model: as many tokens as asked, texts there and back, special tokens, chat templates."""

import itertools

import gguf
import pytest

import descent
from conftest import ROOT
from descent_generate import vocabulary

TEXTS = ["", " ", "\n\n  \t x", "the king and the queen", "Once upon a time,  there were 1234567 of them!\n", "é中😀 👨‍👩‍👧 e\u0301",
         "\0a\0", "<|im_start|>user", "<unk><s></s><0x41>", "a" * 300, "   " * 20 + "x", "ﬁ½\u200b\ufeff\u00a0"]
SPECIAL = {
    "plain": [], "chatml": ["<|im_start|>", "<|im_end|>"], "llama2": ["<s>", "</s>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}


def fields(path):
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


def spelled(model, ids):
    return b"".join(model.piece(int(i)) for i in ids)


@pytest.mark.parametrize("vocab", [258, 300, 5000])
def test_bytes_come_back(vocab, opened):
    model = opened("nrgpt", "--vocab", vocab)
    for data in [text.encode() for text in TEXTS] + [bytes(range(256)), b"\xff\xfe the \xc3", b"\xed\xa0\x80"]:
        ids = model.encode(data)
        assert spelled(model, ids) == data
        assert all(i < vocab for i in ids)


@pytest.mark.parametrize("vocab", [400, 5000])
def test_text_comes_back_through_sentencepiece(vocab, opened):
    model = opened("cem", "--vocab", vocab, "--tokenizer", "sentencepiece")
    for text in TEXTS:
        assert model.decode(model.encode(text)) == text


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_words_are_tokens(kind, opened):
    model = opened("nrgpt", "--vocab", 8000, "--tokenizer", kind)
    assert len(model.encode(" the king and the queen of England")) == 7
    long = (ROOT / "LICENSE").read_text()
    assert len(model.encode(long)) < len(long) / 2


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_size_and_hierarchy(kind, made):
    """V tokens, none twice, and each merge of two tokens that come before what it makes."""
    values = fields(made("nrgpt", "--width", 4, "--heads", 1, "--hidden", 4, "--vocab", 40000, "--tokenizer", kind))
    tokens = values["tokenizer.ggml.tokens"]
    assert len(tokens) == len(set(tokens)) == len(values["tokenizer.ggml.token_type"]) == 40000
    places = {token: i for i, token in enumerate(tokens)}
    if kind == "bytes":
        merges = [merge.split(" ") for merge in values["tokenizer.ggml.merges"]]
        assert len(merges) == 40000 - 256 - 1
        assert all(places[a + b] > max(places[a], places[b]) for a, b in merges)
    else:
        scores, types = values["tokenizer.ggml.scores"], values["tokenizer.ggml.token_type"]
        for i, token in enumerate(tokens):
            if types[i] == 1 and len(token) > 1:
                assert any(places.get(token[:n], i) < i and places.get(token[n:], i) < i for n in range(1, len(token)))
                assert scores[i] < scores[i - 1]


def test_there_are_enough():
    count = sum(1 for _ in itertools.islice(vocabulary.merges(), 300_000))
    assert count == 300_000


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
@pytest.mark.parametrize("template", list(SPECIAL))
def test_chat_templates(template, kind, made):
    path = made("cem", "--tokenizer", kind, "--chat-template", template)
    values = fields(path)
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    assert values["descent.chat_template"] == template and len(tokens) == 1024
    assert all(types[tokens.index(token)] == 3 for token in SPECIAL[template])
    bos, eos = (tokens[values[f"tokenizer.ggml.{which}_token_id"]] for which in ("bos", "eos"))
    own = ("<|endoftext|>", "<|endoftext|>") if kind == "bytes" else ("<s>", "</s>")
    expected = {"plain": own, "chatml": (own[0], "<|im_end|>"), "llama2": ("<s>", "</s>"),
                "llama3": ("<|begin_of_text|>", "<|eot_id|>")}
    assert (bos, eos) == expected[template]
    assert values["tokenizer.ggml.add_bos_token"] == (template in ("llama2", "llama3"))
    with descent.Model(str(path)) as model:
        for token in SPECIAL[template]:
            assert model.encode(token + "hello", parse_special=True)[0] == tokens.index(token)
            assert tokens.index(token) not in model.encode(token + "hello")  # spelled in a text it is text


def test_no_template_unless_asked(made):
    assert "descent.chat_template" not in fields(made("nrgpt"))


def test_none(made):
    values = fields(made("nrgpt", "--vocab", 5, "--tokenizer", "none"))
    assert not any(key.startswith("tokenizer.") for key in values) and values["nrgpt.vocab_size"] == 5


def test_from_a_file(made, opened, generate, tmp_path):
    file = ROOT / "tests" / "golden" / "nrgpt-ff2w" / "meta.pkl"
    model = opened("nrgpt", "--vocab", 70, "--tokenizer", file, "--chat-template", "plain")
    assert model.decode(model.encode("To be, or not to be")) == "To be, or not to be"
    for options, words in ((("--vocab", 64), ("65 tokens", "64")), (("--chat-template", "chatml"), ("--chat-template chatml", "<|im_start|>"))):
        result = generate("nrgpt", tmp_path / "refused.gguf", "--tokenizer", file, *options)
        assert result.status == 1 and all(word in result.err for word in words)
    assert generate("nrgpt", tmp_path / "refused.gguf", "--tokenizer", tmp_path / "no.model").status == 1
    result = generate("nrgpt", tmp_path / "refused.gguf", "--tokenizer", "none", "--chat-template", "plain")
    assert result.status == 1 and "--chat-template plain" in result.err
    assert not (tmp_path / "refused.gguf").exists()
