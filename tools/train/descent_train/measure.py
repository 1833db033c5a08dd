"""What the trainer measures of a model, as models are compared everywhere in this project.

A model is a callable here: `sweep(ids, depths) -> {T: logits}`, ids an int64 tensor [B, L], logits [B, L, V] for every T of
`depths` (a number, or (attention, MLP) for CEM). Losses are in nats per token over windows of `length` inputs predicting
`length` targets, stepping by `length`, so that every token but the first is predicted exactly once, the last window being
what is left; they are kept by window, for intervals.py. Everything runs without gradients, B sequences at a time.

Called by the training loop while it trains and by the command that measures a finished model.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from .intervals import bootstrap
from .listops import EOS

SHORTEST_SCRAMBLED = 4  # tokens of a window
MOST_TOKENS = 60  # of a continuation, <eos> included


@dataclass(frozen=True)
class Losses:
    """`nats` [windows] summed over each window's `predictions` [windows]."""

    nats: np.ndarray
    predictions: np.ndarray

    @property
    def mean(self):
        return float(self.nats.sum() / self.predictions.sum())

    def interval(self):
        return bootstrap(self.nats, self.predictions)

    def minus(self, other):
        """(difference of the means, low, high), paired by window."""
        if not np.array_equal(self.predictions, other.predictions):
            raise ValueError("losses of different windows cannot be paired")
        difference = self.nats - other.nats
        return (self.mean - other.mean, *bootstrap(difference, self.predictions))


def by_window(nats, length):
    """Losses of `nats` [predictions], one number a predicted token, over windows of `length`: an n-gram table's, say."""
    starts = np.arange(0, len(nats), length)
    return Losses(np.add.reduceat(nats, starts), np.diff(np.append(starts, len(nats))))


@torch.no_grad()
def losses(sweep, tokens, length, depths, batch_size=16, device="cpu", windows=None):
    """{T: Losses} of `tokens` [n]; of the first `windows` windows alone where that is given (the loop's quick look)."""
    if windows is not None:
        tokens = tokens[: windows * length + 1]
    n = len(tokens) - 1
    if n < 1:
        raise ValueError("a loss needs at least two tokens")
    nats = {T: [] for T in depths}
    for ids, targets in _windows(np.asarray(tokens, np.int64), length, batch_size):
        targets = torch.from_numpy(targets).to(device)
        for T, logits in sweep(torch.from_numpy(ids).to(device), depths).items():
            each = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
            nats[T].append(each.view(targets.shape).double().sum(1).cpu().numpy())
    starts = np.arange(0, n, length)
    predictions = np.minimum(length, n - starts)
    return {T: Losses(np.concatenate(parts), predictions) for T, parts in nats.items()}


def _windows(tokens, length, batch_size):
    """(inputs, targets) [B, length] in order; the last, shorter window alone."""
    n = len(tokens) - 1
    whole = n // length
    for begin in range(0, whole, batch_size):
        end = min(begin + batch_size, whole)
        span = slice(begin * length, end * length)
        yield tokens[:-1][span].reshape(-1, length), tokens[1:][span].reshape(-1, length)
    if n % length:
        yield tokens[None, whole * length : n], tokens[None, whole * length + 1 :]


