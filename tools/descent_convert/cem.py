"""CEM's layout, and the model it makes: layers of an attention descent and an MLP descent, width C, K heads, MLP width M.

A safetensors directory. config.json says what each sub-layer has (diagonal, preconditioner of rank r, activation, tied or
own head), so every tensor's presence and shape is known before the first is looked at.
"""

from .errors import ConvertError, show
from .jsonfile import REQUIRED, Config
from .model import MAX_COUNT, MAX_STEPS, Model, agree


def from_directory(values, state, options, path):
    """`values` is config.json."""
    config = Config(values, f"{path}/config.json")
    config.ignore("model_type", "architectures", "dtype", "torch_dtype", "transformers_version", "dropout")
    for key, plain, other in (("attn", "cem", "llama"), ("mlp", "cem", "swiglu")):
        if config.text(key, "cem") == other:
            raise ConvertError(f"{config.what}: {key} is {show(other)}, a layer without an energy; supported: {key} 'cem'")
        config.choice(key, (plain,))
    V = config.integer("vocab_size", 1, MAX_COUNT, REQUIRED)
    C = config.integer("n_embd", 1, MAX_COUNT, REQUIRED)
    layers = config.integer("n_layer", 1, MAX_COUNT, REQUIRED)
    K = config.integer("n_head", 1, MAX_COUNT, REQUIRED)
    M = config.integer("n_ff", 1, MAX_COUNT, REQUIRED)
    context = config.integer("block_size", 1, MAX_COUNT, REQUIRED)
    steps = options.steps_of_each(path, config.integer("steps_attn", 1, MAX_STEPS), config.integer("steps_mlp", 1, MAX_STEPS))
    diagonal = config.choice("attn_diag", ("none", "shared", "per_head"), REQUIRED)
    rank = config.integer("precond_rank", -1, MAX_COUNT, REQUIRED)
    activation = config.choice("mlp_act", ("silu", "gelu"), REQUIRED)
    theta = config.positive("rope_theta", REQUIRED)
    epsilon = config.positive("norm_eps", REQUIRED)
    tied = config.flag("tie_embeddings", REQUIRED)
    entries = config.integer("eta_entries", 1, MAX_COUNT)
    config.finish()
    if C % K or C // K % 2:
        raise ConvertError(f"{config.what}: n_embd {C} is not n_head {K} times an even number")
    if options.mask or options.variant:
        raise ConvertError(f"{path}: --mask and --variant are for NRGPT; this is a CEM model")

    variant = (f"diagonal {diagonal}, preconditioner {'none' if rank < 0 else f'rank {rank}'}, {activation}, "
               f"{'tied' if tied else 'own'} head")
    model = Model("cem", variant, V)
    model.put("u32", vocab_size=V, context_length=context, embedding_length=C, block_count=layers, attention__head_count=K,
              feed_forward_length=M, steps__attention=steps[0], steps__mlp=steps[1])
    model.put("f32", norm_epsilon=epsilon, rope__freq_base=theta)
    model.put("string", attention__diagonal=diagonal, activation=activation)
    model.put("i32", preconditioner__rank=rank)

    model.add("token_embd.weight", state.take("embed.weight", V, C), matrix=True)
    for l in range(layers):
        _attention(model, state, l, C, {"none": None, "shared": (C,), "per_head": (K, C)}[diagonal])
        _descent(model, state, l, "attn", C, rank, entries, path)
        model.add(f"blk.{l}.mlp_norm.weight", state.take(f"layers.{l}.mlp.norm.weight", C))
        model.add(f"blk.{l}.mlp_up.weight", state.take(f"layers.{l}.mlp.up.weight", M, C), matrix=True)
        model.add(f"blk.{l}.mlp_gate.weight", state.take(f"layers.{l}.mlp.gate.weight", M, C), matrix=True)
        _descent(model, state, l, "mlp", C, rank, entries, path)
    model.add("output_norm.weight", state.take("norm_f.weight", C))
    if not tied:
        model.add("output.weight", state.take("lm_head.weight", V, C), matrix=True)
    state.finish()
    return model


def _attention(model, state, l, C, diagonal):
    model.add(f"blk.{l}.attn_norm.weight", state.take(f"layers.{l}.attn.norm.weight", C))
    model.add(f"blk.{l}.attn_q.weight", state.take(f"layers.{l}.attn.wq.weight", C, C), matrix=True)
    model.add(f"blk.{l}.attn_k.weight", state.take(f"layers.{l}.attn.wk.weight", C, C), matrix=True)
    if diagonal:
        model.add(f"blk.{l}.attn_diag.weight", state.take(f"layers.{l}.attn.diag", *diagonal))


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
