"""Hugging Face's tokenizer.json where its model is BPE, with the files that lie beside it.

tokenizer.json describes a pipeline: added tokens are found in the text, what lies between is normalized, cut into pre-tokens
and merged, the whole is framed by BOS and EOS; the decoder puts texts together again. Any stage can be composed of many
steps; the engine has the pipelines of the families in use. Each stage is read here into what the engine calls it, and a
step, an option or a pattern that the engine does not have is refused by name, since a text encoded otherwise than the model
learnt it is a wrong answer nobody sees.
"""

import os

from . import bpe, jsonfile
from .bpe import Added, BytePairs
from .errors import ConvertError, show
from .jsonfile import REQUIRED, Config
from .spm import NORMAL, UNKNOWN

BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "added_tokens.json")

_SPACE = "\u2581"
_MAX_STEPS = 64
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
# transformers frames texts of these by their configuration's flags, whatever tokenizer.json says.
_FRAMED_BY_FLAGS = ("LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast")

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2_REST = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "'s|'t|'re|'ve|'m|'ll|'d|" + _GPT2_REST: "gpt-2",
    "'(?:[sdmt]|ll|ve|re)|" + _GPT2_REST: "gpt-2",
    _GPT4 % r"\p{N}{1,3}": "llama-bpe",
    _GPT4 % r"\p{N}": "qwen2",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTIONS + "?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTIONS + "?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+": "gpt-4o",
}


def from_json(data, what, files, limit=bpe.MAX_TOKENS):
    """The tokenizer in the text of a tokenizer.json. `what`: its path, for messages; `files`: path and bytes, by name, of those
    of BESIDE that are there; `limit`: how many ids the model has."""
    config = Config(jsonfile.loads(data, what), what)
    config.ignore("version")
    notes = _length_notes(config)
    beside = Beside(files)
    model = _model(config, what)
    normalizer = _steps(config, "normalizer", "normalizers", what)
    pre = _steps(config, "pre_tokenizer", "pretokenizers", what)
    post = _steps(config, "post_processor", "processors", what)
    decoder = _steps(config, "decoder", "decoders", what)
    added = _added(config, limit, what)
    config.finish()

    vocab = model.values["vocab"]
    bpe.check_vocab(vocab, limit, f"{what}: model")
    merges = bpe.split_merges(model.values["merges"], f"{what}: model")
    added = beside.more_added(added, vocab, limit, what)
    if any(step.kind == "ByteLevel" for step in pre):
        tokenizer = _byte_level(model, vocab, merges, added, normalizer, pre, decoder, what)
        if len(pre) == 1 and beside.config.values.get("add_prefix_space") not in (None, tokenizer.add_space_prefix):
            raise beside.config.bad("add_prefix_space", f"{str(tokenizer.add_space_prefix).lower()}, as {os.path.basename(what)} has it")
    else:
        tokenizer = _byte_fallback(model, vocab, merges, added, normalizer, pre, decoder, what)
    tokenizer.notes = notes
    ids = {text: i for i, text in enumerate(tokenizer.tokens)}
    name_special(tokenizer, ids, beside)
    _frame(tokenizer, ids, post, beside, what)
    return tokenizer


def _length_notes(config):
    """truncation and padding concern batches for training; a text is encoded whole."""
    notes = []
    for key in ("truncation", "padding"):
        config.ignore(key)
        value = config.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise config.bad(key, "an object or null")
        if value is not None:
            notes.append(f"{key} in {config.what.rsplit('/', 1)[-1]} is not applied: texts are encoded whole")
    return notes


# -- The model

def _stated(values, what):
    """A Config of what is not null: absent and null are the same thing in this format."""
    if not isinstance(values, dict):
        raise ConvertError(f"{what}: an object expected")
    return Config({key: value for key, value in values.items() if value is not None}, what)


def _model(config, what):
    config.ignore("model")
    model = _stated(config.values.get("model"), f"{what}: model")
    kind = model.text("type", "BPE" if "merges" in model else REQUIRED)
    if kind != "BPE":
        raise ConvertError(f"{what}: a model of type {show(kind)}; supported: BPE, byte-level or with byte fallback")
    model.ignore("vocab", "merges")
    for key in ("vocab", "merges"):
        if key not in model:
            raise ConvertError(f"{what}: model: {key} is missing")
    if model.values.get("dropout") not in (None, 0):
        raise model.bad("dropout", "none: with dropout a text has no one encoding")
    model.ignore("dropout")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.text(key, "") != "":
            raise model.bad(key, "none: this engine's BPE marks no words")
    for key in ("fuse_unk", "byte_fallback", "ignore_merges"):
        model.flag(key, False)
    model.text("unk_token")
    model.finish()
    return model


