"""Tokenizers of exactly V tokens that encode any text: nothing but the vocabulary is made up.

    bytes          byte-level BPE as GPT-2's: decoding gives back every byte. V = 256 bytes, merges, control tokens
    sentencepiece  SentencePiece BPE with byte fallback, which takes UTF-8. V = <unk> <s> </s>, 256 bytes, single characters,
                   merges, control tokens

The merges are vocabulary.merges(). Control tokens are the kind's own end of text and those the chat template is made of.
Neither changes a text before it is encoded: no space is put in front, none is removed.
"""

import itertools
from dataclasses import dataclass

from descent_convert.bpe import BYTE_ALPHABET, BYTE_TOKENS, BytePairs, spell
from descent_convert.chat import Stated
from descent_convert.errors import ConvertError
from descent_convert.spm import BYTE, CONTROL, NORMAL, UNKNOWN, SentencePiece

from . import vocabulary

KINDS = ("bytes", "sentencepiece")

_SPACE = "\u2581"
_CHARACTERS = [_SPACE, *map(chr, range(33, 127)), "\n"]
_END = "<|endoftext|>"


@dataclass(frozen=True)
class _Template:
    """Control tokens a template needs; BOS and EOS where the kind's own will not do."""

    special: tuple = ()
    bos: str | None = None
    eos: str | None = None
    add_bos: bool = False


_TEMPLATES = {
    "plain": _Template(),
    "chatml": _Template(("<|im_start|>", "<|im_end|>"), eos="<|im_end|>"),
    "llama2": _Template(("<s>", "</s>"), "<s>", "</s>", add_bos=True),
    "llama3": _Template(("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "<|begin_of_text|>",
                        "<|eot_id|>", add_bos=True),
}


def with_template(tokenizer, chat_template, what):
    """The tokenizer `what` (None: there is none) with the template stated, None for none; it must have the template's tokens."""
    if chat_template is None:
        return tokenizer
    if tokenizer is None:
        raise ConvertError(f"--chat-template {chat_template}: without a tokenizer there is no chat")
    for token in _TEMPLATES[chat_template].special:
        if token not in tokenizer.tokens:
            raise ConvertError(f"--chat-template {chat_template}: --tokenizer {what} has no token '{token}'")
    return Stated(tokenizer, chat_template)


def synthetic(kind, vocab, chat_template):
    """A tokenizer of KINDS with `vocab` tokens, and the template stated where there is one."""
    template = _TEMPLATES[chat_template or "plain"]
    make = {"bytes": _bytes, "sentencepiece": _sentencepiece}[kind]
    return with_template(make(vocab, template), chat_template, kind)


def _merges(vocab, others):
    """As many merges as make `vocab` tokens beside `others`; at least one, since GGUF holds no empty list."""
    room = vocab - others
    if room < 1:
        raise ConvertError(f"--vocab {vocab}: such a tokenizer has at least {others + 1} tokens; say more, or --tokenizer none")
    merges = list(itertools.islice(vocabulary.merges(), room))
    if len(merges) < room:
        raise ConvertError(f"--vocab {vocab}: only {vocab - room + len(merges)} tokens can be made up; say --tokenizer none")
    return merges


def _bytes(vocab, template):
    special = [_END, *template.special]
    merges = [(spell(left.encode()), spell(right.encode())) for left, right in _merges(vocab, 256 + len(special))]
    tokens = sorted(BYTE_ALPHABET) + [left + right for left, right in merges] + special
    types = [NORMAL] * (vocab - len(special)) + [CONTROL] * len(special)
    return BytePairs("gpt2", tokens, types, merges, [0] * vocab, pre="gpt-2", bos=tokens.index(template.bos or _END),
                     eos=tokens.index(template.eos or _END), add_bos=template.add_bos)


def _sentencepiece(vocab, template):
    first = ["<unk>", "<s>", "</s>"]
    special = [token for token in template.special if token not in first]
    merges = _merges(vocab, len(first) + 256 + len(special) + len(_CHARACTERS))
    pieces = [(left + right).replace(" ", _SPACE) for left, right in merges]
    tokens = first + BYTE_TOKENS + _CHARACTERS + pieces + special
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(_CHARACTERS) + len(pieces)) + [CONTROL] * len(special)
    scores = [0.0] * vocab
    for rank, i in enumerate(range(len(first) + 256, vocab - len(special))):
        scores[i] = -float(rank)
    return SentencePiece(tokens, scores, types, tokens.index(template.bos or "<s>"), tokens.index(template.eos or "</s>"), 0, None,
                         add_space_prefix=False, remove_extra_whitespaces=False, charsmap=b"", add_bos=template.add_bos)
