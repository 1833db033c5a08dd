"""Models of these tests: small random ones, whose texts are any bytes at all, and one that breaks at a certain token."""
import shutil

import descent_generate.cli
import numpy as np
from gguf import GGUFReader

SLOW_STEPS = 200  # of the model "slow": a few milliseconds a token


def make(folder, name, *arguments):
    path = folder / f"{name}.gguf"
    assert descent_generate.cli.main([arguments[0], str(path), *map(str, arguments[1:])]) == 0
    return path


def write_all(folder, shakespeare):
    """bytes: byte-level BPE and ChatML. pieces: CEM, SentencePiece, Llama 2's template. slow: takes its time. mute: no
    tokenizer. broken: the shipped Shakespeare model whose "z" is not a number."""
    return {
        "bytes": make(folder, "bytes", "nrgpt", "--vocab", 320, "--context", 512, "--steps", 3, "--chat-template", "chatml",
                      "--seed", 7),
        "pieces": make(folder, "pieces", "cem", "--vocab", 512, "--context", 256, "--tokenizer", "sentencepiece",
                       "--chat-template", "llama2", "--seed", 3),
        "slow": make(folder, "slow", "nrgpt", "--vocab", 512, "--context", 4096, "--steps", SLOW_STEPS),
        "mute": make(folder, "mute", "nrgpt", "--vocab", 64, "--tokenizer", "none"),
        "broken": break_at(shakespeare, folder / "broken.gguf", "z"),
    }


def break_at(path, out, character):
    """A copy of a model whose embedding of a character is not a number: a text diverges there."""
    shutil.copy(path, out)
    reader = GGUFReader(out, "r+")
    tokens = reader.get_field("tokenizer.ggml.tokens")
    spelled = [bytes(tokens.parts[i]).decode() for i in tokens.data]
    embedding = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    row = embedding.data[spelled.index(character)]
    row[:] = np.nan
    reader.data.flush()
    return out
