"""What several claims compute of arrays: ranks and their correlation, divergence between predictions, intervals of means.

Intervals are 95%, of means over what varies independently (questions, windows), by tools/train's bootstrap: the same seed
resamples the same way, so differences taken item by item have paired intervals.
"""
import numpy as np

from .models import intervals


def ranks(values):
    """0 for the smallest; equal values share the mean of their ranks."""
    values = np.asarray(values)
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return (first + (counts - 1) / 2)[where]


def correlation(a, b):
    """Pearson's; nan where either does not vary."""
    a, b = np.asarray(a, float) - np.mean(a), np.asarray(b, float) - np.mean(b)
    scale = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else float("nan")


def spearman(a, b):
    """Rank correlation, ties shared."""
    return correlation(ranks(a), ranks(b))


def log_softmax(logits):
    """Over the last axis, in double precision."""
    logits = np.asarray(logits, float)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def divergence(reference, other):
    """KL(reference || other) in nats of two arrays of logits, over their last axis."""
    p, q = log_softmax(reference), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(-1)


def mean(values, weights=None):
    """{"value", "low", "high"}: sum of values over sum of weights (1 each), items resampled."""
    values = np.asarray(values, float)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, float)
    low, high = intervals.bootstrap(values, weights)
    return {"value": float(values.sum() / weights.sum()), "low": low, "high": high}
