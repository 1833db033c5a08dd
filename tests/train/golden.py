"""The golden models as the trainer's: config, tensors, tokens, and the logits a float64 reference gives at each T."""
import json
import pathlib
import re

import numpy as np
import torch

from descent_train.cem import CEM
from descent_train.gpt import GPT
from descent_train.nrgpt import NRGPT

HERE = pathlib.Path(__file__).resolve().parents[1] / "golden"
OFFICIAL = {"nrgpt-ff1": "ff1", "nrgpt-ff2": "ff2", "nrgpt-ff2w": "ff2w", "nrgpt-ff2w-strict": "ff2w"}
BASELINES = {"gpt": "gpt", "gpt-rec-parallel": "gpt-rec-parallel"}
DIRECTORIES = ["nrgpt-ff1-rms-diag-alpha", "nrgpt-ff2w-scalar", "cem-none-noprecond", "cem-perhead-diag-gelu",
               "cem-shared-eta3", "cem-shared-r8-silu"]
NAMES = [*OFFICIAL, *BASELINES, *DIRECTORIES]


def safetensors(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4"}
    return {name: torch.from_numpy(np.frombuffer(raw[8 + length:], np.uint8)[slice(*e["data_offsets"])].copy()
                                   .view(types[e["dtype"]]).reshape(e["shape"])) for name, e in header.items()}


def checkpoint(name):
    """(config as the trainer takes it, tensors)."""
    if name in DIRECTORIES:
        config = json.loads((HERE / name / "config.json").read_text())
        return config, safetensors(HERE / name / "model.safetensors")
    official = torch.load(HERE / name / "ckpt.pt", map_location="cpu")
    config = {k: official["model_args"][k] for k in ("vocab_size", "n_embed", "n_head", "n_layer", "block_size", "ff_hid_factor")}
    if name in BASELINES:
        config["model_type"] = BASELINES[name]
    else:
        config.update(feed_forward=OFFICIAL[name], tril_plus_one=official["model_args"]["tril_plus_one"])
    return config, {re.sub(r"^(_orig_mod\.|module\.)+", "", k): v for k, v in official["model"].items()}


def expected(name):
    """(tokens [1, L], {T: logits [L, V] in float64}); T is a pair where attention and MLP have one each."""
    made = safetensors(HERE / name / "expected.safetensors")
    logits = {}
    for key, value in made.items():
        found = re.fullmatch(r"logits\.Ta?(\d+)(?:\.Tm(\d+))?", key)
        if found:
            depth = tuple(int(n) for n in found.groups() if n)
            logits[depth if len(depth) == 2 else depth[0]] = value.double()
    return made["tokens"].long().view(1, -1), logits


def load(name, dtype=torch.float32):
    """The golden model as the trainer's, every tensor it has taken from the checkpoint."""
    config, tensors = checkpoint(name)
    kind = config.get("model_type", "nrgpt")
    if config.get("rate") == "scalar":
        config["rate_value"] = 1.0
    model = (CEM if kind == "cem" else NRGPT if kind == "nrgpt" else GPT)(config, dtype=dtype)
    with torch.no_grad():
        for n, p in {**model.parameters, **model.frozen()}.items():
            p.copy_(tensors[n])
    return model