def _byte_level(model, vocab, merges, added, normalizer, pre, decoder, what):
    name, prefix = _pattern(pre, what)
    normalizers = {step.kind for step in normalizer}
    for step in normalizer:
        if step.kind != "NFC":
            raise step.refused("NFC or none, before ByteLevel")
        step.config.finish()
    if [step.kind for step in decoder] != ["ByteLevel"]:
        raise ConvertError(f"{what}: decoder is {_named(decoder)}; supported: ByteLevel after a pre_tokenizer ByteLevel")
    unknown = None if model.flag("fuse_unk", False) else vocab.get(model.text("unk_token"))
    tokens, types, flags = bpe.assemble(vocab, added, lambda text: NORMAL, what)
    bpe.check_bytes(vocab, added, unknown, types, f"{what}: model")
    bpe.check_merges(merges, vocab, types, f"{what}: model")
    ignore_merges = model.flag("ignore_merges", False)
    for token in added if ignore_merges else ():
        if token.text in vocab and not token.special and token.flags & bpe.SINGLE_WORD:
            raise ConvertError(f"{what}: added token {show(token.text)} with single_word, which ignore_merges finds in other words too, is "
                               "not supported by this engine's tokenizer; supported: single_word = false")
    return BytePairs("gpt2", tokens, types, merges, flags, pre=name, normalizer="nfc" if normalizers else "none",
                     ignore_merges=ignore_merges, add_space_prefix=prefix,
                     unknown=None if all(c in vocab for c in bpe.BYTE_ALPHABET) else unknown)


def _byte_fallback(model, vocab, merges, added, normalizer, pre, decoder, what):
    if not model.flag("byte_fallback", False):
        raise ConvertError(f"{what}: BPE on characters without byte_fallback, its pre_tokenizer {_named(pre)}; supported: "
                           "ByteLevel, or byte_fallback with Metaspace or none")
    if model.flag("ignore_merges", False):
        raise ConvertError(f"{what}: model: ignore_merges is supported with ByteLevel only")
    bpe.check_fallback(vocab, f"{what}: model")
    prefix, scheme = _space(normalizer, pre, merges, what)
    for token in added:
        if prefix and scheme == "prepend" and not token.special and token.flags & bpe.NORMALIZED:
            raise ConvertError(f"{what}: added token {show(token.text)} is looked for in normalized text, where Prepend gives it a "
                               "space of its own, which is not supported by this engine's tokenizer; supported: normalized = false")
    _fallback_decoder(decoder, prefix, what)
    tokens, types, flags = bpe.assemble(vocab, added, bpe.fallback_type, what)
    bpe.check_merges(merges, vocab, types, f"{what}: model")
    for token in added:
        if not token.special and token.text not in vocab:
            flags[token.id] |= bpe.OUTSIDE
    unknown = vocab.get(model.text("unk_token"))
    if unknown is not None and any(a.id == unknown and a.special for a in added):
        types[unknown] = UNKNOWN
    return BytePairs("llama", tokens, types, merges, flags, add_space_prefix=prefix, space_prefix=scheme, unknown=unknown)


# -- The stages, as lists of steps

class _Step:
    def __init__(self, values, what):
        self.config = _stated(values, what)
        self.kind = self.config.text("type", REQUIRED)

    def refused(self, supported):
        return ConvertError(f"{self.config.what} {show(self.kind)} is not supported by this engine's tokenizer; supported: "
                            f"{supported}")


def _steps(config, key, within, what):
    """The steps of a stage in order; a Sequence holds its own under `within`."""
    config.ignore(key)
    waiting, steps = [config.values.get(key)], []
    while waiting:
        value = waiting.pop()
        if value is None:
            continue
        step = _Step(value, f"{what}: {key}")
        if step.kind != "Sequence":
            steps.append(step)
        else:
            inner = step.config.values.get(within)
            if not isinstance(inner, list):
                raise ConvertError(f"{what}: {key}: a Sequence without its list {within}")
            waiting.extend(reversed(inner))
        if len(steps) + len(waiting) > _MAX_STEPS:
            raise ConvertError(f"{what}: {key}: more than {_MAX_STEPS} steps")
    return steps


def _named(steps):
    return " + ".join(show(step.kind) for step in steps) or "none"


