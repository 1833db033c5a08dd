"""n-gram tables: what a model's loss is compared with, on the same split and the same tokens.

Interpolated modified Kneser-Ney (Chen and Goodman): the longest order counts occurrences, the shorter ones the different
tokens seen before; a count is discounted by D1, D2 or D3 (three and more), estimated for each order, and what is taken off
goes to the next shorter order, the shortest to all tokens alike. No order is left out, so every token has a probability
and they sum to one. The text is one stream: there are no sentence borders, and unlike a model's windows the table always
sees the tokens before, which favours it a little.

Counted by sorting. An n-gram is an entry of its order's table, found by (entry of its first n - 1 tokens) * V + (last
token): that keeps keys in 64 bits, whatever n, and puts the continuations of a context side by side. Memory: about 100
bytes a training token. Numpy only.
"""

from dataclasses import dataclass

import numpy as np

_FALLBACK = (0.5, 1.0, 1.5)  # discounts where too few counts are there to estimate them
_AT_ONCE = 1 << 18  # tokens looked up at once


@dataclass(frozen=True)
class _Order:
    """The table of one order: entries in the order of `keys`; contexts are entries of the order below."""

    keys: np.ndarray  # [entries], rising
    counts: np.ndarray  # [entries], of occurrences or of different tokens before
    discounts: np.ndarray  # [4]: 0, D1, D2, D3
    totals: np.ndarray  # [contexts], counts of all its continuations
    left_over: np.ndarray  # [contexts], what the discounts took off them

    def find(self, keys):
        """Entries of the keys; -1 where there is none."""
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)


class Table:
    """The n-gram table of `tokens` [n], ids below `vocab`."""

    method = "interpolated modified Kneser-Ney"

    def __init__(self, tokens, order, vocab):
        tokens = np.asarray(tokens, np.int64)
        if order < 1 or len(tokens) < order or tokens.max(initial=0) >= vocab:
            raise ValueError(f"an {order}-gram table needs at least {order} tokens, all below {vocab}")
        self.vocab, self.order = vocab, order
        self.orders = []
        entry = np.zeros(len(tokens) + 1, np.int64)  # of the k-gram that begins at each position; k = 0: one for all
        contexts = 1
        below = None  # the order below: its keys, entries by position and number of contexts, its counts still to come
        for k in range(1, order + 1):
            of_key = entry[: len(tokens) - k + 1] * vocab + tokens[k - 1 :]
            keys, first, entry_k, occurrences = np.unique(of_key, return_index=True, return_inverse=True, return_counts=True)
            if below is not None:
                self._add(below[0], np.bincount(below[1][first + 1], minlength=len(below[0])), below[2])
            below = (keys, entry_k.reshape(-1), contexts)
            entry, contexts = below[1], len(keys)
        self._add(below[0], occurrences, below[2])

    def _add(self, keys, counts, contexts):
        discounts = _discounts(counts)
        context = keys // self.vocab
        totals = np.bincount(context, counts, contexts)
        taken = np.bincount(context, discounts[np.minimum(counts, 3)], contexts)
        self.orders.append(_Order(keys, counts, discounts, totals, taken))

    def nats(self, tokens):
        """[m - 1]: -log p of every token but the first, given all those before it."""
        tokens = np.asarray(tokens, np.int64)
        out = np.empty(len(tokens) - 1)
        for begin in range(1, len(tokens), _AT_ONCE):
            end = min(begin + _AT_ONCE, len(tokens))
            start = max(0, begin - self.order + 1)
            out[begin - 1 : end - 1] = self._nats(tokens[start:end], begin - start)
        return out

    def _nats(self, tokens, begin):
        """-log p of tokens[begin:], the ones before being context."""
        probability = np.full(len(tokens), 1.0 / self.vocab)
        entry = np.zeros(len(tokens), np.int64)
        for k, table in enumerate(self.orders, 1):
            # By the position a k-gram begins at; it predicts the token k - 1 places on.
            context = entry[: len(tokens) - k + 1]
            if len(context) == 0:
                break
            seen = context >= 0
            entry = np.where(seen, table.find(np.where(seen, context, 0) * self.vocab + tokens[k - 1 :]), -1)
            probability[k - 1 :] = _interpolate(table, context, entry, probability[k - 1 :])
        return -np.log(probability[begin:])

    def probabilities(self, context):
        """[vocab]: the distribution after the tokens of `context`, of which the last order - 1 count."""
        context = np.asarray(context, np.int64)
        probability = np.full(self.vocab, 1.0 / self.vocab)
        for k, table in enumerate(self.orders[: len(context) + 1], 1):
            at = 0
            for j, token in enumerate(context[len(context) - k + 1 :]):
                at = self.orders[j].find(np.array([at * self.vocab + token]))[0]
                if at < 0:
                    return probability
            entry = table.find(at * self.vocab + np.arange(self.vocab))
            probability = _interpolate(table, np.full(self.vocab, at), entry, probability)
        return probability


def _interpolate(table, context, entry, shorter):
    """p of the continuations `entry` of `context`; that of the shorter order where the context has none (or is unseen)."""
    total = np.where(context >= 0, table.totals[context], 0)
    counts = np.where(entry >= 0, table.counts[entry], 0)
    kept = counts - table.discounts[np.minimum(counts, 3)]
    return np.where(total > 0, (kept + table.left_over[context] * shorter) / np.maximum(total, 1), shorter)


def _discounts(counts):
    """0, D1, D2, D3 from how many entries were counted one, two, three and four times."""
    n = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if n.all():
        y = n[0] / (n[0] + 2 * n[1])
        d = [k - (k + 1) * y * n[k] / n[k - 1] for k in (1, 2, 3)]
        if all(0 < d[k] <= k + 1 for k in range(3)):
            return np.array([0, *d])
    return np.array([0, *_FALLBACK])
