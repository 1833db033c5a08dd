"""From train.py's options to a model."""
import torch

from .cem import CEM
from .data import DataError
from .gpt import GPT
from .nrgpt import NRGPT

LAYERS = {"cem": ("cem", "cem"), "llama": ("llama", "swiglu"), "cem-swiglu": ("cem", "swiglu"), "llama-cem": ("llama", "cem")}
BASELINES = {"gpt": "gpt", "gpt-rec-parallel": "gpt-rec-parallel"}


def products_type(asked, device):
    """float32 or bfloat16; auto takes bfloat16 where the processor multiplies it."""
    if asked != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[asked]
    if device != "cpu":
        return torch.bfloat16
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            has = any(name in file.read() for name in ("avx512_bf16", "amx_bf16"))
    except OSError:
        has = False
    return torch.bfloat16 if has else torch.float32


def build_model(a, vocab, device, dtype):
    if a.read == "all" and a.model not in ("nrgpt", "gpt-rec-parallel"):
        raise DataError(f"--read all needs states that do not depend on T; those of {a.model} do")
    if a.model in LAYERS:
        if a.width % a.heads or a.width // a.heads % 2:
            raise DataError(f"--width {a.width} is not {a.heads} heads of an even width")
        attn, mlp = LAYERS[a.model]
        return CEM({"vocab_size": vocab, "n_embd": a.width, "n_layer": a.layers, "n_head": a.heads, "n_ff": a.hidden or 4 * a.width,
                    "block_size": a.block, "steps_attn": a.steps, "steps_mlp": a.steps, "attn": attn, "mlp": mlp,
                    "attn_diag": a.diagonal, "precond_rank": a.rank, "mlp_act": a.activation}, device, dtype, a.seed)
    factor, rest = divmod(a.hidden or 4 * a.width, a.width)
    if rest:
        raise DataError(f"--hidden {a.hidden} is no multiple of --width {a.width}")
    common = {"vocab_size": vocab, "n_embed": a.width, "n_head": a.heads, "ff_hid_factor": factor, "block_size": a.block}
    if a.model in BASELINES:
        recursive = a.model == "gpt-rec-parallel"
        return GPT({**common, "model_type": BASELINES[a.model], "n_layer": a.steps if recursive else a.layers}, device, dtype, a.seed)
    rate = a.rate if a.rate in ("matrix", "diag") else "scalar"
    config = {**common, "n_layer": a.steps, "feed_forward": a.feed_forward, "tril_plus_one": a.mask == "strict", "norm": a.norm,
              "rate": rate}
    if rate == "scalar":
        try:
            config["rate_value"] = float(a.rate)
        except ValueError:
            raise DataError(f"--rate is {a.rate!r}; expected matrix, diag or a number") from None
    return NRGPT(config, device, dtype, a.seed)
