"""NRGPT's three layouts, and the model they make. One block applied T times: token and position embeddings, H full C x C
attention matrices, a feed-forward of one of three kinds with hidden width F, a rate, a final norm and a head.

    from_training     official training checkpoint: {model, model_args, config}
    from_bare         official ListOps checkpoint: the state dictionary alone
    from_directory    safetensors and config.json, where norm, rate, alpha and beta may differ from the official ones

Settings are read into a Settings, sizes come from the tensors and must agree with what the settings state.
"""

import re
from dataclasses import dataclass

from .errors import ConvertError, show, shape_text
from .jsonfile import Config
from .model import Model
from .official import Sizes, count_heads, is_triangle

VARIANTS = ("ff1", "ff2", "ff2w")
MASKS = ("causal", "strict")
CLASSES = {"NRGPT_H_FF1": "ff1", "NRGPT_H_FF2": "ff2", "NRGPT_H_FF2W": "ff2w"}

_HEAD = re.compile(r"blocks\.attn\.heads\.(0|[1-9][0-9]{0,5})\.H\.weight")
_TRIL = re.compile(r"blocks\.attn\.heads\.[0-9]+\.tril")


@dataclass
class Settings(Sizes):
    """What the checkpoint states about itself; None where it is silent."""

    variant: str | None = None
    norm: str = "layernorm"
    rate: str = "matrix"
    alpha: bool = False
    beta: float = 1.0
    epsilon: float = 1e-5


def from_training(value, name, state, options, path):
    """`value` is the checkpoint's dictionary, `state` the tensors of value["model"], `name` the class, None where unnamed."""
    settings = Settings(variant=CLASSES.get(name))
    settings.read_model_args(value, path)
    return _model(state, settings, options, path)


def from_bare(state, options, path):
    return _model(state, Settings(), options, path)


def from_directory(values, state, options, path):
    """`values` is config.json."""
    config = Config(values, f"{path}/config.json")
    config.ignore("model_type", "architectures", "dtype", "torch_dtype", "transformers_version", "dropout")
    settings = Settings()
    settings.read(config)
    settings.variant = config.choice("feed_forward", VARIANTS)
    settings.norm = config.choice("norm", ("layernorm", "rmsnorm"), settings.norm)
    settings.rate = config.choice("rate", ("matrix", "diag", "scalar"), settings.rate)
    settings.alpha = config.flag("learned_alpha", settings.alpha)
    settings.beta = config.positive("beta", settings.beta)
    settings.epsilon = config.positive("norm_eps", settings.epsilon)
    config.finish()
    return _model(state, settings, options, path)


def _variant(state, C, settings, options, path):
    """ff1, ff2 or ff2w: named by the class or config, decided by the shapes, or told by --variant."""
    first = state.peek("blocks.ffwd.net.0.weight", 2).shape
    if "blocks.ffwd.net.2.weight" not in state:
        fitting = ("ff1",)
    else:
        second = state.peek("blocks.ffwd.net.2.weight", 2).shape
        shapes = {"ff2": first == (C, C) and second[1] == C, "ff2w": first[1] == C and second == (C, first[0])}
        fitting = tuple(v for v, fits in shapes.items() if fits)
        if not fitting:
            raise ConvertError(f"{path}: blocks.ffwd.net.0 and net.2 have shapes {shape_text(first)} and "
                               f"{shape_text(second)}, which fit no feed-forward of width {C}")
    said = settings.variant
    if said and options.variant and said != options.variant:
        raise ConvertError(f"{path}: --variant {options.variant}, but the checkpoint says {said}")
    said = said or options.variant
    if said is None:
        if len(fitting) > 1:
            raise ConvertError(f"{path}: the shapes fit ff2 and ff2w alike and no class is named; say --variant ff2 or ff2w")
        return fitting[0]
    if said not in fitting:
        raise ConvertError(f"{path}: a checkpoint of {said}, but its feed-forward tensors are those of {' or '.join(fitting)}")
    return said


