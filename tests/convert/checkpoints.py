"""Random checkpoints of every layout, as state dictionaries of numpy arrays and as files."""

import json
from collections import OrderedDict

import numpy as np
from safetensors.numpy import save_file

import torch_writer


def drawing(rng):
    """draw(shape...): normal numbers in float32."""
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def nrgpt_state(variant="ff2w", V=11, C=6, H=2, F=24, context=5, strict=False, buffers=True, norm="layernorm", rate="matrix",
                alpha=False, seed=0):
    draw = drawing(np.random.default_rng(seed))
    state = OrderedDict(pos_idx=np.arange(context))
    state["token_embedding_table.weight"] = draw(V, C)
    state["position_embedding_table.weight"] = draw(context, C)
    state["blocks.scale_ff"] = draw(1)
    for h in range(H):
        if buffers:
            state[f"blocks.attn.heads.{h}.tril"] = np.tri(context, context, -1 if strict else 0, dtype=np.float32)
        state[f"blocks.attn.heads.{h}.H.weight"] = draw(C, C)
    if alpha:
        state["blocks.attn.alpha"] = draw(H)
    for i, shape in {"ff1": {0: (F, C)}, "ff2": {0: (C, C), 2: (F, C)}, "ff2w": {0: (F, C), 2: (C, F)}}[variant].items():
        state[f"blocks.ffwd.net.{i}.weight"] = draw(*shape)
        state[f"blocks.ffwd.net.{i}.bias"] = draw(shape[0])
    state["blocks.ln.weight"] = draw(C)
    if norm == "layernorm":
        state["blocks.ln.bias"] = draw(C)
    if rate == "matrix":
        state["blocks.proj.weight"] = draw(C, C)
    else:
        state["blocks.eta"] = draw(C if rate == "diag" else 1)
    state["ln_f.weight"], state["ln_f.bias"] = draw(C), draw(C)
    state["lm_head.weight"], state["lm_head.bias"] = draw(V, C), draw(V)
    return state


def gpt_state(blocks=2, V=11, C=7, H=2, F=28, context=5, extra=0, seed=0):
    """`blocks` None: the one block of GPT_Rec_parallel. `extra`: by how much the mask is larger than the context."""
    draw = drawing(np.random.default_rng(seed))
    state = OrderedDict(pos_idx=np.arange(context))
    state["token_embedding_table.weight"] = draw(V, C)
    state["position_embedding_table.weight"] = draw(context, C)
    D = C // H
    for at in ["blocks"] if blocks is None else [f"blocks.{l}" for l in range(blocks)]:
        for h in range(H):
            state[f"{at}.sa.heads.{h}.tril"] = np.tri(context + extra, dtype=np.float32)
            for part in ("key", "query", "value"):
                state[f"{at}.sa.heads.{h}.{part}.weight"] = draw(D, C)
        state[f"{at}.sa.proj.weight"], state[f"{at}.sa.proj.bias"] = draw(C, H * D), draw(C)
        state[f"{at}.ffwd.net.0.weight"], state[f"{at}.ffwd.net.0.bias"] = draw(F, C), draw(F)
        state[f"{at}.ffwd.net.2.weight"], state[f"{at}.ffwd.net.2.bias"] = draw(C, F), draw(C)
        for norm in ("ln1", "ln2"):
            state[f"{at}.{norm}.weight"], state[f"{at}.{norm}.bias"] = draw(C), draw(C)
    state["ln_f.weight"], state["ln_f.bias"] = draw(C), draw(C)
    state["lm_head.weight"], state["lm_head.bias"] = draw(V, C), draw(V)
    return state


def gpt_training(state, name, n_layer, **settings):
    """What the authors' trainer saves of a baseline; `name` None: no class named."""
    value = training(state, steps=n_layer, F_per_C=4, **({} if name else {"config": {}}))
    if name:
        value["config"]["model_path"] = f"models.{name}"
    first = min(n.split(".sa.")[0] for n in state if ".sa." in n)
    heads = sum(n.startswith(first + ".sa.") and ".key." in n for n in state)
    value["model_args"].update({"n_head": heads, **settings})
    return value


