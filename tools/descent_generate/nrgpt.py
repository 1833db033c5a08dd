"""NRGPT with random weights: width C, H heads, hidden width F.

Scales. x(0) is about one a coordinate and so is g. Attention scores have deviation SHARPNESS whatever the width: H_h is
SHARPNESS / C, where a freshly initialised official model's 0.02 would give one-hot attention at C = 768. That makes the
attention's force `force`; s brings the feed-forward's to half of it, so that predictions depend on the context, and R, near
a multiple of the identity, makes the two together about STEP of |x(0)| in the first step. Every force is bounded, g being on
a sphere, so x grows at most linearly with t and stays finite at any T; a positive multiple of the identity descends, so that
energies fall as a trained model's do.
"""

import math

SHARPNESS = 2.0
STEP = 0.2
LOGITS = 1.0  # deviation of a logit: the loss on any text is then about ln V + 1/2

# Size of the feed-forward's force a coordinate, over sqrt(F/C) for ff1 and ff2, measured at weights of the scales below.
_FORCE = {"ff1": 2.2, "ff2": 1.4, "ff2w": 0.9}


def config(shape):
    """config.json of such a checkpoint."""
    return {
        "model_type": "nrgpt", "block_size": shape.context, "n_embed": shape.width, "n_layer": shape.steps[0],
        "n_head": shape.heads, "vocab_size": shape.vocab, "tril_plus_one": shape.mask == "strict",
        "feed_forward": shape.variant, "norm": shape.norm, "rate": shape.rate, "learned_alpha": shape.alpha,
        "beta": shape.beta, "norm_eps": 1e-5,
    }


def tensors(shape, random):
    """`random(name, shape, **distribution)` for every tensor of the checkpoint."""
    C, H, F, V = shape.width, shape.heads, shape.hidden, shape.vocab
    unit = 1 / math.sqrt(C)
    force = SHARPNESS * math.sqrt(H / C)
    random("token_embedding_table.weight", (V, C), std=1)
    random("position_embedding_table.weight", (shape.context, C), std=0.3)
    random("blocks.ln.weight", (C,), mean=1)
    if shape.norm == "layernorm":
        random("blocks.ln.bias", (C,), std=0.1)
    for h in range(H):
        random(f"blocks.attn.heads.{h}.H.weight", (C, C), std=SHARPNESS / (C * shape.beta))
    if shape.alpha:
        random("blocks.attn.alpha", (H,), mean=1, std=0.2)
    _feed_forward(shape, random, unit, force)
    rate = STEP / force
    if shape.rate == "matrix":
        random("blocks.proj.weight", (C, C), diagonal=rate, std=0.3 * rate * unit)
    elif shape.rate == "diag":
        random("blocks.eta", (C,), mean=rate, std=0.2 * rate)
    else:
        random("blocks.eta", (1,), mean=rate)
    random("ln_f.weight", (C,), mean=1, std=0.1)
    random("ln_f.bias", (C,), std=0.1)
    random("lm_head.weight", (V, C), std=LOGITS * unit)
    random("lm_head.bias", (V,), std=0.1)


def _feed_forward(shape, random, unit, force):
    C, F, variant = shape.width, shape.hidden, shape.variant
    first = C if variant == "ff2" else F
    random("blocks.ffwd.net.0.weight", (first, C), std=unit)
    random("blocks.ffwd.net.0.bias", (first,), std=0.1)
    if variant == "ff2":
        random("blocks.ffwd.net.2.weight", (F, C), std=unit)
        random("blocks.ffwd.net.2.bias", (F,), std=0.1)
    elif variant == "ff2w":
        random("blocks.ffwd.net.2.weight", (C, F), std=1 / math.sqrt(F))
        random("blocks.ffwd.net.2.bias", (C,), std=0.1)
    spread = 1 if variant == "ff2w" else math.sqrt(F / C)
    random("blocks.scale_ff", (1,), mean=0.5 * force / (_FORCE[variant] * spread))
