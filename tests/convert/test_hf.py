"""tokenizer.json and what lies beside it: what is written for each pipeline that is supported, and that everything else is
refused by name. That texts are encoded as the libraries do is tests/tokenizer's matter."""

import copy
import json
import random

import pytest

import checkpoints
import reading
from checkpoints import nrgpt_state, training
from descent_convert import hf
from descent_convert.errors import ConvertError

# GPT-2's byte alphabet, written down a second time: bytes that are no visible Latin-1 character follow from U+0100 on.
VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
ALPHABET = [chr(b) for b in VISIBLE] + [chr(0x100 + i) for i in range(256 - len(VISIBLE))]
SPACE, LOW = "\u0120", "\u2581"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def added(i, text, **options):
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True,
            **options}


def byte_level():
    vocab = {c: i for i, c in enumerate([*ALPHABET, "th", "the", SPACE + "the"])}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(259, "<|end|>"), added(260, "<b>", special=False)],
        "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": ["t h", "th e", f"{SPACE} the"]}}


def fallback():
    vocab = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), LOW, "a", "b", "ab", LOW + "ab"])}
    return {
        "added_tokens": [added(i, t) for i, t in enumerate(["<unk>", "<s>", "</s>"])],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": LOW},
                                                           {"type": "Replace", "pattern": {"String": " "}, "content": LOW}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": LOW}, "content": " "}, {"type": "ByteFallback"},
                                                     {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                  "merges": [["a", "b"], [LOW, "ab"]]}}


def read(values, files=None, limit=300):
    files = {name: (f"dir/{name}", json.dumps(value).encode()) for name, value in (files or {}).items()}
    return hf.from_json(json.dumps(values).encode(), "dir/tokenizer.json", files, limit)


def refusal(values, files=None, limit=300):
    with pytest.raises(ConvertError) as caught:
        read(values, files, limit)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(values, path, value):
    """A copy with what is at `path` replaced; a value that is a function of the old one is called."""
    values = copy.deepcopy(values)
    at = values
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value(at.get(path[-1]) if isinstance(at, dict) else at[path[-1]]) if callable(value) else value
    return values


def split(regex, **options):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False, **options},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def with_added(values, *tokens):
    return changed(values, ["added_tokens"], lambda old: [*old, *tokens])


@pytest.fixture
def pt(tmp_path):
    def write(V=300, **files):
        (tmp_path / "in").mkdir(exist_ok=True)
        for name, value in files.items():
            (tmp_path / "in" / f"{name}.json").write_text(json.dumps(value))
        return checkpoints.write_pt(tmp_path / "in" / "ckpt.pt", training(nrgpt_state(V=V)))
    return write


def fields_of(out):
    fields = reading.fields(out)
    return {k.removeprefix("tokenizer.ggml."): v for k, v in fields.items() if k.startswith("tokenizer.")}


# -- What is written

def test_byte_level(good, pt):
    fields = fields_of(good(pt(tokenizer=byte_level(), tokenizer_config={"eos_token": "<|end|>", "pad_token": {"content": "<|end|>"}})))
    assert fields == {
        "model": "gpt2", "pre": "gpt-2", "tokens": [*ALPHABET, "th", "the", SPACE + "the", "<|end|>", "<b>"],
        "token_type": [1] * 259 + [3, 4], "merges": ["t h", "th e", f"{SPACE} the"], "eos_token_id": 259, "padding_token_id": 259,
        "add_bos_token": False, "add_eos_token": False, "add_space_prefix": False, "tokenizer.descent.normalizer": "none",
        "tokenizer.descent.ignore_merges": False}