def model_args(state, F_per_C, steps=3, strict=False):
    V, C = state["token_embedding_table.weight"].shape
    return {"block_size": state["position_embedding_table.weight"].shape[0], "n_embed": C, "n_layer": steps,
            "n_head": sum(".H." in name for name in state), "ff_hid_factor": F_per_C, "dropout": 0.0, "bias": False,
            "vocab_size": V, "tril_plus_one": strict, "alpha": 1.0, "decay_update": False, "use_layer_norm": True}


def training(state, variant="FF2W", F_per_C=4, steps=3, strict=False, **more):
    """What the authors' trainer saves."""
    return {"model": state, "optimizer": {"state": {}, "param_groups": []}, "model_args": model_args(state, F_per_C, steps, strict),
            "iter_num": 10, "best_val_loss": np.array(1.5, np.float32),
            "config": {"model_path": f"models.NRGPT_H_{variant}", "learning_rate": 1e-3}, **more}


def write_pt(path, value, **options):
    torch_writer.save(path, value, **options)
    return path


def write_directory(path, state, config):
    path.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in state.items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return path


def nrgpt_config(variant="ff2w", V=11, C=6, H=2, context=5, factor=4, strict=False, norm="layernorm", rate="matrix",
                 alpha=False, **more):
    return {"model_type": "nrgpt", "feed_forward": variant, "vocab_size": V, "n_embed": C, "n_layer": 4, "n_head": H,
            "block_size": context, "ff_hid_factor": factor, "tril_plus_one": strict, "norm": norm, "rate": rate,
            "learned_alpha": alpha, "beta": 0.5, "norm_eps": 1e-5, **more}


def cem_config(V=7, C=8, layers=2, K=2, M=12, diagonal="shared", rank=3, activation="silu", tied=True, entries=2, **more):
    return {"vocab_size": V, "n_embd": C, "n_layer": layers, "n_head": K, "n_ff": M, "block_size": 9, "steps_attn": 2,
            "steps_mlp": 3, "attn_diag": diagonal, "precond_rank": rank, "mlp_act": activation, "rope_theta": 10000.0,
            "norm_eps": 1e-5, "tie_embeddings": tied, "eta_entries": entries, "model_type": "cem", **more}


def cem_state(config, seed=0):
    rng = np.random.default_rng(seed)
    V, C, K, M = (config[k] for k in ("vocab_size", "n_embd", "n_head", "n_ff"))
    rank, entries = config["precond_rank"], config["eta_entries"]
    draw = drawing(rng)
    kinds = {"attn": config.get("attn", "cem"), "mlp": config.get("mlp", "cem")}
    shapes = {"attn": {"wq": (C, C), "wk": (C, C)}, "mlp": {"up": (M, C), "gate": (M, C)}}
    if kinds["attn"] == "llama":
        shapes["attn"].update(wv=(C, C), wo=(C, C))
    if kinds["mlp"] == "swiglu":
        shapes["mlp"]["down"] = (C, M)
    state = {"embed.weight": draw(V, C)}
    for l in range(config["n_layer"]):
        for part, matrices in shapes.items():
            at = f"layers.{l}.{part}"
            state[f"{at}.norm.weight"] = draw(C)
            for name, shape in matrices.items():
                state[f"{at}.{name}.weight"] = draw(*shape)
            if kinds[part] != "cem":
                continue
            state[f"{at}.eta"] = draw(entries)
            if rank >= 0:
                state[f"{at}.precond.d"] = draw(C)
            if rank > 0:
                state[f"{at}.precond.u"], state[f"{at}.precond.v"] = draw(C, rank), draw(C, rank)
        if kinds["attn"] == "cem" and config["attn_diag"] != "none":
            state[f"layers.{l}.attn.diag"] = draw(C) if config["attn_diag"] == "shared" else draw(K, C)
    state["norm_f.weight"] = draw(C)
    if not config["tie_embeddings"]:
        state["lm_head.weight"] = draw(V, C)
    return state
