"""From train.py's options (options.py) to a device, a type of products and a model."""
import torch

from .cem import CEM
from .data import DataError
from .gpt import GPT
from .nrgpt import NRGPT

LAYERS = {"cem": ("cem", "cem"), "llama": ("llama", "swiglu"), "cem-swiglu": ("cem", "swiglu"),
          "llama-cem": ("llama", "cem")}
BASELINES = ("gpt", "gpt-rec-parallel")
CPU = "/proc/cpuinfo"


def products_type(asked, device):
    """float32 or bfloat16; auto takes bfloat16 where the processor multiplies it."""
    if asked != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[asked]
    if device == "cpu":
        try:
            with open(CPU, encoding="ascii", errors="replace") as file:
                features = file.read().split()
        except OSError:
            features = []
        has = any(name in features for name in ("avx512_bf16", "amx_bf16", "bf16"))  # the last is ARM's
    else:
        has = torch.cuda.is_bf16_supported()
    return torch.bfloat16 if has else torch.float32


def find_device(asked):
    """The device's name; auto is a GPU where PyTorch sees one."""
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=asked)
    except (RuntimeError, AssertionError) as error:  # PyTorch built without CUDA asserts
        first = str(error).partition("\n")[0]
        raise DataError(f"--device {asked}: {first}") from None
    return asked


def build_model(a, vocab, device, dtype):
    """The model that options (options.py has checked them) ask for, of `vocab` tokens."""
    hidden = a.hidden or 4 * a.width
    if a.model in LAYERS:
        attn, mlp = LAYERS[a.model]
        return CEM({"vocab_size": vocab, "n_embd": a.width, "n_layer": a.layers, "n_head": a.heads, "n_ff": hidden,
                    "block_size": a.block, "steps_attn": a.steps, "steps_mlp": a.steps, "attn": attn, "mlp": mlp,
                    "attn_diag": a.diagonal, "precond_rank": a.rank, "mlp_act": a.activation}, device, dtype, a.seed)
    common = {"vocab_size": vocab, "n_embed": a.width, "n_head": a.heads, "ff_hid_factor": hidden // a.width,
              "block_size": a.block}
    if a.model in BASELINES:
        blocks = a.steps if a.model == "gpt-rec-parallel" else a.layers
        return GPT({**common, "model_type": a.model, "n_layer": blocks}, device, dtype, a.seed)
    rate = a.rate if a.rate in ("matrix", "diag") else "scalar"
    config = {**common, "n_layer": a.steps, "feed_forward": a.feed_forward, "tril_plus_one": a.mask == "strict",
              "norm": a.norm, "rate": rate, "beta": a.beta}
    if rate == "scalar":
        config["rate_value"] = float(a.rate)
    return NRGPT(config, device, dtype, a.seed)