def _pattern(pre, what):
    """The engine's name for a pre-tokenizer that ends with ByteLevel, and whether a space is put in front of a text."""
    kinds = [step.kind for step in pre]
    last = pre[-1].config
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"], ["Digits", "ByteLevel"]):
        raise ConvertError(f"{what}: pre_tokenizer is {_named(pre)}; supported: ByteLevel, Split + ByteLevel, Digits + ByteLevel")
    prefix, own_regex = last.flag("add_prefix_space", True), last.flag("use_regex", True)
    last.flag("trim_offsets")
    last.finish()
    if prefix and len(pre) > 1:
        raise ConvertError(f"{what}: pre_tokenizer: add_prefix_space after {kinds[0]} puts a space before every piece, which is "
                           "not supported by this engine's tokenizer")
    if kinds[0] == "Split":
        if own_regex:
            raise ConvertError(f"{what}: pre_tokenizer: Split and then ByteLevel's own regex (use_regex) cut twice, which is not "
                               "supported by this engine's tokenizer")
        return _split(pre[0]), prefix
    if not own_regex:
        raise ConvertError(f"{what}: pre_tokenizer: ByteLevel without its regex (use_regex) and without Split does not cut the "
                           "text, which is not supported by this engine's tokenizer")
    if kinds[0] == "Digits":
        if not pre[0].config.flag("individual_digits", False):
            raise ConvertError(f"{what}: pre_tokenizer: Digits with individual_digits = false; supported: true")
        pre[0].config.finish()
        return "smollm", prefix
    return "gpt-2", prefix


def _split(step):
    config = step.config
    pattern = config.value("pattern", REQUIRED)
    regex = pattern.get("Regex") if isinstance(pattern, dict) and len(pattern) == 1 else None
    if not isinstance(regex, str):
        raise config.bad("pattern", "an object with the one key Regex")
    behavior, invert = config.text("behavior", REQUIRED), config.flag("invert", False)
    config.finish()
    # The known patterns match all of any text, so that what they leave out is nothing.
    if (behavior, invert) not in (("Isolated", False), ("Isolated", True), ("Removed", True)):
        raise ConvertError(f"{config.what}: Split with behavior {show(behavior)}, invert {str(invert).lower()}; supported: Isolated")
    if regex not in PATTERNS:
        raise ConvertError(f"{config.what}: the pattern {show(regex, 400)} is not one this engine has; supported: those of "
                           "GPT-2, Llama 3 (and GPT-4), Qwen2 and GPT-4o")
    return PATTERNS[regex]


def _space(normalizer, pre, merges, what):
    """Whether a space is put in front of a text, and by which rule; either stage writes spaces as U+2581."""
    kinds = [step.kind for step in normalizer]
    if not pre and sorted(kinds) in (["Replace"], ["Prepend", "Replace"]):
        for step in normalizer:
            config = step.config
            if step.kind == "Prepend":
                good = config.text("prepend", REQUIRED) == _SPACE
            else:
                good = [config.value("pattern"), config.value("content")] == [{"String": " "}, _SPACE]
            config.finish()
            if not good:
                raise step.refused("Prepend of U+2581 and Replace of a space by U+2581")
        return "Prepend" in kinds, "prepend"
    if not normalizer and [step.kind for step in pre] == ["Metaspace"]:
        return _metaspace(pre[0], merges)
    raise ConvertError(f"{what}: normalizer {_named(normalizer)} with pre_tokenizer {_named(pre)}; supported with byte_fallback: "
                       "normalizers Prepend + Replace, or Replace, of U+2581, or the pre_tokenizer Metaspace")


def _metaspace(step, merges):
    config = step.config
    if config.text("replacement", _SPACE) != _SPACE:
        raise config.bad("replacement", "U+2581")
    config.text("str_rep")
    old = config.flag("add_prefix_space", True)
    scheme = config.choice("prepend_scheme", ("always", "never", "first"), "always" if old else "never")
    split = config.flag("split", True)
    config.finish()
    if split:  # pre-tokens begin at U+2581: the same as none, where no merge reaches over one
        for left, right in merges:
            if _SPACE in (left + right)[1:]:
                raise ConvertError(f"{config.what}: Metaspace with split, while the merge {show(left + ' ' + right)} reaches over "
                                   "a space, is not supported by this engine's tokenizer; supported: split = false")
    return scheme != "never", "metaspace_first" if scheme == "first" else "metaspace"


