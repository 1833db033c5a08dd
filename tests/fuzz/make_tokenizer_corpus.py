"""Writes the seeds of the tokenizer fuzzer, tests/fuzz/corpus/tokenizer: one small file of each kind with a text for it.

Run by hand when the seeds change; the files themselves are in the repository.
"""

import pathlib
import struct

import gguf

FOLDER = pathlib.Path(__file__).parent / "corpus" / "tokenizer"


def table():
    """A replacement table: a double array in which "A" becomes "a b", and its pool."""
    units = [0] * 256
    units[0] = 1 << 10
    units[1 ^ ord("A")] = ord("A") | 0x100 | 0x82 << 10
    units[1 ^ ord("A") ^ 0x82] = 0x80000000
    trie = struct.pack("<256I", *units)
    return struct.pack("<I", len(trie)) + trie + b"a b\0"


def seed(name, text, model, tokens, types, scores=None, fill=lambda writer: None):
    path = FOLDER / name
    writer = gguf.GGUFWriter(path, "nrgpt")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores:
        writer.add_token_scores(scores)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    path.write_bytes(struct.pack("<H", len(text)) + text + path.read_bytes())


def words(writer):
    writer.add_string("tokenizer.descent.separator", ",")
    writer.add_eos_token_id(0)


def spm(writer):
    writer.add_bos_token_id(1)
    writer.add_add_eos_token(False)
    writer.add_remove_extra_whitespaces(True)
    writer.add_precompiled_charsmap(table())


PATTERNS = ["gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o"]


def alphabet():
    """The character that spells each byte: itself where it is visible in Latin-1, else the next from U+0100."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b if b in visible else next(others)) for b in range(256)]


def byte_level(pre, flags=b"", normalizer=None, ignore_merges=False, prefix=False, missing=()):
    """A gpt2 tokenizer of a handful of merges, and added tokens of every sort. The bytes `missing` have no token of their
    own: the first of them is the unknown one, the others are unused."""
    added = ["<|e|>", "<s", "<s>", "lo", "\u00e4b"]
    tokens = alphabet() + ["ab", "\u0120a", "\u0120ab", "abab", "\u0120\u0120", "\u00c3\u00a4", "hel"] + added

    def fill(writer):
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(["a b", "\u0120 a", "\u0120a b", "ab ab", "\u0120 \u0120", "\u00c3 \u00a4"])
        writer.add_eos_token_id(tokens.index("<|e|>"))
        if normalizer:
            writer.add_string("tokenizer.descent.normalizer", normalizer)
        if ignore_merges:
            writer.add_bool("tokenizer.descent.ignore_merges", True)
        if prefix:
            writer.add_add_space_prefix(True)
        if flags:
            writer.add_array("tokenizer.descent.token_flags", bytes(len(tokens) - len(added)) + flags)

    types = [1] * (len(tokens) - len(added)) + [3, 4, 3, 4, 4]
    for i, byte in enumerate(missing):
        types[byte] = 5 if i else 2
    return "gpt2", tokens, types, None, fill


def merged(space_prefix, flags=b""):
    """A llama tokenizer with merges."""
    pieces = ["<unk>", "<s>", "a", "b", "\u2581", "ab", "\u2581a", "abab", "\u2581\u2581", "[x]", "\u00e4", "</s>"]
    tokens = pieces + [f"<0x{b:02X}>" for b in range(256)]

    def fill(writer):
        writer.add_token_merges(["a b", "\u2581 a", "ab ab", "\u2581 \u2581"])
        writer.add_bos_token_id(1)
        writer.add_string("tokenizer.descent.space_prefix", space_prefix)
        if flags:
            writer.add_array("tokenizer.descent.token_flags", flags + bytes(256))

    return "llama", tokens, [2, 3, 1, 1, 1, 1, 1, 1, 1, 4, 1, 3] + [6] * 256, [0.0] * len(tokens), fill


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    seed("chars", "aä<e>\n".encode(), "chars", ["\n", "a", "ä", "€", "<e>"], [1, 1, 1, 1, 3])
    seed("words", b"0,(,0,<eos>,", "words", ["<eos>", "(", "0"], [3, 1, 1], fill=words)
    pieces = ["<unk>", "<s>", "a", "b", "\u2581", "ab", "\u2581a", "[x]", "abab", "ba"]
    types, scores = [2, 3, 1, 1, 1, 1, 1, 4, 5, 5], [0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, 0.0, -3.0, -4.0]
    text = "ab  A[x]<s>baba\u2581\xff ".encode() + b"\xff\0z"
    seed("spm", text, "llama", pieces, types, scores, spm)
    byte = [f"<0x{b:02X}>" for b in range(256)]
    seed("spm_bytes", text, "llama", pieces + byte, types + [6] * 256, scores + [0.0] * 256, spm)
    unigram = [-abs(score) for score in scores]
    seed("t5", text, "t5", pieces, types, unigram, spm)
    seed("t5_bytes", text, "t5", pieces + byte, types + [6] * 256, unigram + [0.0] * 256, spm)
    text = "abab  hello\n\n <s> \u00e4a\u0308 1234'll <s [x]a\u0308b\u00e4b\U0001f600\t<|e|>  ".encode() + b"\xff\xe2\x82\0 z"
    for pre in PATTERNS:
        seed(f"gpt2_{pre}", text, *byte_level(pre))
    seed("gpt2_flags", text, *byte_level("gpt-2", flags=bytes([0, 1, 2, 4, 8])))
    seed("gpt2_all", text, *byte_level("llama-bpe", bytes([3, 7, 8, 12, 15]), "nfc", True, True))
    seed("gpt2_missing", text, *byte_level("gpt-2", missing=(ord("z"), ord("1"), 0x80)))
    for prefix in ("prepend", "metaspace", "metaspace_first"):
        seed(f"merges_{prefix}", text, *merged(prefix))
    seed("merges_flags", text, *merged("prepend", flags=bytes([0, 4] + [0] * 7 + [12, 0, 3])))


if __name__ == "__main__":
    main()
