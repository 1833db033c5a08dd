"""Texts to compare tokenizers on, the same ones at every run: words of a corpus, every script, everything that joins and
combines, spaces of all kinds, digits, NULs, special tokens spelled out, and bytes that are no UTF-8."""

import random
import unicodedata

# One block or more of every kind of script, with their combining marks, and what NFKC rewrites.
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF), (0x900, 0x97F), (0x980, 0x9FF),
    (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF),
    (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF),
    (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F),
    (0x20A0, 0x20CF), (0x2100, 0x214F), (0x2150, 0x218F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x24FF),
    (0x2580, 0x259F), (0x2600, 0x27BF), (0x2C00, 0x2C5F), (0x3000, 0x303F), (0x3040, 0x30FF), (0x3130, 0x318F),
    (0x3200, 0x33FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
    (0xFE00, 0xFE0F), (0xFE50, 0xFEFF), (0xFF00, 0xFFEF), (0xFFF0, 0xFFFF), (0x10330, 0x1034F), (0x12000, 0x123FF),
    (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
    (0xE0000, 0xE007F), (0x10FF00, 0x10FFFF),
]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u2581", "\u200b", "\u202f", "\x0b", "\x85",
          "\u2581 ", " \u2581", "\n\n", "\u1680", "\ufeff"]
JOINED = ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea",
          "e\u0301", "\u1100\u1161\u11a8", "a\u0308\u0323", "\u0928\u093f", "\ufdfa", "\u0e01\u0e33", "1\ufe0f\u20e3", "\uff21\uff42\uff11",
          "\u2460\u2473", "\ufb01\ufb04", "\u00bd", "\u2167", "\u3392", "\u2026", "\u212b", "\u1e9b\u0323", "\uff76\uff9e"]
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "<0xFF>", "<|im_start|>", "[INST]", "<sep>", "<sep", "aab", "aa\u2581b"]
BROKEN = [b"\xff", b"\xc0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\x80", b"\xc3", b"\xc3(",
          b"\xe2\x96", b"\xf8\x88\x80\x80\x80", b"\xe0\x80\xaf", b"\xfe\xfe"]


def block(rng):
    low, high = rng.choice(BLOCKS)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8)))


def anything(rng):
    while True:
        code = rng.randrange(0x110000)
        if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn":
            return chr(code)


def parts(words):
    """Generators of one part of a text, as bytes, each with a weight."""
    return [
        (8, lambda r: r.choice(words).encode()),
        (4, lambda r: b" "),
        (3, lambda r: block(r).encode()),
        (2, lambda r: r.choice(SPACES).encode()),
        (2, lambda r: r.choice(JOINED).encode()),
        (1, lambda r: anything(r).encode()),
        (1, lambda r: str(r.randrange(10 ** r.randint(1, 12))).encode()),
        (1, lambda r: r.choice(SPECIAL).encode()),
        (1, lambda r: r.choice("aehltsn ▁").encode() * r.randint(1, 40)),
        (0.5, lambda r: bytes(r.choice([0, 1, 9, 10, 13, 27, 127]) for _ in range(r.randint(1, 3)))),
        (0.5, lambda r: r.choice(BROKEN)),
        (0.3, lambda r: r.randbytes(r.randint(1, 6))),
    ]


def generate(words, count, seed):
    """`count` texts: fixed ones first, then random ones of 1 to some 30 parts, a few of thousands."""
    rng = random.Random(seed)
    weights, makers = zip(*parts(words))
    texts = [b"", b" ", b"  ", b"\0", b"a", "\u2581".encode(), "\u2581\u2581 ".encode(), b" a ", b"\xff", b"\0\0\0 \0"]
    texts += [s.encode() for s in SPACES + JOINED + SPECIAL] + BROKEN
    texts += [("x" + s + s + "y").encode() for s in SPACES]
    texts += [chr(code).encode() for low, high in BLOCKS for code in (low, (low + high) // 2, high)]
    while len(texts) < count:
        size = 3000 if rng.random() < 0.001 else rng.choice([1, 2, 3, 5, 8, 13, 30])
        texts.append(b"".join(maker(rng) for maker in rng.choices(makers, weights, k=size)))
    return texts