def _fallback_decoder(decoder, prefix, what):
    """The inverse of the encoder: bytes become characters, U+2581 a space, and one space in front goes where one was put."""
    kinds = [step.kind for step in decoder]
    expected = ["Replace", "ByteFallback", "Fuse"] + ["Strip"] * prefix
    if kinds != expected:
        raise ConvertError(f"{what}: decoder is {_named(decoder)}; supported here: {' + '.join(expected)}")
    for step, good in zip(decoder, (
            {"pattern": {"String": _SPACE}, "content": " "}, {}, {}, {"content": " ", "start": 1, "stop": 0})):
        if {key: value for key, value in step.config.values.items() if key != "type"} != good:
            raise step.refused(f"{good}" if good else "no options")


# -- Added and special tokens

def _added(config, limit, what):
    config.ignore("added_tokens")
    values = config.values.get("added_tokens", [])
    if not isinstance(values, list) or len(values) > bpe.MAX_TOKENS:
        raise ConvertError(f"{what}: added_tokens is no list of tokens")
    return [_added_token(value, None, limit, f"{what}: added_tokens") for value in values]


def _added_token(value, i, limit, where):
    """`i`: the id, where the object does not hold it."""
    token = _stated(value, where)
    text = token.text("content", REQUIRED)
    bpe.check_token(text, where)
    if i is None:
        i = token.value("id", REQUIRED)
    bpe.check_id(i, text, limit, where)
    special = token.flag("special", False)
    flags = sum(bit for key, bit, default in (
        ("lstrip", bpe.LSTRIP, False), ("rstrip", bpe.RSTRIP, False), ("single_word", bpe.SINGLE_WORD, False),
        ("normalized", bpe.NORMALIZED, not special)) if token.flag(key, default))
    token.finish()
    return Added(i, text, special, flags)


class Beside:
    """What the other files say: names of special tokens, more added tokens, flags."""

    def __init__(self, files):
        self.paths = {name: path for name, (path, _) in files.items()}
        self.values = {}
        for name, (path, data) in files.items():
            self.values[name] = Config(jsonfile.loads(data, path), path)
        self.config = self.values.get("tokenizer_config.json", Config({}, "tokenizer_config.json"))

    def special(self, key):
        """The text of the special token `key` and the path of the file that names it, or (None, None)."""
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            config = self.values.get(name)
            value = config.values.get(key) if config else None
            if value is not None:
                return self._text(value, key, config.what), config.what
        return None, None

    @staticmethod
    def _text(value, key, where):
        text = value.get("content") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise ConvertError(f"{where}: {key} is no token")
        return text

    def _more_special(self):
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            config = self.values.get(name)
            values = config.values.get("additional_special_tokens") if config else None
            if values is not None and not isinstance(values, list):
                raise config.bad("additional_special_tokens", "a list of tokens")
            for value in values or ():
                yield self._text(value, "additional_special_tokens", config.what)

    def more_added(self, added, vocab, limit, what):
        """The added tokens with those that transformers adds to tokenizer.json's: added_tokens_decoder, and special tokens that
        are in the vocabulary."""
        texts, ids = {a.text: a.id for a in added}, {a.id for a in added}
        more = list(added)
        decoder = self.config.values.get("added_tokens_decoder")
        if decoder is not None and not isinstance(decoder, dict):
            raise self.config.bad("added_tokens_decoder", "an object from id to token")
        for key, value in (decoder or {}).items():
            where = f"{self.config.what}: added_tokens_decoder"
            i = int(key) if key.isascii() and key.isdigit() and len(key) < 10 else None
            if i is None:
                raise ConvertError(f"{where}: {show(key)} is no id")
            token = _added_token(value, i, limit, where)
            if texts.get(token.text, i) != i:
                raise ConvertError(f"{where}: {show(token.text)} has id {i}, in {what} {texts[token.text]}")
            if i not in ids:
                texts[token.text] = i
                more.append(token)
        named = [self.special(key)[0] for key in _NAMED]
        for text in [*named, *self._more_special()]:
            if text in vocab and text not in texts:
                texts[text] = vocab[text]
                more.append(Added(vocab[text], text, special=True))
        return more

    def generation_end(self):
        """The first of the ids at which generation_config.json ends a text, and all of them."""
        config = self.values.get("generation_config.json")
        value = config.values.get("eos_token_id") if config else None
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(i) is int and i >= 0 for i in ids):
            raise config.bad("eos_token_id", "an id or a list of ids")
        return ids