def test_byte_fallback(good, pt):
    fields = fields_of(good(pt(tokenizer=fallback(), tokenizer_config={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})))
    assert fields == {
        "model": "llama", "tokens": list(fallback()["model"]["vocab"]), "token_type": [2, 3, 3] + [6] * 256 + [1] * 5,
        "merges": ["a b", f"{LOW} ab"], "scores": [0.0] * 259 + [-2.0, -2.0, -2.0, 0.0, -1.0], "bos_token_id": 1, "eos_token_id": 2,
        "unknown_token_id": 0, "add_bos_token": True, "add_eos_token": False, "add_space_prefix": True,
        "tokenizer.descent.space_prefix": "prepend"}


def test_flags_of_added_tokens(good, pt):
    values = byte_level()
    values["added_tokens"] += [added(261, "<l>", lstrip=True), added(262, "<r>", rstrip=True, special=False),
                               added(264, "<w>", single_word=True, normalized=True)]
    fields = fields_of(good(pt(tokenizer=values)))
    assert fields["tokenizer.descent.token_flags"] == [0] * 261 + [1, 2, 0, 12]
    assert fields["tokens"][261:] == ["<l>", "<r>", "[PAD263]", "<w>"] and fields["token_type"][259:] == [3, 4, 3, 4, 5, 3]


def test_added_tokens_outside_the_vocabulary(good, pt):
    """Merging must not find them; that of bytes cannot, whose characters all have tokens."""
    values = with_added(fallback(), added(261, "b", special=False, single_word=True), added(264, "o", special=False, single_word=True),
                        added(265, "<|end|>"))
    assert fields_of(good(pt(tokenizer=values)))["tokenizer.descent.token_flags"] == [0] * 261 + [4, 0, 0, 4 | 16, 0]


@pytest.mark.parametrize("path, value, expected", [
    (["normalizer"], {"type": "NFC"}, {"normalizer": "nfc"}),
    (["normalizer"], {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, {"normalizer": "nfc"}),
    (["normalizer"], {"type": "Sequence", "normalizers": []}, {"normalizer": "none"}),
    (["pre_tokenizer", "add_prefix_space"], True, {"pre": "gpt-2", "add_space_prefix": True}),
    (["pre_tokenizer"], split(GPT2), {"pre": "gpt-2"}),
    (["pre_tokenizer"], split(LLAMA3), {"pre": "llama-bpe"}),
    (["pre_tokenizer"], split(LLAMA3, behavior="Removed", invert=True), {"pre": "llama-bpe"}),
    (["pre_tokenizer"], split(LLAMA3.replace("{1,3}", "")), {"pre": "qwen2"}),
    (["pre_tokenizer"], {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                               {"type": "ByteLevel", "add_prefix_space": False}]}, {"pre": "smollm"}),
    (["model", "ignore_merges"], True, {"ignore_merges": True}),
    (["model", "merges"], [["t", "h"], ["th", "e"]], {"merges": [("t", "h"), ("th", "e")]}),
    (["model", "type"], None, {"kind": "gpt2"}),
    (["post_processor"], None, {"add_bos": False, "add_eos": False}),
    (["post_processor"], {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                                 {"SpecialToken": {"id": "<|end|>", "type_id": 0}}],
        "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [259]}}}]}, {"bos": 259, "eos": 259, "add_bos": True, "add_eos": True}),
])
def test_pipelines(path, value, expected):
    tokenizer = read(changed(byte_level(), path, value))
    assert {key: getattr(tokenizer, key) for key in expected} == expected


@pytest.mark.parametrize("path, value, expected", [
    (["normalizer"], {"type": "Replace", "pattern": {"String": " "}, "content": LOW}, (False, "prepend")),
    (["pre_tokenizer"], {"type": "Metaspace", "replacement": LOW, "prepend_scheme": "always", "split": False}, (True, "metaspace")),
    (["pre_tokenizer"], {"type": "Metaspace", "replacement": LOW, "prepend_scheme": "first", "split": True}, (True, "metaspace_first")),
    (["pre_tokenizer"], {"type": "Metaspace", "replacement": LOW, "prepend_scheme": "never"}, (False, "metaspace")),
    (["pre_tokenizer"], {"type": "Metaspace", "replacement": LOW, "add_prefix_space": True}, (True, "metaspace")),
])
def test_spaces(path, value, expected):
    values = changed(fallback(), path, value)
    if path == ["pre_tokenizer"]:
        values["normalizer"] = None
    if not expected[0]:
        values["decoder"]["decoders"].pop()
    tokenizer = read(values)
    assert (tokenizer.add_space_prefix, tokenizer.space_prefix) == expected


def test_length_sections_are_noted(convert, pt, tmp_path):
    values = byte_level() | {"truncation": {"max_length": 512}, "padding": {"strategy": "BatchLongest"}}
    result = convert(pt(tokenizer=values), tmp_path / "out.gguf")
    assert result.status == 0 and "truncation" in result.err and "padding" in result.err


# -- The files beside

def test_llama_class_frames_by_its_flags():
    files = {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
                                       "add_bos_token": False, "add_eos_token": True}}
    tokenizer = read(fallback(), files)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (False, True) and len(tokenizer.notes) == 2
    del files["tokenizer_config.json"]["tokenizer_class"]
    tokenizer = read(fallback(), files)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False) and tokenizer.notes == []


