"""95% intervals: of a count of right answers (Wilson), and of losses and their differences over windows (paired bootstrap).

A loss is a ratio, nats over predictions, and windows are what is resampled: neighbouring tokens are not independent. Two
losses on the same windows are compared window by window, so that what makes a window hard for both cancels out. Numpy only.
"""

import math

import numpy as np

_Z = 1.959963984540054  # the normal distribution's 97.5% point
_RESAMPLES, _AT_ONCE = 4000, 1 << 22


def wilson(right, items):
    """(low, high) of a proportion of which `right` of `items` were seen."""
    p, z2n = right / items, _Z * _Z / items
    middle = (p + z2n / 2) / (1 + z2n)
    half = _Z / (1 + z2n) * math.sqrt(p * (1 - p) / items + z2n / (4 * items))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(nats, predictions, seed=0):
    """(low, high) of sum(nats) / sum(predictions), windows resampled. `nats` [windows] may be the difference of two models'
    or depths' on the same windows: then this is the paired interval of the difference of their losses. The same seed
    resamples the same way, so the same numbers give the same interval."""
    nats, predictions = np.asarray(nats, float), np.asarray(predictions, float)
    n = len(nats)
    rng = np.random.Generator(np.random.PCG64(seed))
    ratios = []
    for begin in range(0, _RESAMPLES, rows := max(1, _AT_ONCE // n)):
        times = rng.multinomial(n, np.full(n, 1 / n), min(rows, _RESAMPLES - begin))
        ratios.append((times @ nats) / (times @ predictions))
    low, high = np.percentile(np.concatenate(ratios), (2.5, 97.5))
    return float(low), float(high)
