"""What a model of some options (options.py) is before it is built: parameters, and counted multiply-adds a token.

The engine's count (docs/scaling.md) of the models it loads is what the index of trained models reports; the same count is
here so that a plan can choose shapes that agree in it, and the tests hold one to the other. C is the width, H heads, D the
width of a head, F the hidden width, V the vocabulary, n the tokens attention sees: over one window of `block` tokens from its
start, on average, (block + 1) / 2, and one fewer where a token is no part of its own history.

Training is counted as three passes, one forwards and two backwards, of what the trainer multiplies with: NRGPT's keys are
formed once for every head there (models.md's other form of H_h g_j), and the head is read once, or at every step under
--read all. Plain Python: the plan is made without torch.
"""
from . import depth, listops

CHARACTERS = 65  # of tiny Shakespeare's first nine tenths
FORWARDS_AND_BACKWARDS = 3


def vocabulary(a):
    """Tokens of the vocabulary of what the plan trains on."""
    return listops.VOCAB.size if a.listops else CHARACTERS


def parameters(a):
    """Numbers that are stored, as the engine counts them (a norm's weight of ones included)."""
    V, C, H, F = vocabulary(a), a.width, a.heads, a.hidden or 4 * a.width
    if a.model in depth.LAYERED:
        return V * C + a.layers * (_attention_parameters(a, C, H) + _mlp_parameters(a, C, F)) + C
    outside = V * C + a.block * C + 2 * C + V * C + V  # embeddings, last norm, head
    if a.model == "nrgpt":
        forward = {"ff1": F * C + F, "ff2": C * C + C + F * C + F, "ff2w": 2 * F * C + F + C}[a.feed_forward]
        norm = 2 * C if a.norm == "layernorm" else C
        return outside + H * C * C + forward + norm + {"matrix": C * C, "diag": C}.get(a.rate, 1) + 1
    D = C // H
    block = 3 * H * D * C + C * H * D + C + 2 * F * C + F + C + 4 * C
    return outside + block * (a.layers if a.model == "gpt" else 1)


def _descent_parameters(a, C):
    return 1 + (C if a.rank >= 0 else 0) + 2 * C * max(0, a.rank)


def _attention_parameters(a, C, H):
    if a.model in ("llama", "llama-cem"):
        return C + 4 * C * C
    return C + 2 * C * C + {"none": 0, "shared": C, "per_head": H * C}[a.diagonal] + _descent_parameters(a, C)


def _mlp_parameters(a, C, F):
    if a.model in ("llama", "cem-swiglu"):
        return C + 3 * C * F
    return C + 2 * C * F + _descent_parameters(a, C)


def seen(a):
    """Tokens that attention sees, on average over a window."""
    return (a.block + (-1 if a.model == "nrgpt" and a.mask == "strict" else 1)) / 2


def steps_multiply_adds(a, T, training=False):
    """Multiply-adds a token of the whole descent at T, the head left out."""
    C, H, F, n = a.width, a.heads, a.hidden or 4 * a.width, seen(a)
    if a.model in depth.LAYERED:
        Ta, Tm = T if isinstance(T, tuple) else (T, T)
        return a.layers * (_attention(a, Ta, n) + _mlp(a, Tm))
    if a.model == "nrgpt":
        forward = {"ff1": 2 * F * C, "ff2": 2 * (C * C + F * C), "ff2w": 4 * F * C}[a.feed_forward]
        heads = (1 if training else 2) * H * C * C
        return T * (heads + forward + (C * C if a.rate == "matrix" else 0) + 2 * H * C * n)
    A = C // H * H
    block = 4 * A * C + 2 * F * C + 2 * A * n
    return block * (T if a.model == "gpt-rec-parallel" else a.layers)


def _precondition(a):
    return 4 * a.width * max(0, a.rank)


def _attention(a, T, n):
    C = a.width
    if a.model in ("llama", "llama-cem"):
        return 4 * C * C + 2 * C * n
    diagonal = {"none": 0, "shared": 2 * C, "per_head": 2 * C * a.heads}[a.diagonal]
    return C * C + T * (2 * C * C + _precondition(a) + (2 * C + diagonal) * n)


def _mlp(a, T):
    products = a.width * (a.hidden or 4 * a.width)
    if a.model in ("llama", "cem-swiglu"):
        return 3 * products
    return products + T * (2 * products + _precondition(a))


def inference(a, T=None):
    """Multiply-adds a token of a window at T (the trained one where none is given), its prediction included."""
    return steps_multiply_adds(a, T or depth.trained(a)) + vocabulary(a) * a.width


def training(a):
    """Multiply-adds of the whole training run; windows must all be of the block's length."""
    if a.short_windows:
        raise ValueError("multiply-adds of training are counted for windows of one length (--short-windows 0)")
    low, high = a.random_steps or (None, None)
    T = (low + high) / 2 if low else depth.trained(a)
    if isinstance(depth.trained(a), tuple) and low:
        T = (T, T)
    readings = T if a.read == "all" else 1
    token = steps_multiply_adds(a, T, training=True) + readings * vocabulary(a) * a.width
    return FORWARDS_AND_BACKWARDS * training_tokens(a) * token


def training_tokens(a):
    return a.iterations * a.batch * a.block