def test_space_in_front_as_both_files_say():
    """transformers' GPT-2 goes by its configuration, whatever tokenizer.json says."""
    files = {"tokenizer_config.json": {"add_prefix_space": True}}
    assert "add_prefix_space is 'True'; expected false, as tokenizer.json has it" in refusal(byte_level(), files)
    assert read(changed(byte_level(), ["pre_tokenizer", "add_prefix_space"], True), files).add_space_prefix
    assert not read(changed(byte_level(), ["pre_tokenizer"], split(LLAMA3)), files).add_space_prefix
    assert read(fallback(), files).add_space_prefix


def test_special_tokens_by_name():
    files = {"tokenizer_config.json": {"bos_token": "the", "pad_token": "[PAD]"},
             "special_tokens_map.json": {"bos_token": "<b>", "eos_token": {"content": "<|end|>", "lstrip": False}, "unk_token": None,
                                         "additional_special_tokens": ["th"]}}
    tokenizer = read(byte_level(), files=None)
    assert (tokenizer.bos, tokenizer.eos) == (None, None)
    values = changed(byte_level(), ["model", "merges"], ["a b"])
    values["model"]["vocab"]["ab"] = 261
    tokenizer = read(values, files)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.padding) == (257, 259, None)
    assert tokenizer.types[256:259] == [3, 3, 1]  # named special: found in texts, and no part of them
    assert any("[PAD]" in note for note in tokenizer.notes)


def test_generation_config():
    tokenizer = read(byte_level(), {"generation_config.json": {"eos_token_id": [259, 260]}})
    assert tokenizer.eos == 259 and "259, 260" in tokenizer.notes[0]
    tokenizer = read(byte_level(), {"generation_config.json": {"eos_token_id": 259}})
    assert tokenizer.eos == 259 and tokenizer.notes == []


def test_added_tokens_decoder():
    more = {"261": added(0, "<new>", lstrip=True), "259": added(0, "<|end|>")}
    for value in more.values():
        del value["id"]
    tokenizer = read(byte_level(), {"tokenizer_config.json": {"added_tokens_decoder": more}})
    assert tokenizer.tokens[261] == "<new>" and tokenizer.types[261] == 3 and tokenizer.flags[261] == 1


