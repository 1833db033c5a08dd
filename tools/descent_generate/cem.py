"""CEM with random weights: layers of width C, K heads, MLP width M; Llama's attention and MLP in their place where asked for.

Scales. Scores have deviation SHARPNESS, the preconditioners are near the identity and positive definite, and eta makes a
step of either descent about STEP of |x(0)|; Llama's sub-layers, which run once, add LLAMA_STEP. The head has logits of
deviation one. Tied to the embedding it would repeat its input, since a state stays close to its token's row: the final
norm's weight is then one with random signs, which turns that row away from its own token and leaves every other product as
random as it was.
"""

import math

SHARPNESS = 1.2
STEP = 0.1
LLAMA_STEP = 0.2

_ATTENTION_FORCE = 0.6  # size of P grad a coordinate, measured at weights of the scales below
_MLP_FORCE = 0.4        # the same over sqrt(M/C)
_VALUES = 0.5           # size of a coordinate of the values a softmax averages
_GATED = 0.35           # root of the mean square of silu(gate) * up
_SOFTPLUS_ONE = math.log(math.e - 1)


def config(shape):
    """config.json of such a checkpoint."""
    steps = shape.steps or ()
    values = {
        "model_type": "cem", "vocab_size": shape.vocab, "n_embd": shape.width, "n_layer": shape.layers, "n_head": shape.heads,
        "n_ff": shape.hidden, "block_size": shape.context, "attn": shape.attention, "mlp": shape.mlp,
        "steps_attn": steps[0] if shape.attention == "cem" else None, "steps_mlp": steps[-1] if shape.mlp == "cem" else None,
        "attn_diag": shape.diagonal, "precond_rank": shape.rank, "mlp_act": shape.activation, "eta_entries": shape.etas,
        "rope_theta": shape.theta, "norm_eps": 1e-6, "tie_embeddings": shape.head == "tied",
    }
    return {key: value for key, value in values.items() if value is not None}


def tensors(shape, random):
    """`random(name, shape, **distribution)` for every tensor of the checkpoint."""
    C, V = shape.width, shape.vocab
    unit = 1 / math.sqrt(C)
    size = unit if shape.head == "tied" else 1  # of a coordinate of x(0)
    random("embed.weight", (V, C), std=size)
    for l in range(shape.layers):
        _attention(shape, random, f"layers.{l}.attn", unit, size)
        _mlp(shape, random, f"layers.{l}.mlp", unit, size)
    if shape.head == "tied":
        random("norm_f.weight", (C,), std=1, signs=True)
    else:
        random("norm_f.weight", (C,), mean=1, std=0.1)
        random("lm_head.weight", (V, C), std=unit)


def _attention(shape, random, part, unit, size):
    C, K = shape.width, shape.heads
    random(f"{part}.norm.weight", (C,), mean=1, std=0.1)
    for which in "qk":
        random(f"{part}.w{which}.weight", (C, C), std=math.sqrt(SHARPNESS) * unit)
    if shape.attention == "llama":
        random(f"{part}.wv.weight", (C, C), std=unit)
        random(f"{part}.wo.weight", (C, C), std=LLAMA_STEP * size / _VALUES * unit)
        return
    if shape.diagonal != "none":
        random(f"{part}.diag", (C,) if shape.diagonal == "shared" else (K, C), std=0.5 / math.sqrt(K))
    _descent(shape, random, part, STEP * size / _ATTENTION_FORCE)


def _mlp(shape, random, part, unit, size):
    C, M = shape.width, shape.hidden
    random(f"{part}.norm.weight", (C,), mean=1, std=0.1)
    for which in ("up", "gate"):
        random(f"{part}.{which}.weight", (M, C), std=unit)
    if shape.mlp == "swiglu":
        random(f"{part}.down.weight", (C, M), std=LLAMA_STEP * size / (_GATED * math.sqrt(M)))
        return
    _descent(shape, random, part, STEP * size / (_MLP_FORCE * math.sqrt(M / C)))


def _descent(shape, random, part, rate):
    C, r = shape.width, shape.rank
    random(f"{part}.eta", (shape.etas,), mean=rate, std=0.1 * rate)
    if r >= 0:
        random(f"{part}.precond.d", (C,), mean=_SOFTPLUS_ONE, std=0.2)
    if r > 0:
        for u in "uv":
            random(f"{part}.precond.{u}", (C, r), std=0.3 / math.sqrt(C))
