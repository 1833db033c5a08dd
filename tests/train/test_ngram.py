"""The tables against numbers worked out by hand and against modified Kneser-Ney written another way: dictionaries of tuples,
one probability at a time, as the paper defines it."""
import collections

import numpy as np
import pytest

from descent_train import ngram


class Reference:
    def __init__(self, tokens, order, vocab):
        self.vocab, self.order = vocab, order
        grams = lambda n: [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
        self.counts = {order: collections.Counter(grams(order))}
        for n in range(order - 1, 0, -1):
            self.counts[n] = collections.Counter({g: 0 for g in grams(n)})
            for longer in set(grams(n + 1)):
                self.counts[n][longer[1:]] += 1
        self.discounts = {n: self.estimate(c.values()) for n, c in self.counts.items()}

    @staticmethod
    def estimate(counts):
        n1, n2, n3, n4 = (sum(c == k for c in counts) for k in (1, 2, 3, 4))
        if min(n1, n2, n3, n4):
            y = n1 / (n1 + 2 * n2)
            d = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
            if all(0 < d[i] <= i + 1 for i in range(3)):
                return d
        return 0.5, 1.0, 1.5

    def p(self, word, context):
        context = tuple(context)[-(self.order - 1):] if self.order > 1 else ()
        return self._p(word, context)

    def _p(self, word, context):
        n = len(context) + 1
        shorter = self._p(word, context[1:]) if n > 1 else 1 / self.vocab
        after = {g[-1]: c for g, c in self.counts[n].items() if g[:-1] == context and c}
        total = sum(after.values())
        if not total:
            return shorter
        d = lambda c: self.discounts[n][min(c, 3) - 1] if c else 0
        count = after.get(word, 0)
        return (count - d(count)) / total + sum(map(d, after.values())) / total * shorter


def skewed(seed, size, vocab):
    """A text that repeats itself: counts of one, two, three, four and many at every order."""
    rng = np.random.Generator(np.random.PCG64(seed))
    tokens = [0, 1]
    while len(tokens) < size:
        repeat = rng.random() < 0.7
        tokens.append((3 * tokens[-1] + tokens[-2] + 1) % vocab if repeat else int(rng.integers(vocab) * rng.random()))
    return tokens


def test_a_case_worked_out_by_hand():
    table = ngram.Table([0, 0, 1, 0, 2], 2, 4)
    # Seen before 0: 0 and 1, before 1 and 2: 0. Discounts 1/2, 1: 1 + 1/2 + 1/2 = 2 of 4 are left to a quarter each.
    single = np.array([(2 - 1 + 2 / 4) / 4, (1 - 0.5 + 2 / 4) / 4, (1 - 0.5 + 2 / 4) / 4, (2 / 4) / 4])
    assert table.probabilities([]) == pytest.approx(single)
    after_0 = np.array([0.5, 0.5, 0.5, 0]) / 3 + 1.5 / 3 * single
    after_1 = np.array([0.5, 0, 0, 0]) + 0.5 * single
    assert table.probabilities([0]) == pytest.approx(after_0)
    assert table.probabilities([3, 1]) == pytest.approx(after_1)
    assert table.probabilities([2]) == pytest.approx(single)  # 2 ends the text: nothing was seen after it
    assert table.probabilities([3]) == pytest.approx(single)
    assert table.nats([1, 0, 3]) == pytest.approx(-np.log([after_1[0], after_0[3]]))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_table_is_the_papers(order):
    tokens, unseen = skewed(1, 600, 7), skewed(2, 60, 9)
    table, reference = ngram.Table(tokens, order, 9), Reference(tokens, order, 9)
    if order > 2:
        assert reference.discounts[order] != (0.5, 1.0, 1.5)  # estimated ones are what is tested
    expected = [-np.log(reference.p(unseen[i], unseen[:i])) for i in range(1, len(unseen))]
    assert table.nats(unseen) == pytest.approx(np.array(expected), rel=1e-12)
    for end in range(0, 30, 3):
        assert table.probabilities(unseen[:end]) == pytest.approx([reference.p(w, unseen[:end]) for w in range(9)], rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_probabilities_sum_to_one_after_any_context(order):
    tokens = skewed(3, 3000, 12)
    table = ngram.Table(tokens, order, 15)
    contexts = [[], [14], [14, 13, 12, 11]] + [tokens[i:i + n] for n in range(1, 7) for i in (0, 1, 700, len(tokens) - n)]
    for context in contexts:
        p = table.probabilities(context)
        assert p.min() > 0 and p.sum() == pytest.approx(1, abs=1e-12)


def test_a_long_text_is_read_in_parts_that_change_nothing(monkeypatch):
    table = ngram.Table(skewed(1, 2000, 7), 5, 7)
    text = skewed(4, 500, 7)
    whole = table.nats(text)
    monkeypatch.setattr(ngram, "_AT_ONCE", 7)
    assert np.array_equal(table.nats(text), whole) and len(whole) == 499


def test_large_vocabularies_and_uint16_tokens_do_not_overflow():
    rng = np.random.Generator(np.random.PCG64(1))
    tokens = rng.integers(0, 65536, 5000).astype(np.uint16)
    table, reference = ngram.Table(tokens, 5, 65536), Reference(tokens.tolist(), 5, 65536)
    at = tokens[1000:1020]
    expected = [-np.log(reference.p(int(at[i]), at[:i].tolist())) for i in range(1, 20)]
    assert table.nats(at) == pytest.approx(np.array(expected), rel=1e-12)


def test_impossible_tables_are_refused():
    for tokens, order, vocab in (([0, 1], 3, 2), ([0, 2], 1, 2), ([0, 1], 0, 2)):
        with pytest.raises(ValueError):
            ngram.Table(tokens, order, vocab)