def _mask(state, settings, options, path):
    """causal or strict: from the buffers `tril` of the heads, tril_plus_one, --mask; all that speak must agree."""
    said = {}
    for name in [name for name in state if _TRIL.fullmatch(name)]:
        state.drop(name)
        found = next((m for m, last in zip(MASKS, (0, -1)) if is_triangle(state.peek(name, 2), last)), None)
        if found is None:
            raise ConvertError(f"{path}: {show(name)} is neither the causal (j <= i) nor the strict (j < i) mask")
        said.setdefault(found, name)
    if settings.strict is not None:
        said.setdefault(MASKS[settings.strict], f"tril_plus_one = {settings.strict}")
    if options.mask is not None:
        said.setdefault(options.mask, f"--mask {options.mask}")
    if not said:
        raise ConvertError(f"{path}: neither a tril buffer nor tril_plus_one says which mask it is; say --mask causal or strict")
    if len(said) > 1:
        raise ConvertError(f"{path}: {said['causal']} says causal, {said['strict']} says strict")
    return next(iter(said))


def _feed_forward(model, state, variant, C, F):
    ffn = "blocks.ffwd.net"
    rows = C if variant == "ff2" else F
    model.add("blk.0.ffn_1.weight", state.take(f"{ffn}.0.weight", rows, C), matrix=True)
    model.add("blk.0.ffn_1.bias", state.take(f"{ffn}.0.bias", rows))
    if variant != "ff1":
        out, inner = (F, C) if variant == "ff2" else (C, F)
        model.add("blk.0.ffn_2.weight", state.take(f"{ffn}.2.weight", out, inner), matrix=True)
        model.add("blk.0.ffn_2.bias", state.take(f"{ffn}.2.bias", out))
    model.add("blk.0.ffn_scale.weight", state.take_number("blocks.scale_ff"), shape=(1,))


def _rate(model, state, rate, C):
    if rate == "matrix":
        model.add("blk.0.rate.weight", state.take("blocks.proj.weight", C, C), matrix=True)
    elif rate == "diag":
        model.add("blk.0.rate.weight", state.take("blocks.eta", C))
    else:
        model.add("blk.0.rate.weight", state.take_number("blocks.eta"), shape=(1,))


def _model(state, settings, options, path):
    state.drop("pos_idx")
    V, C = state.peek("token_embedding_table.weight", 2).shape
    context = state.peek("position_embedding_table.weight", 2).shape[0]
    H = count_heads(state, _HEAD, "blocks.attn.heads.{}.H.weight", settings, path)
    variant = _variant(state, C, settings, options, path)
    F = state.peek("blocks.ffwd.net.2.weight" if variant == "ff2" else "blocks.ffwd.net.0.weight").shape[0]
    settings.agree(path, V, C, context, F)
    steps = options.both_steps(path, settings.steps)
    mask = _mask(state, settings, options, path)

    model = Model("nrgpt", f"{variant} {mask} {settings.norm} {settings.rate}", V)
    model.put("u32", vocab_size=V, context_length=context, embedding_length=C, block_count=1, attention__head_count=H,
              feed_forward_length=F, steps=steps)
    model.put("f32", norm_epsilon=settings.epsilon, attention__beta=settings.beta)
    model.put("string", feed_forward=variant, attention__mask=mask, norm=settings.norm, rate=settings.rate)

    model.add("token_embd.weight", state.take("token_embedding_table.weight", V, C), matrix=True)
    model.add("position_embd.weight", state.take("position_embedding_table.weight", context, C), matrix=True)
    model.add("blk.0.norm.weight", state.take("blocks.ln.weight", C))
    if settings.norm == "layernorm":
        model.add("blk.0.norm.bias", state.take("blocks.ln.bias", C))
    for h in range(H):
        model.add(f"blk.0.attn_h.{h}.weight", state.take(f"blocks.attn.heads.{h}.H.weight", C, C), matrix=True)
    if settings.alpha:
        model.add("blk.0.attn_alpha.weight", state.take("blocks.attn.alpha", H))
    _feed_forward(model, state, variant, C, F)
    _rate(model, state, settings.rate, C)
    model.add("output_norm.weight", state.take("ln_f.weight", C))
    model.add("output_norm.bias", state.take("ln_f.bias", C))
    model.add("output.weight", state.take("lm_head.weight", V, C), matrix=True)
    model.add("output.bias", state.take("lm_head.bias", V))
    state.finish()
    return model
