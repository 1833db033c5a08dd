"""The layouts of the authors' baselines, GPT (L distinct blocks) and GPT_Rec_parallel (one block, applied T times), and the
models they make. Width C, H heads of D = floor(C/H), hidden width F; a head has a key, a query and a value matrix of its own.

    from_training     official training checkpoint: {model, model_args, config}
    from_bare         the state dictionary alone
    from_directory    safetensors and config.json

Keys, queries and values of all heads become one matrix each, head under head. GPT_Rec, whose one block applies its parts in
turn, has GPT_Rec_parallel's tensors: where no class is named, --variant must say which it is.
"""

import re

from .errors import ConvertError
from .jsonfile import REQUIRED, Config
from .model import Model
from .official import Sizes, count_heads, is_triangle
from .tensor import Stack

VARIANTS = ("gpt", "gpt-rec-parallel")
CLASSES = {"GPT": "gpt", "GPT_Rec_parallel": "gpt-rec-parallel"}

_BLOCK = re.compile(r"blocks\.(0|[1-9][0-9]{0,5})\.sa\..*")
_TRIL = re.compile(r"blocks\.(?:[0-9]+\.)?sa\.heads\.[0-9]+\.tril")
_EPSILON = 1e-5


def owns(state):
    """Whether the tensors are a baseline's."""
    return any(re.match(r"blocks\.([0-9]+\.)?sa\.", name) for name in state)


def from_training(value, name, state, options, path):
    """`value` is the checkpoint's dictionary, `state` the tensors of value["model"], `name` the class, None where unnamed."""
    sizes = Sizes()
    sizes.read_model_args(value, path)
    return _model(state, CLASSES.get(name), sizes, _EPSILON, options, path)


def from_bare(state, options, path):
    return _model(state, None, Sizes(), _EPSILON, options, path)


def from_directory(values, state, options, path):
    """`values` is config.json."""
    config = Config(values, f"{path}/config.json")
    config.ignore("architectures", "dtype", "torch_dtype", "transformers_version", "dropout")
    variant = config.choice("model_type", VARIANTS, REQUIRED)
    sizes = Sizes()
    sizes.read(config)
    epsilon = config.positive("norm_eps", _EPSILON)
    config.finish()
    return _model(state, variant, sizes, epsilon, options, path)


def _variant(state, said, options, path):
    """gpt or gpt-rec-parallel: named by the class or config, or told by --variant; the names of the tensors must agree."""
    distinct = any(map(_BLOCK.fullmatch, state))
    if said and options.variant and said != options.variant:
        raise ConvertError(f"{path}: --variant {options.variant}, but the checkpoint says {said}")
    said = said or options.variant
    if said is None:
        if not distinct:
            raise ConvertError(f"{path}: GPT_Rec and GPT_Rec_parallel have the same tensors and no class is named; say --variant "
                               "gpt-rec-parallel if it is that one (GPT_Rec cannot be converted)")
        return "gpt"
    if said not in VARIANTS or distinct != (said == "gpt"):
        found = "several blocks" if distinct else "one block"
        raise ConvertError(f"{path}: a checkpoint of {said}, but its tensors are those of a baseline with {found}")
    return said


def _depth(state, variant, sizes, options, path):
    """Number of blocks, and T (None: there is none)."""
    if variant == "gpt-rec-parallel":
        return 1, options.both_steps(path, sizes.steps)
    if options.steps:
        raise ConvertError(f"{path}: a gpt has no recursion depth; leave --steps away")
    numbers = {int(m[1]) for m in map(_BLOCK.fullmatch, state) if m}
    blocks = sizes.steps or max(numbers) + 1
    if max(numbers) >= blocks:
        raise ConvertError(f"{path}: n_layer is {blocks}, but there are tensors of 'blocks.{max(numbers)}'")
    return blocks, None


def _check_masks(state, path):
    """The buffers hold j <= i; tril_plus_one only makes them larger."""
    for name in [name for name in state if _TRIL.fullmatch(name)]:
        state.drop(name)
        if not is_triangle(state.peek(name, 2), 0):
            raise ConvertError(f"{path}: '{name}' is not the causal mask (j <= i), the only one a baseline has")


def _norm(model, state, to, name, C):
    model.add(f"{to}.weight", state.take(f"{name}.weight", C))
    model.add(f"{to}.bias", state.take(f"{name}.bias", C))


def _affine(model, state, to, name, rows, columns):
    model.add(f"{to}.weight", state.take(f"{name}.weight", rows, columns), matrix=True)
    model.add(f"{to}.bias", state.take(f"{name}.bias", rows))


def _block(model, state, l, at, H, C, F):
    D = C // H
    _norm(model, state, f"blk.{l}.attn_norm", f"{at}.ln1", C)
    for part in ("query", "key", "value"):
        heads = [state.take(f"{at}.sa.heads.{h}.{part}.weight", D, C) for h in range(H)]
        model.add(f"blk.{l}.attn_{part[0]}.weight", Stack(heads, f"{at}.sa.heads.*.{part}.weight"), matrix=True)
    _affine(model, state, f"blk.{l}.attn_output", f"{at}.sa.proj", C, H * D)
    _norm(model, state, f"blk.{l}.ffn_norm", f"{at}.ln2", C)
    _affine(model, state, f"blk.{l}.ffn_up", f"{at}.ffwd.net.0", F, C)
    _affine(model, state, f"blk.{l}.ffn_down", f"{at}.ffwd.net.2", C, F)


def _model(state, said, sizes, epsilon, options, path):
    if options.mask:
        raise ConvertError(f"{path}: --mask is for NRGPT; a baseline's mask is causal")
    variant = _variant(state, said, options, path)
    state.drop("pos_idx")
    _check_masks(state, path)
    V, C = state.peek("token_embedding_table.weight", 2).shape
    context = state.peek("position_embedding_table.weight", 2).shape[0]
    blocks, steps = _depth(state, variant, sizes, options, path)
    prefixes = [f"blocks.{l}" for l in range(blocks)] if variant == "gpt" else ["blocks"]
    heads = re.compile(re.escape(prefixes[0]) + r"\.sa\.heads\.(0|[1-9][0-9]{0,5})\.key\.weight")
    H = count_heads(state, heads, prefixes[0] + ".sa.heads.{}.key.weight", sizes, path)
    F = state.peek(f"{prefixes[0]}.ffwd.net.0.weight", 2).shape[0]
    sizes.agree(path, V, C, context, F)
    if H > C:
        raise ConvertError(f"{path}: {H} heads of a width of {C}")

    model = Model(variant, f"{blocks} distinct blocks" if steps is None else "one block", V)
    model.put("u32", vocab_size=V, context_length=context, embedding_length=C, block_count=blocks, attention__head_count=H,
              feed_forward_length=F)
    if steps is not None:
        model.put("u32", steps=steps)
    model.put("f32", norm_epsilon=epsilon)
    model.add("token_embd.weight", state.take("token_embedding_table.weight", V, C), matrix=True)
    model.add("position_embd.weight", state.take("position_embedding_table.weight", context, C), matrix=True)
    for l, at in enumerate(prefixes):
        _block(model, state, l, at, H, C, F)
    _norm(model, state, "output_norm", "ln_f", C)
    _affine(model, state, "output", "lm_head", V, C)
    state.finish()
    return model
