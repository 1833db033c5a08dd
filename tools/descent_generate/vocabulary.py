"""Any number of tokens that merge into each other, from a list of frequent words.

Byte-pair merges are learned from words.txt (words in order of frequency, weighed by their rank) as they would be from a
text. Where they end, after some twelve thousand, compounds of what was learned follow, a word and an ending at a time, so
that a vocabulary can have millions of tokens. Each token is made of two earlier ones or is one character; all are ASCII. A
space is spelled ' ' here, each kind of tokenizer writes it its own way.
"""

import heapq
import os
from collections import Counter, defaultdict

_WORDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "words.txt")
_RUNS = [" " * n for n in (2, 4, 8, 16)] + ["\n\n"]


def words():
    """[(text, weight)]: every word alone and, more often, after a space."""
    with open(_WORDS, encoding="ascii") as file:
        ranked = file.read().split()
    weighed = []
    for rank, word in enumerate(ranked, 1):
        weighed += [(" " + word, 4_000_000 // rank), (word, 1_000_000 // rank)]
    return weighed


def learned():
    """The merges (left, right) in order: of all neighbours the heaviest pair, the alphabetically first among equals."""
    chains = [list(text) for text, _ in words()]
    weights = [weight for _, weight in words()]
    totals, places = Counter(), defaultdict(set)
    for i, chain in enumerate(chains):
        for pair in zip(chain, chain[1:]):
            totals[pair] += weights[i]
            places[pair].add(i)
    heap = [(-total, pair) for pair, total in totals.items()]
    heapq.heapify(heap)
    while heap:
        total, pair = heapq.heappop(heap)
        if totals[pair] != -total or not total:
            continue
        yield pair
        changed = set()
        for i in places.pop(pair):
            for old in zip(chains[i], chains[i][1:]):
                totals[old] -= weights[i]
                changed.add(old)
            chains[i] = _merged(chains[i], pair)
            for new in zip(chains[i], chains[i][1:]):
                totals[new] += weights[i]
                places[new].add(i)
                changed.add(new)
        for other in changed - {pair}:
            heapq.heappush(heap, (-totals[other], other))
        del totals[pair]


def _merged(chain, pair):
    out = []
    for piece in chain:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


def merges():
    """(left, right), without end for all purposes: runs of white space, what is learned, compounds. No token twice."""
    made = set()

    def fresh(pairs):
        for left, right in pairs:
            if left + right not in made:
                made.add(left + right)
                yield left, right

    yield from fresh((run[:len(run) // 2], run[len(run) // 2:]) for run in _RUNS)
    before = len(made)
    tokens = []
    for pair in fresh(learned()):
        tokens.append("".join(pair))
        yield pair
    assert len(made) == before + len(tokens)
    starts = [t for t in tokens if t[0] == " " and len(t) > 3]
    ends = [t for t in tokens if t[0] != " "]
    yield from fresh((starts[i], ends[total - i]) for total in range(len(starts) + len(ends) - 1)
                     for i in range(max(0, total - len(ends) + 1), min(total + 1, len(starts))))