def name_special(tokenizer, ids, beside):
    """bos, eos, unknown and padding, where a file names them."""
    found = {}
    for key in _NAMED:
        text, where = beside.special(key)
        if text is None:
            continue
        if text in ids:
            found[key] = ids[text]
        elif key == "pad_token":
            tokenizer.notes.append(f"pad_token {show(text)} is no token of the vocabulary: left out")
        else:
            raise ConvertError(f"{where}: {key} is {show(text)}, which is no token of the vocabulary")
    ends = beside.generation_end()
    if "eos_token" not in found and ends and ends[0] < len(tokenizer.tokens):
        found["eos_token"] = ends[0]
    others = [i for i in ends if i != found.get("eos_token")]
    if others:
        tokenizer.notes.append(f"generation_config.json ends a text at {', '.join(map(str, ends[:8]))}; the model's file names one, "
                               f"{found.get('eos_token')}")
    tokenizer.bos, tokenizer.eos = found.get("bos_token"), found.get("eos_token")
    if tokenizer.unknown is not None and found.get("unk_token", tokenizer.unknown) != tokenizer.unknown:
        raise ConvertError(f"{beside.special('unk_token')[1]}: unk_token is {show(tokenizer.tokens[found['unk_token']])}, but the model's is "
                           f"{show(tokenizer.tokens[tokenizer.unknown])}")
    tokenizer.unknown = found.get("unk_token", tokenizer.unknown)
    tokenizer.padding = found.get("pad_token")


# -- BOS and EOS around a text

def _frame(tokenizer, ids, post, beside, what):
    before = after = None
    for step in post:
        if step.kind == "TemplateProcessing":
            if (before, after) != (None, None):
                raise ConvertError(f"{what}: post_processor: more than one TemplateProcessing")
            before, after = _template(step.config, ids)
        elif step.kind != "ByteLevel":  # ByteLevel moves offsets only
            raise step.refused("TemplateProcessing, ByteLevel")
    for key, i in (("bos", before), ("eos", after)):
        named = getattr(tokenizer, key)
        if i is not None and named not in (None, i):
            raise ConvertError(f"{what}: post_processor frames a text by {show(tokenizer.tokens[i])}, but {key}_token is "
                               f"{show(tokenizer.tokens[named])}")
        if i is not None:
            setattr(tokenizer, key, i)
    tokenizer.add_bos, tokenizer.add_eos = before is not None, after is not None
    if beside.config.text("tokenizer_class", "") in _FRAMED_BY_FLAGS:
        for key, default in (("bos", True), ("eos", False)):
            flag = beside.config.flag(f"add_{key}_token", default)
            if flag and getattr(tokenizer, key) is None:
                raise ConvertError(f"{beside.config.what}: add_{key}_token is true, but no {key}_token is named")
            if flag != getattr(tokenizer, f"add_{key}"):
                tokenizer.notes.append(f"add_{key}_token is {str(flag).lower()} as {beside.config.what.rsplit('/', 1)[-1]} has it, "
                                       "not as post_processor does")
                setattr(tokenizer, f"add_{key}", flag)


def _template(config, ids):
    """Ids of the tokens before and after the text of a TemplateProcessing, None where there is none."""
    single, special = config.values.get("single"), config.values.get("special_tokens")
    if not isinstance(single, list) or not isinstance(special, dict):
        raise ConvertError(f"{config.what}: TemplateProcessing without its lists single and special_tokens")
    sides, side = ([], []), 0
    for part in single:
        if not isinstance(part, dict) or len(part) != 1:
            raise ConvertError(f"{config.what}: single holds something that is neither SpecialToken nor Sequence")
        (kind, value), = part.items()
        name = value.get("id") if isinstance(value, dict) else None
        if kind == "Sequence" and side == 0:
            side = 1
        elif kind == "SpecialToken" and isinstance(name, str) and isinstance(special.get(name), dict):
            sides[side].append((name, special[name].get("ids")))
        else:
            raise ConvertError(f"{config.what}: single holds something that is neither SpecialToken nor one Sequence")
    if side == 0 or max(map(len, sides)) > 1:
        raise ConvertError(f"{config.what}: a text is framed by {len(sides[0])} tokens before it and {len(sides[1])} after it; "
                           "supported: one each, BOS and EOS")
    result = []
    for framed in sides:
        if framed and framed[0][1] != [ids.get(framed[0][0])]:
            raise ConvertError(f"{config.what}: {show(framed[0][0])} stands for ids {framed[0][1]!r:.40}; supported: its own")
        result.append(ids[framed[0][0]] if framed else None)
    return result