@torch.no_grad()
def context_kl(sweep, tokens, length, T, windows=64, batch_size=16, seed=0, device="cpu"):
    """How much predictions depend on what came long before. KL(p || q) in nats, p the prediction in a window of `length`
    tokens as it is, q with the first half's tokens in random order: {"mean": over the positions of the second half,
    "last_quarter": over those at least a quarter of the window away from what was scrambled}. Windows lie evenly apart."""
    tokens = np.asarray(tokens, np.int64)
    if len(tokens) < length or length < SHORTEST_SCRAMBLED:
        raise ValueError(f"{len(tokens)} tokens are too few for windows of {length}, or these too short")
    rng = np.random.Generator(np.random.PCG64(seed))
    starts = np.unique(np.linspace(0, len(tokens) - length, windows).astype(int))
    half = length // 2
    ids = tokens[starts[:, None] + np.arange(length)]
    scrambled = ids.copy()
    scrambled[:, :half] = rng.permuted(ids[:, :half], axis=1)
    sums = torch.zeros(length - half, dtype=torch.float64)
    for begin in range(0, len(ids), batch_size):
        p, q = (F.log_softmax(sweep(torch.from_numpy(x[begin : begin + batch_size]).to(device), [T])[T][:, half:].double(), -1)
                for x in (ids, scrambled))
        sums += (p.exp() * (p - q)).sum(-1).sum(0).cpu()
    kl = sums / len(ids)
    return {"mean": float(kl.mean()), "last_quarter": float(kl[length - length // 4 - half :].mean())}


class Entropies:
    """A probe for attention: called with p [..., L, L], rows the queries, for every step and head of a pass, it keeps each
    row's entropy. Rows 0 and 1 have one key or none under one mask or the other and are left out. `uniform` is the median
    that attending everywhere alike would give."""

    def __init__(self):
        self._parts = []
        self._uniform = []

    def __call__(self, p):
        p = p.detach().double()
        own = bool((p.diagonal(dim1=-2, dim2=-1) > 0).any())  # a strict mask leaves a token out of its own history
        entropy = -torch.special.xlogy(p, p).sum(-1)[..., 2:]
        keys = torch.arange(2, p.shape[-2], dtype=torch.float64) + own
        self._parts.append(entropy.flatten().cpu())
        self._uniform.append(keys.log().expand(entropy.shape).flatten())

    def result(self):
        return {"median": float(torch.cat(self._parts).median()), "uniform": float(torch.cat(self._uniform).median())}


class Moves:
    """|x(1) - x(0)| / |x(0)| of states [..., C]: called with (x(0), x(1)) as often as wanted; `result` is the median over
    all rows. A model whose first step hardly moves its state does not use its depth."""

    def __init__(self):
        self._parts = []

    def __call__(self, before, after):
        before, after = before.detach().double(), after.detach().double()
        self._parts.append(((after - before).norm(dim=-1) / before.norm(dim=-1)).flatten().cpu())

    def result(self):
        return float(torch.cat(self._parts).median())


@torch.no_grad()
def exact_match(sweep, items, T, context, batch_size=256, device="cpu"):
    """[items], bool: whether the token before the first <eos> of the greedy continuation, at most MOST_TOKENS long and within
    `context` tokens, is the item's answer. A causal model's prediction does not see what is to its right, so prompts of
    different lengths are continued side by side, filled up on the right."""
    right = np.zeros(len(items), bool)
    order = sorted(range(len(items)), key=lambda i: len(items[i].prompt))
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        right[chosen] = _answer(sweep, [items[i] for i in chosen], T, context, device)
    return right


def _answer(sweep, items, T, context, device):
    lengths = np.array([len(item.prompt) for item in items])
    ids = np.full((len(items), min(context, lengths.max() + MOST_TOKENS)), EOS, np.int64)
    for row, item in zip(ids, items):
        row[: len(item.prompt)] = item.prompt[: len(row)]
    limits = np.minimum(lengths + MOST_TOKENS, ids.shape[1])
    right = np.zeros(len(items), bool)
    going = np.flatnonzero(lengths < limits)
    ends = lengths.copy()
    while len(going):
        x = torch.from_numpy(ids[going, : ends[going].max()]).to(device)
        at = torch.from_numpy(ends[going] - 1).to(device)
        chosen = sweep(x, [T])[T][torch.arange(len(going), device=device), at].argmax(-1).cpu().numpy()
        for i, token in zip(going, chosen):
            ids[i, ends[i]] = token
            ends[i] += 1
            if token == EOS and ends[i] - lengths[i] >= 2:
                right[i] = ids[i, ends[i] - 2] == items[i].answer
        going = going[(chosen != EOS) & (ends[going] < limits[going])]
    return right
