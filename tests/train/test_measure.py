"""Measurements of models whose predictions are known: tables, automata and random numbers in the place of a network."""
import math

import numpy as np
import pytest
import torch

from descent_train import depth, intervals, listops, measure

V = 5
GENERATOR = torch.Generator().manual_seed(1)
LOGITS = {T: torch.randn(9, V, V, generator=GENERATOR) for T in (1, 3)}  # by place in the window and token there
TEXT = np.random.Generator(np.random.PCG64(2)).integers(0, V, 46).astype(np.uint16)


def placed(ids, depths):
    """Predictions that say which window position a token was at."""
    places = torch.arange(ids.shape[1]).expand(ids.shape)
    return {T: LOGITS[T][places, ids] for T in depths}


def by_hand(T, i, length):
    """-log p of token i, which the token before it, at its place in its window, predicts."""
    row = LOGITS[T][(i - 1) % length, int(TEXT[i - 1])].double()
    return float(row.exp().sum().log() - row[int(TEXT[i])])


@pytest.mark.parametrize("length,batch_size", [(9, 2), (9, 16), (7, 3), (5, 1)])
def test_every_token_but_the_first_is_predicted_once_in_its_window(length, batch_size):
    found = measure.losses(placed, TEXT, length, [1, 3], batch_size)
    for T in (1, 3):
        nats = [by_hand(T, i, length) for i in range(1, 46)]
        assert found[T].predictions.tolist() == [length] * (45 // length) + [45 % length] * (45 % length > 0)
        assert found[T].nats == pytest.approx([sum(nats[i:i + length]) for i in range(0, 45, length)], rel=1e-6)
        assert found[T].mean == pytest.approx(sum(nats) / 45, rel=1e-6)


def test_the_first_windows_alone_and_texts_shorter_than_a_window():
    some = measure.losses(placed, TEXT, 9, [1], windows=2)[1]
    assert some.predictions.tolist() == [9, 9] and some.nats == pytest.approx(measure.losses(placed, TEXT, 9, [1])[1].nats[:2])
    assert measure.losses(placed, TEXT[:3], 9, [1])[1].mean == pytest.approx((by_hand(1, 1, 9) + by_hand(1, 2, 9)) / 2, rel=1e-6)
    with pytest.raises(ValueError, match="two tokens"):
        measure.losses(placed, TEXT[:1], 9, [1])


def test_losses_by_window_of_given_numbers_are_cut_the_same_way():
    nats = np.arange(1.0, 46.0)
    of = measure.by_window(nats, 7)
    assert of.predictions.tolist() == measure.losses(placed, TEXT, 7, [1])[1].predictions.tolist()
    assert of.nats[0] == 28 and of.nats[-1] == 43 + 44 + 45 and of.mean == 23


def test_depths_are_written_as_the_engine_writes_them():
    assert [depth.label(T) for T in (4, (2, 1), [3, 3], None)] == ["4", "2x1", "3x3", "none"]


def test_wilsons_interval():
    assert intervals.wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-7)
    assert intervals.wilson(0, 20) == pytest.approx((0, 0.1611252), abs=1e-7)
    assert intervals.wilson(20, 20) == pytest.approx((1 - 0.1611252, 1), abs=1e-7)


def test_the_bootstrap_is_that_of_a_ratio_of_sums():
    rng = np.random.Generator(np.random.PCG64(3))
    predictions = np.array([100.0] * 399 + [37.0])
    nats = predictions * rng.normal(2.0, 0.3, 400)
    low, high = intervals.bootstrap(nats, predictions)
    mean = nats.sum() / predictions.sum()
    error = np.std(nats - mean * predictions) * math.sqrt(400) / predictions.sum()  # the delta method's standard error
    assert low == pytest.approx(mean - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.15 * error)
    assert (low, high) == intervals.bootstrap(nats, predictions) != intervals.bootstrap(nats, predictions, seed=1)


def test_pairing_takes_out_what_makes_a_window_hard():
    rng = np.random.Generator(np.random.PCG64(4))
    predictions = np.full(200, 50.0)
    hard = rng.normal(100, 20, 200)
    a, b = (measure.Losses(hard + rng.normal(shift, 1, 200), predictions) for shift in (0.0, -2.0))
    difference, low, high = b.minus(a)
    assert difference == pytest.approx(b.mean - a.mean) and low < difference < high < 0
    alone = [x.interval() for x in (a, b)]
    assert all(high - low < (top - bottom) / 5 for bottom, top in alone)
    with pytest.raises(ValueError, match="cannot be paired"):
        a.minus(measure.Losses(hard[:100], predictions[:100]))