@pytest.mark.parametrize("files, words", [
    ({"tokenizer_config.json": {"eos_token": "<eos>"}}, "eos_token is '<eos>'"),
    ({"tokenizer_config.json": {"eos_token": 5}}, "eos_token is no token"),
    ({"tokenizer_config.json": {"additional_special_tokens": "th"}}, "additional_special_tokens"),
    ({"tokenizer_config.json": {"added_tokens_decoder": {"x": {}}}}, "'x' is no id"),
    ({"tokenizer_config.json": {"added_tokens_decoder": []}}, "added_tokens_decoder"),
    ({"tokenizer_config.json": {"added_tokens_decoder": {"5": {"content": "<b>"}}}}, "has id 5"),
    ({"tokenizer_config.json": []}, "an object expected"),
    ({"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}, "no bos_token is named"),
    ({"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": 1, "bos_token": "<|end|>"}}, "add_bos_token"),
    ({"generation_config.json": {"eos_token_id": "x"}}, "eos_token_id"),
])
def test_bad_files_beside(files, words):
    assert words in refusal(byte_level(), files)


def test_bytes_without_a_token():
    """Become the model's unknown token, where it has one; another one beside is a contradiction."""
    values = changed(byte_level(), ["model", "unk_token"], "<|end|>")
    del values["model"]["vocab"][ALPHABET[3]]
    values["model"]["vocab"]["<|end|>"] = 259
    tokenizer = read(values)
    assert tokenizer.unknown == 259 and tokenizer.types[:5] == [1, 1, 1, 5, 1]
    assert "unk_token is '<b>'" in refusal(values, {"tokenizer_config.json": {"unk_token": "<b>"}})
    assert "byte 0x24" in refusal(changed(values, ["model", "fuse_unk"], True))


@pytest.mark.parametrize("text, options", [("q", {}), ("\u00e9", {"special": False})])
def test_bytes_whose_token_is_an_added_one(text, options):
    """As an added token it is found as text, e with acute or any q: the byte would have none."""
    values = with_added(byte_level(), added(ALPHABET.index(text), text, **options))
    assert f"the token of byte 0x{ord(text):02X}, '{text}', is an added one" in refusal(values)
    assert read(with_added(byte_level(), added(ALPHABET.index("q"), "q", special=False))).types[ALPHABET.index("q")] == 4


def test_whole_words_beside_ignored_merges():
    """Where it may not stand as an added token, the library still takes a pre-token for it."""
    values = changed(byte_level(), ["model", "ignore_merges"], True)
    assert "added token 'the'" in refusal(with_added(values, added(257, "the", special=False, single_word=True)))
    assert read(with_added(values, added(257, "the", special=False))).ignore_merges


# -- What is refused, by name

@pytest.mark.parametrize("path, value, words", [
    (["model", "type"], "WordPiece", "'WordPiece'"), (["model", "type"], "WordLevel", "'WordLevel'"),
    (["model", "type"], "Unigram", "'Unigram'"), (["model"], None, "model: an object"), (["model"], [], "model: an object"),
    (["model", "dropout"], 0.1, "dropout is '0.1'"), (["model", "continuing_subword_prefix"], "##", "continuing_subword_prefix"),
    (["model", "end_of_word_suffix"], "</w>", "end_of_word_suffix"), (["model", "fuse_unk"], 1, "fuse_unk"),
    (["model", "max_input_chars_per_word"], 5, "max_input_chars_per_word"), (["model", "merges"], [], "no list of merges"),
    (["model", "merges"], "t h", "no list of merges"), (["model", "merges"], ["t h", "t h"], "twice"),
    (["model", "merges"], ["t h e"], "merge 0 is no pair"), (["model", "merges"], [["t"]], "merge 0 is no pair"),
    (["model", "merges"], [["t", 5]], "merge 0 is no pair"), (["model", "merges"], ["h e"], "'he' is no token"),
    (["model", "merges"], ["q th"], "'qth' is no token"), (["model", "vocab"], [], "no object from token to id"),
    (["model", "vocab"], {}, "no object from token to id"), (["model", "vocab", "th"], "5", "whole number"),
    (["model", "vocab", "th"], True, "whole number"), (["model", "vocab", "th"], -1, "whole number"),
    (["model", "vocab", "th"], 1 << 40, "the model has ids below 300"), (["model", "vocab", "th"], 257, "both have id 257"),
    (["model", "vocab", "x y"], 280, "byte alphabet"), (["model", "vocab", "\u20ac"], 280, "byte alphabet"),
    (["model", "vocab", ""], 280, "empty"), (["model", "vocab", "\ud800"], 280, "surrogate"), (["model", "vocab", "x" * 65536], 280, "65536 bytes"),
    (["model", "vocab"], lambda v: {t: i for t, i in v.items() if t != ALPHABET[3]}, "byte 0x24"),
    (["normalizer"], {"type": "NFKC"}, "'NFKC'"), (["normalizer"], {"type": "Lowercase"}, "'Lowercase'"),
    (["normalizer"], {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "StripAccents"}]}, "'StripAccents'"),
    (["normalizer"], {"type": "Sequence"}, "Sequence without its list"), (["normalizer"], [], "an object expected"),
    (["normalizer"], {}, "type is missing"), (["normalizer"], {"type": "NFC", "form": 1}, "form"),
    (["normalizer"], {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 65}, "more than 64"),
    (["pre_tokenizer"], None, "pre_tokenizer none"), (["pre_tokenizer"], {"type": "Whitespace"}, "'Whitespace'"),
    (["pre_tokenizer"], {"type": "BertPreTokenizer"}, "'BertPreTokenizer'"), (["pre_tokenizer"], split(r"\w+|\s"), "'\\w+|\\s'"),
    (["pre_tokenizer"], split(LLAMA3, behavior="MergedWithNext"), "MergedWithNext"), (["pre_tokenizer"], split(LLAMA3, behavior="Removed"), "Removed"),
    (["pre_tokenizer"], split(LLAMA3, pattern={"String": " "}), "pattern"), (["pre_tokenizer", "use_regex"], False, "use_regex"),
    (["pre_tokenizer", "mode"], 1, "mode"), (["pre_tokenizer", "add_prefix_space"], "yes", "add_prefix_space"),
    (["pre_tokenizer"], changed(split(LLAMA3), ["pretokenizers", 1, "use_regex"], True), "cut twice"),
    (["pre_tokenizer"], changed(split(LLAMA3), ["pretokenizers", 1, "add_prefix_space"], True), "before every piece"),
    (["pre_tokenizer"], {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel", "add_prefix_space": False}]}, "individual_digits"),
    (["pre_tokenizer"], {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "ByteLevel"}]}, "'Punctuation' + 'ByteLevel'"),
    (["post_processor"], {"type": "BertProcessing"}, "'BertProcessing'"), (["post_processor"], {"type": "RobertaProcessing"}, "'RobertaProcessing'"),
    (["post_processor"], {"type": "TemplateProcessing"}, "without its lists"),
    (["decoder"], None, "decoder is none"), (["decoder"], {"type": "WordPiece"}, "'WordPiece'"),
    (["truncation"], 5, "truncation"), (["added_tokens"], {}, "added_tokens"), (["added_tokens"], [5], "an object expected"),
    (["added_tokens"], [added(300, "<x>")], "below 300"), (["added_tokens"], [added(5, "<x>")], "which is '&'"),
    (["added_tokens"], [added(280, "<x>"), added(281, "<x>")], "has ids 280 and 281"), (["added_tokens"], [added(280, "th")], "has ids 256 and 280"),
    (["added_tokens"], [added(280, "")], "empty"), (["added_tokens"], [added(256, "th")], "no token of the text"),
    (["added_tokens"], [added(280, "<x>", color=1)], "color"), (["added_tokens"], [added(280, "<x>", lstrip=1)], "lstrip"),
    (["extra"], 1, "extra"),
])
def test_refused(path, value, words):
    assert words in refusal(changed(byte_level(), path, value))


