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


if __name__ == "__main__":
    main()