def test_context_kl_is_the_divergence_from_the_intact_prediction_first():
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.3, 0.6])

    def first_token(ids, depths):
        """Depends on the window's first token where the second half begins, on nothing elsewhere."""
        logits = torch.zeros(*ids.shape, 3)
        logits[:, ids.shape[1] // 2] = torch.where(ids[:, :1] == 0, p.log(), q.log())
        return {T: logits for T in depths}

    expected = float((p * (p / q).log()).sum()) / 4  # at one of the four positions of the second half
    seen = set()
    for seed in range(12):
        kl = measure.context_kl(first_token, [0, 1, 1, 1, 2, 2, 2, 2], 8, 4, seed=seed)
        assert kl["last_quarter"] == 0
        seen.add(round(kl["mean"], 6))
    assert seen == {0.0, round(expected, 6)}  # the first token stayed where it was, or did not


def test_context_kl_sees_only_what_is_scrambled():
    def near(ids, depths):  # the token before and its own: at the first position of the second half alone one is scrambled
        before = torch.nn.functional.pad(ids, (1, 0))[:, :-1]
        return {T: LOGITS[1][0][before] * 3 + LOGITS[3][0][ids] for T in depths}

    kl = measure.context_kl(near, TEXT, 16, 1, windows=20)
    assert kl["mean"] > 0.01 and kl["last_quarter"] == 0
    assert kl == pytest.approx(measure.context_kl(near, TEXT, 16, 1, windows=20, batch_size=3), rel=1e-12)
    with pytest.raises(ValueError, match="too few"):
        measure.context_kl(near, TEXT[:10], 16, 1)


def causal(L, strict=False):
    mask = torch.tril(torch.ones(L, L), -1 if strict else 0)
    return mask / mask.sum(-1, keepdim=True).clamp(min=1)


def test_entropy_of_attention():
    L = 9
    flat, sharp = measure.Entropies(), measure.Entropies()
    flat(causal(L).expand(3, 2, L, L))
    sharp(torch.eye(L).expand(3, L, L))
    middle = math.log(6)  # of rows 2 to 8, which see 3 to 9 tokens
    assert flat.result() == pytest.approx({"median": middle, "uniform": middle})
    assert sharp.result() == pytest.approx({"median": 0, "uniform": middle})
    strict = measure.Entropies()
    strict(causal(L, strict=True))
    assert strict.result() == pytest.approx({"median": math.log(5), "uniform": math.log(5)})
    for _ in range(2):
        flat(torch.eye(L).expand(3, 2, L, L))  # two calls to one: most rows are sharp now
    assert flat.result()["median"] == 0


def test_moves_are_relative_and_their_median_is_over_rows():
    moves = measure.Moves()
    before = torch.tensor([[[3.0, 4.0], [0.0, 2.0]]])
    moves(before, before + torch.tensor([[[0.0, 1.0], [2.0, 0.0]]]))
    moves(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.5]]))
    assert moves.result() == pytest.approx(0.5)  # of 0.2, 0.5 and 1


ITEMS = listops.data(listops.Settings(), 1, 40, seed=9)[1]


def continuing(texts):
    """A model that continues the i-th item with texts[i], whatever the rows beside it and whatever is filled up."""
    known = {item.prompt: text for item, text in zip(ITEMS, texts)}

    def sweep(ids, depths):
        logits = torch.zeros(*ids.shape, listops.VOCAB.size)
        for row, out in zip(ids.tolist(), logits):
            prompt = tuple(row[:row.index(listops.EQUALS) + 1])
            for at in range(len(prompt) - 1, len(row)):
                done = at + 1 - len(prompt)
                sure = row[len(prompt):at + 1] == known[prompt][:done] and done < len(known[prompt])
                out[at, known[prompt][done] if sure else listops.OPEN] = 1
        return {T: logits for T in depths}
    return sweep


def chains():
    return [listops.chain(item.prompt[:-1])[len(item.prompt):] for item in ITEMS]


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_exact_match_is_the_token_before_the_first_end(batch_size):
    texts = chains()
    texts[3][-2] = listops.VOCAB.tokens.index("0") + (int(listops.VOCAB.tokens[ITEMS[3].answer]) + 1) % 10  # a wrong value
    texts[5] = texts[5][:-1]  # never ends
    texts[8] = [listops.EOS]  # ends without saying anything
    texts[11] = [listops.EQUALS, ITEMS[11].answer, listops.EOS]  # a chain of its own, and right
    texts[13] = [ITEMS[13].answer, listops.EQUALS, listops.EOS, ITEMS[13].answer, listops.EOS]  # the first end counts
    right = measure.exact_match(continuing(texts), ITEMS, 4, 128, batch_size)
    assert [i for i in range(40) if not right[i]] == [3, 5, 8, 13]


def test_exact_match_counts_sixty_tokens_the_end_included_and_the_context():
    texts = chains()
    for i, length in ((0, 60), (1, 61)):
        texts[i] = [listops.EQUALS] * (length - 2) + [ITEMS[i].answer, listops.EOS]
    right = measure.exact_match(continuing(texts), ITEMS, 4, 128)
    assert right[0] and not right[1] and right[2:].all()
    lengths = np.array([len(item.prompt) + len(text) for item, text in zip(ITEMS, chains())])
    right = measure.exact_match(continuing(chains()), ITEMS, 4, 20)
    assert np.array_equal(right, lengths <= 20) and 0 < right.sum() < 40
