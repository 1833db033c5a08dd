"""The baselines GPT (L blocks) and GPT_Rec_parallel (one block, applied T times) with random weights: width C, H heads of
D = floor(C/H), hidden width F.

Scales. x(0) is about one a coordinate, scores have deviation SHARPNESS, and either part of a block adds about STEP. Applied
again and again a random block leads every token to the same state, since what ReLU adds has a mean: where it recurs it adds
RECURRENT_STEP, so that tokens still differ at T = 64.
"""

import math

SHARPNESS = 1.2
STEP = 0.2
RECURRENT_STEP = 0.04

_VALUES = 0.5  # size of a coordinate of the values a softmax averages
_RELU = 0.7    # root of the mean square of ReLU of unit normals


def config(shape):
    """config.json of such a checkpoint."""
    return {
        "model_type": shape.family, "block_size": shape.context, "n_embed": shape.width,
        "n_layer": shape.layers or shape.steps[0], "n_head": shape.heads, "vocab_size": shape.vocab,
    }


def tensors(shape, random):
    """`random(name, shape, **distribution)` for every tensor of the checkpoint."""
    C, V = shape.width, shape.vocab
    random("token_embedding_table.weight", (V, C), std=1)
    random("position_embedding_table.weight", (shape.context, C), std=0.3)
    for at in [f"blocks.{l}" for l in range(shape.layers)] if shape.layers else ["blocks"]:
        _block(shape, random, at)
    _norm(random, "ln_f", C)
    random("lm_head.weight", (V, C), std=1 / math.sqrt(C))
    random("lm_head.bias", (V,), std=0.1)


def _norm(random, name, C):
    random(f"{name}.weight", (C,), mean=1, std=0.1)
    random(f"{name}.bias", (C,), std=0.1)


def _block(shape, random, at):
    C, H, F = shape.width, shape.heads, shape.hidden
    D, unit = C // H, 1 / math.sqrt(C)
    step = STEP if shape.layers else RECURRENT_STEP
    _norm(random, f"{at}.ln1", C)
    for h in range(H):
        for part in ("key", "query"):
            random(f"{at}.sa.heads.{h}.{part}.weight", (D, C), std=math.sqrt(SHARPNESS) * unit)
        random(f"{at}.sa.heads.{h}.value.weight", (D, C), std=unit)
    random(f"{at}.sa.proj.weight", (C, H * D), std=step / (_VALUES * math.sqrt(H * D)))
    random(f"{at}.sa.proj.bias", (C,), std=0.1 * step)
    _norm(random, f"{at}.ln2", C)
    random(f"{at}.ffwd.net.0.weight", (F, C), std=unit)
    random(f"{at}.ffwd.net.0.bias", (F,), std=0.1)
    random(f"{at}.ffwd.net.2.weight", (C, F), std=step / (_RELU * math.sqrt(F)))
    random(f"{at}.ffwd.net.2.bias", (C,), std=0.1 * step)
