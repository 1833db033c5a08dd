#!/usr/bin/env python3
"""How fast this engine encodes text, beside the libraries its tokenizers are equal to, on the same text and one thread:

    .venv/bin/python tools/bench_tokenizers.py TOKENIZER... [--text FILE...] [--bytes N] [--repeats N] [--json]

TOKENIZER is what convert.py reads: tokenizer.model, tokenizer.json, a .tiktoken file, encoder.json beside vocab.bpe. Each
library that is installed and has that kind of tokenizer takes part: sentencepiece, Hugging Face's tokenizers, tiktoken.
docs/tokenizers.md explains the figures. Exit status 1: a library's ids differ from ours, or a tokenizer cannot be read.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOOLS = pathlib.Path(__file__).resolve().parent
DATA = TOOLS.parent / "models" / "data"

for variable in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path[:0] = [str(TOOLS), str(TOOLS / "python")]

import descent  # noqa: E402
from descent_convert import bpe, hf, source, spm  # noqa: E402
from descent_convert.errors import ConvertError  # noqa: E402


def engine(path, tokenizer, folder):
    """Our encode, of a model as small as models get that carries the tokenizer."""
    model = os.path.join(folder, "model.gguf")
    shape = dict(tokenizer=path, vocab=len(tokenizer.tokens), width=4, heads=1, hidden=4, context=4)
    flags = [f"--{name}={value}" for name, value in shape.items()]
    made = subprocess.run([sys.executable, TOOLS / "generate_model.py", "nrgpt-90m", model, *flags], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise ConvertError(made.stderr.strip())
    return descent.Model(model).encode


def sentencepiece(path, tokenizer):
    if not isinstance(tokenizer, spm.SentencePiece):
        return None
    import sentencepiece as library
    return library.SentencePieceProcessor(model_file=path).encode


def tokenizers(path, tokenizer):
    if not path.endswith("tokenizer.json"):
        return None
    import tokenizers as library
    encode = library.Tokenizer.from_file(path).encode
    return lambda text: encode(text, add_special_tokens=False).ids


def tiktoken(path, tokenizer):
    """Takes part wherever a token's id is its rank, as in GPT's vocabularies and those made like them."""
    if not isinstance(tokenizer, bpe.BytePairs) or tokenizer.kind != "gpt2" or tokenizer.normalizer != "none":
        return None
    pattern = next((pattern for pattern, pre in hf.PATTERNS.items() if pre == tokenizer.pre), None)
    if pattern is None:
        return None
    import tiktoken as library
    byte = {character: value for value, character in enumerate(bpe.BYTE_ALPHABET)}
    ranks = {bytes(byte[c] for c in token): i for i, (token, kind) in enumerate(zip(tokenizer.tokens, tokenizer.types))
             if kind == spm.NORMAL}
    return library.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary


def contenders(path, tokenizer, folder):
    """{name: encode}, ours first."""
    found = {"descent": engine(path, tokenizer, folder)}
    for make in (tiktoken, tokenizers, sentencepiece):
        try:
            encode = make(path, tokenizer)
        except ImportError as e:
            print(f"{path}: {e.name} is not installed and takes no part", file=sys.stderr)
            continue
        if encode:
            found[f"{make.__name__} {importlib.metadata.version(make.__name__)}"] = encode
    return found


def measure(encoders, text, repeats):
    """{name: [CPU seconds]} and {name: ids}. The libraries take turns, so that what slows the machine slows all."""
    seconds, ids = {name: [] for name in encoders}, {}
    for turn in range(repeats + 1):  # the first warms up
        for name, encode in encoders.items():
            started = time.process_time()
            result = encode(text)
            taken = time.process_time() - started
            if turn:
                seconds[name].append(taken)
            else:
                ids[name] = list(map(int, result))
    return seconds, ids


def bench(path, text, repeats):
    """What is printed of one tokenizer, as JSON has it."""
    tokenizer = source.read_tokenizer(path, bpe.MAX_TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        encoders = contenders(path, tokenizer, folder)
        seconds, ids = measure(encoders, text, repeats)
    size, ours = len(text.encode()), statistics.median(seconds["descent"])
    rows = [{"library": name, "megabytes_per_second": size / 1e6 / statistics.median(taken),
             "median_seconds": statistics.median(taken), "fastest_seconds": min(taken), "slowest_seconds": max(taken),
             "times_ours": statistics.median(taken) / ours, "same_ids": ids[name] == ids["descent"]}
            for name, taken in seconds.items()]
    return {"tokenizer": path, "kind": tokenizer.kind, "vocabulary": len(tokenizer.tokens), "bytes": size,
            "tokens": len(ids["descent"]), "repeats": repeats, "libraries": rows}


def table(result):
    lines = [f"{result['tokenizer']}: {result['kind']}, {result['vocabulary']} tokens; {result['bytes']} bytes of text are "
             f"{result['tokens']} tokens; median of {result['repeats']}",
             f"  {'library':22} {'MB/s':>7} {'seconds':>9}  {'fastest..slowest':>17} {'times ours':>11}  same ids"]
    for row in result["libraries"]:
        spread = f"{row['fastest_seconds']:.4f}..{row['slowest_seconds']:.4f}"
        lines.append(f"  {row['library']:22} {row['megabytes_per_second']:7.1f} {row['median_seconds']:9.4f}  {spread:>17} "
                     f"{row['times_ours']:11.2f}  {'yes' if row['same_ids'] else 'NO'}")
    return "\n".join(lines)


def read_text(paths, size):
    """The files joined and repeated, cut to `size` bytes."""
    data = b"\n".join(pathlib.Path(path).read_bytes() for path in paths)
    if not data:
        raise ConvertError("there is no text to encode")
    return (data * (size // len(data) + 1))[:size].decode(errors="ignore")


def main(argv):
    parser = argparse.ArgumentParser(prog="bench_tokenizers.py", description="Times tokenizers beside their reference libraries.")
    parser.add_argument("tokenizers", metavar="TOKENIZER", nargs="+", help="a file that convert.py reads")
    parser.add_argument("--text", metavar="FILE", action="append", help="UTF-8, joined and repeated (the English of models/data)")
    parser.add_argument("--bytes", type=int, default=1_000_000, metavar="N", help="of text to encode (1000000)")
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="timed turns of each library (9)")
    parser.add_argument("--json", action="store_true", help="one line of JSON a tokenizer instead of a table")
    arguments = parser.parse_args(argv)
    if arguments.bytes < 1 or arguments.repeats < 1:
        parser.error("--bytes and --repeats are at least 1")
    same = True
    try:
        text = read_text(arguments.text or sorted(DATA.glob("*.val.txt")), arguments.bytes)
        for path in arguments.tokenizers:
            result = bench(path, text, arguments.repeats)
            same = same and all(row["same_ids"] for row in result["libraries"])
            print(json.dumps(result) if arguments.json else table(result), flush=True)
    except (ConvertError, OSError) as e:
        print(f"bench_tokenizers.py: {e}", file=sys.stderr)
        return 1
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
