"""CEM's layout, and the model it makes: layers of an attention and an MLP, width C, K heads, MLP width M, each CEM's descent or
Llama's sub-layer in its place.

A safetensors directory. config.json says what each sub-layer is and has (kind, diagonal, preconditioner of rank r, activation,
tied or own head), so every tensor's presence and shape is known before the first is looked at.
"""

from .errors import ConvertError, show
from .jsonfile import REQUIRED, Config
from .model import MAX_COUNT, MAX_STEPS, Model, agree

_OTHERS = {"attn": "llama", "mlp": "swiglu"}  # the kind of each sub-layer that is not "cem": it runs once and has no energy
_SETTINGS = {"attn": ("attn_diag", "steps_attn"), "mlp": ("mlp_act", "steps_mlp")}  # that only CEM's has


def from_directory(values, state, options, path):
    """`values` is config.json."""
    config = Config(values, f"{path}/config.json")
    config.ignore("model_type", "architectures", "dtype", "torch_dtype", "transformers_version", "dropout")
    cem = [part for part, other in _OTHERS.items() if config.choice(part, ("cem", other), "cem") == "cem"]
    V = config.integer("vocab_size", 1, MAX_COUNT, REQUIRED)
    C = config.integer("n_embd", 1, MAX_COUNT, REQUIRED)
    layers = config.integer("n_layer", 1, MAX_COUNT, REQUIRED)
    K = config.integer("n_head", 1, MAX_COUNT, REQUIRED)
    M = config.integer("n_ff", 1, MAX_COUNT, REQUIRED)
    context = config.integer("block_size", 1, MAX_COUNT, REQUIRED)
    theta = config.positive("rope_theta", REQUIRED)
    epsilon = config.positive("norm_eps", REQUIRED)
    tied = config.flag("tie_embeddings", REQUIRED)
    model = Model("cem", "", V)
    model.put("u32", vocab_size=V, context_length=context, embedding_length=C, block_count=layers, attention__head_count=K,
              feed_forward_length=M)
    model.put("f32", norm_epsilon=epsilon, rope__freq_base=theta)
    words, diagonal, rank, entries = _settings(model, config, options, cem, C, path)
    model.variant = f"{words}, {'tied' if tied else 'own'} head"
    config.finish()
    if C % K or C // K % 2:
        raise ConvertError(f"{config.what}: n_embd {C} is not n_head {K} times an even number")
    if options.mask or options.variant:
        raise ConvertError(f"{path}: --mask and --variant are for NRGPT; this is a CEM model")

    model.add("token_embd.weight", state.take("embed.weight", V, C), matrix=True)
    shapes = {"attn": {"wq": ("q", C, C), "wk": ("k", C, C)}, "mlp": {"up": ("up", M, C), "gate": ("gate", M, C)}}
    if "attn" not in cem:
        shapes["attn"].update(wv=("v", C, C), wo=("output", C, C))
    if "mlp" not in cem:
        shapes["mlp"].update(down=("down", C, M))
    for l in range(layers):
        for part, matrices in shapes.items():
            model.add(f"blk.{l}.{part}_norm.weight", state.take(f"layers.{l}.{part}.norm.weight", C))
            for name, (short, rows, columns) in matrices.items():
                model.add(f"blk.{l}.{part}_{short}.weight", state.take(f"layers.{l}.{part}.{name}.weight", rows, columns),
                          matrix=True)
            if part == "attn" and diagonal != "none":
                shape = (C,) if diagonal == "shared" else (K, C)
                model.add(f"blk.{l}.attn_diag.weight", state.take(f"layers.{l}.attn.diag", *shape))
            if part in cem:
                _descent(model, state, l, part, C, rank, entries, path)
    model.add("output_norm.weight", state.take("norm_f.weight", C))
    if not tied:
        model.add("output.weight", state.take("lm_head.weight", V, C), matrix=True)
    state.finish()
    return model


def _settings(model, config, options, cem, C, path):
    """What the sub-layers in `cem` have; settings of the others may be there and mean nothing. Returns words that say it, the
    diagonal, the preconditioner's rank and the number of rates."""
    words, diagonal, rank, entries = [], "none", None, None
    for part in _OTHERS:
        if part not in cem:
            config.ignore(*_SETTINGS[part])
    if cem:
        rank = config.integer("precond_rank", -1, C, REQUIRED)
        entries = config.integer("eta_entries", 1, MAX_COUNT)
        model.put("i32", preconditioner__rank=rank)
    else:
        config.ignore("precond_rank", "eta_entries")
    if "attn" in cem:
        diagonal = config.choice("attn_diag", ("none", "shared", "per_head"), REQUIRED)
        model.put("string", attention__diagonal=diagonal)
        words.append(f"diagonal {diagonal}")
    else:
        model.put("string", attention__kind="llama")
        words.append("llama attention")
    if cem:
        words.append(f"preconditioner {'none' if rank < 0 else f'rank {rank}'}")
    if "mlp" in cem:
        activation = config.choice("mlp_act", ("silu", "gelu"), REQUIRED)
        model.put("string", activation=activation)
        words.append(activation)
    else:
        model.put("string", mlp__kind="swiglu")
        words.append("swiglu mlp")
    for part, steps in _steps(config, options, cem, path).items():
        model.put("u32", **{"steps__attention" if part == "attn" else "steps__mlp": steps})
    return ", ".join(words), diagonal, rank, entries


def _steps(config, options, cem, path):
    """The trained T of each sub-layer that has one."""
    stated = [config.integer(f"steps_{part}", 1, MAX_STEPS) for part in cem]
    if len(cem) == 2:
        return dict(zip(cem, options.steps_of_each(path, *stated)))
    if len(cem) == 1:
        return {cem[0]: options.both_steps(path, *stated)}
    if options.steps:
        raise ConvertError(f"{path}: --steps is for sub-layers with a recursion depth; Llama's run once")
    return {}


def _descent(model, state, l, part, C, rank, entries, path):
    """What both sub-layers step with: the rates eta and the preconditioner."""
    name = f"layers.{l}.{part}.eta"
    n = state.peek(name, 1).shape[0]
    agree(path, "eta_entries", entries, n, show(name))
    model.add(f"blk.{l}.{part}_eta.weight", state.take(name, n))
    if rank >= 0:
        model.add(f"blk.{l}.{part}_precond_d.weight", state.take(f"layers.{l}.{part}.precond.d", C))
    if rank > 0:
        for u in "uv":
            model.add(f"blk.{l}.{part}_precond_{u}.weight", state.take(f"layers.{l}.{part}.precond.{u}", C, rank))