METASPACE = {"type": "Metaspace", "replacement": LOW, "prepend_scheme": "always", "split": False}


@pytest.mark.parametrize("path, value, words", [
    (["model", "byte_fallback"], False, "without byte_fallback"), (["model", "ignore_merges"], True, "ignore_merges"),
    (["model", "vocab"], lambda v: {t: i for t, i in v.items() if t != "<0x41>"}, "<0x41>"),
    (["model", "merges"], [["<0x41>", "a"]], "byte's"), (["model", "merges"], [["a", "<s>"]], "<s>"),
    (["normalizer"], None, "normalizer none with pre_tokenizer none"), (["pre_tokenizer"], METASPACE, "'Metaspace'"),
    (["normalizer", "normalizers", 0, "prepend"], "_", "'Prepend'"), (["normalizer", "normalizers", 1, "content"], "_", "'Replace'"),
    (["normalizer", "normalizers", 1, "pattern"], {"Regex": " "}, "'Replace'"),
    (["normalizer", "normalizers"], lambda n: [*n, {"type": "NFKC"}], "'NFKC'"),
    (["decoder", "decoders"], lambda d: d[:3], "'Replace' + 'ByteFallback' + 'Fuse'"), (["decoder", "decoders", 3, "start"], 2, "'Strip'"),
    (["decoder"], {"type": "Metaspace"}, "'Metaspace'"),
    (["added_tokens"], lambda a: [*a, added(270, "<t>", special=False, normalized=True)], "'<t>' is looked for in normalized text"),
    (["post_processor", "single"], [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}], "neither SpecialToken nor one Sequence"),
    (["post_processor", "single"], [], "0 tokens before"), (["post_processor", "single"], ["A"], "neither SpecialToken nor Sequence"),
    (["post_processor", "single"], lambda s: [s[0], s[0], s[1]], "2 tokens before"),
    (["post_processor", "special_tokens", "<s>", "ids"], [2], "'<s>' stands for ids [2]"),
])
def test_refused_with_byte_fallback(path, value, words):
    assert words in refusal(changed(fallback(), path, value))


