"""Reading what goes in and what comes out, by means other than the converter's: Python's own pickle (golden files are
ours) and zipfile, the safetensors library, the gguf package. And docs/format.md's names, written down a second time."""

import json
import pickle
import zipfile

import gguf
import numpy as np
from safetensors.numpy import load_file

_NUMPY = {"FloatStorage": "<f4", "LongStorage": "<i8"}


class _Trusted(pickle.Unpickler):
    def __init__(self, archive, root):
        super().__init__(archive.open(f"{root}/data.pkl"))
        self.archive, self.root = archive, root

    def persistent_load(self, pid):
        return np.frombuffer(self.archive.read(f"{self.root}/data/{pid[2]}"), _NUMPY[pid[1]])

    def find_class(self, module, name):
        if name.endswith("Storage"):
            return name
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, shape, strides, *_: np.lib.stride_tricks.as_strided(
                storage[offset:], shape, [s * storage.itemsize for s in strides])
        return super().find_class(module, name)


def torch_file(path):
    with zipfile.ZipFile(path) as archive:
        return _Trusted(archive, archive.namelist()[0].split("/")[0]).load()


def source_state(directory):
    """The state dictionary of a golden directory, and its settings (model_args or config.json)."""
    for name in ("ckpt.pt", "model.pt"):
        if (directory / name).exists():
            value = torch_file(directory / name)
            state, settings = (value["model"], value["model_args"]) if "model" in value else (value, {})
            return {n.removeprefix("_orig_mod."): array for n, array in state.items()}, settings
    return load_file(directory / "model.safetensors"), json.loads((directory / "config.json").read_text())


def fields(path):
    reader = gguf.GGUFReader(path)
    return {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}


def field_types(path):
    return {key: tuple(t.name for t in field.types) for key, field in gguf.GGUFReader(path).fields.items()}


def tensors(path):
    """Name to (type name, float32 values in numpy's order)."""
    return {t.name: (t.tensor_type.name, gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]))
            for t in gguf.GGUFReader(path).tensors}


def nrgpt_names(state):
    """Checkpoint name to (GGUF name, whether it is a matrix), for every weight of the state dictionary."""
    fixed = {
        "token_embedding_table.weight": ("token_embd.weight", True),
        "position_embedding_table.weight": ("position_embd.weight", True),
        "blocks.ln.weight": ("blk.0.norm.weight", False), "blocks.ln.bias": ("blk.0.norm.bias", False),
        "blocks.attn.alpha": ("blk.0.attn_alpha.weight", False),
        "blocks.ffwd.net.0.weight": ("blk.0.ffn_1.weight", True), "blocks.ffwd.net.0.bias": ("blk.0.ffn_1.bias", False),
        "blocks.ffwd.net.2.weight": ("blk.0.ffn_2.weight", True), "blocks.ffwd.net.2.bias": ("blk.0.ffn_2.bias", False),
        "blocks.scale_ff": ("blk.0.ffn_scale.weight", False), "blocks.proj.weight": ("blk.0.rate.weight", True),
        "blocks.eta": ("blk.0.rate.weight", False), "ln_f.weight": ("output_norm.weight", False),
        "ln_f.bias": ("output_norm.bias", False), "lm_head.weight": ("output.weight", True),
        "lm_head.bias": ("output.bias", False),
    }
    names = {}
    for name in state:
        if name.endswith(".H.weight"):
            names[name] = (f"blk.0.attn_h.{name.split('.')[3]}.weight", True)
        elif not name.endswith((".tril", "pos_idx")):
            names[name] = fixed[name]
    return names


def cem_names(state):
    parts = {"norm.weight": ("{}_norm", False), "wq.weight": ("{}_q", True), "wk.weight": ("{}_k", True),
             "wv.weight": ("{}_v", True), "wo.weight": ("{}_output", True), "down.weight": ("{}_down", True),
             "up.weight": ("{}_up", True), "gate.weight": ("{}_gate", True), "diag": ("{}_diag", False), "eta": ("{}_eta", False),
             "precond.d": ("{}_precond_d", False), "precond.u": ("{}_precond_u", False), "precond.v": ("{}_precond_v", False)}
    names = {}
    for name in state:
        if name.startswith("layers."):
            _, layer, part, rest = name.split(".", 3)
            names[name] = (f"blk.{layer}.{parts[rest][0].format(part)}.weight", parts[rest][1])
        else:
            names[name] = {"embed.weight": ("token_embd.weight", True), "norm_f.weight": ("output_norm.weight", False),
                           "lm_head.weight": ("output.weight", True)}[name]
    return names


def gpt_tensors(state):
    """GGUF name to (values, whether it is a matrix) for every weight of a baseline's state dictionary."""
    parts = {"sa.proj": "attn_output", "ffwd.net.0": "ffn_up", "ffwd.net.2": "ffn_down", "ln1": "attn_norm", "ln2": "ffn_norm"}
    ends = {"token_embedding_table": "token_embd", "position_embedding_table": "position_embd", "ln_f": "output_norm",
            "lm_head": "output"}
    found, heads = {}, {}
    for name, array in state.items():
        if name.endswith((".tril", "pos_idx")):
            continue
        stem, _, end = name.rpartition(".")
        if not stem.startswith("blocks"):
            found[f"{ends[stem]}.{end}"] = (array, array.ndim > 1)
            continue
        words = stem.split(".")
        layer, rest = (words[1], words[2:]) if words[1].isdigit() else ("0", words[1:])
        if "heads" in rest:
            heads.setdefault(f"blk.{layer}.attn_{rest[3][0]}.weight", {})[int(rest[2])] = array
        else:
            found[f"blk.{layer}.{parts['.'.join(rest)]}.{end}"] = (array, array.ndim > 1)
    found.update({name: (np.concatenate([of[h] for h in sorted(of)]), True) for name, of in heads.items()})
    return found