@pytest.mark.parametrize("options, words", [
    ({"replacement": "_"}, "replacement"), ({"prepend_scheme": "last"}, "prepend_scheme"), ({"width": 1}, None)])
def test_refused_metaspace(options, words):
    values = changed(fallback(), ["normalizer"], None) | {"pre_tokenizer": METASPACE | options}
    if words is None:
        values["pre_tokenizer"]["split"] = True
        values["model"]["vocab"]["a" + LOW] = 270
        values["model"]["merges"].append(["a", LOW])
        del values["pre_tokenizer"]["width"]
        words = "reaches over a space"
    assert words in refusal(values)


def test_frame_against_the_named_token():
    assert "but bos_token is '</s>'" in refusal(fallback(), {"tokenizer_config.json": {"bos_token": "</s>"}})


def test_refused_through_the_program(refused, pt):
    refused(pt(tokenizer=changed(byte_level(), ["model", "type"], "WordPiece")), "tokenizer.json", "'WordPiece'", "supported: BPE")
    refused(pt(V=260, tokenizer=byte_level()), "has id 260", "ids below 260")


def test_damaged():
    """Changed anywhere: an error of ours or a tokenizer, nothing else."""
    rng = random.Random(5)
    for values in (byte_level(), fallback()):
        data, refusals = json.dumps(values).encode(), 0
        for _ in range(400):
            broken = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                broken[rng.randrange(len(data))] = rng.choice(b'"{}[]:,0159eEtrufalsn\\ \xff')
            try:
                assert hf.from_json(bytes(broken), "file", {}, 300).tokens
            except ConvertError as e:
                refusals += 1
                assert "\n" not in str(e)
        assert refusals > 50


def leaves(value, path=()):
    for key, inner in (value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()):
        if key != "vocab":
            yield [*path, key]
            yield from leaves(inner, [*path, key])


@pytest.mark.parametrize("wrong", [None, True, 5, 1e9, "text", [], {}, [[]], {"type": "Sequence"}, [None]])
def test_wrong_types(wrong):
    for values in (byte_level(), fallback()):
        for path in leaves(values):
            try:
                assert read(changed(values, path, wrong)).tokens
            except ConvertError as e:
                assert "\n" not in str(e)
