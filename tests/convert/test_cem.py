"""CEM directories: settings and tensors that do not make a model; depths; layers that are not descents."""

import numpy as np
import pytest

import checkpoints
import reading
from checkpoints import cem_config, cem_state


@pytest.fixture
def directory(tmp_path):
    return lambda state, config: checkpoints.write_directory(tmp_path / "in", state, config)


CONFIG = cem_config()


@pytest.mark.parametrize("name", list(cem_state(CONFIG)))
def test_tensors(name, refused, directory):
    state = cem_state(CONFIG)
    whole = state.pop(name)
    refused(directory(state, CONFIG), f"'{name}' is missing")
    state[name] = np.concatenate([whole, whole[:1]])
    message = refused(directory(state, CONFIG))
    assert name in message
    state[name] = whole.astype(np.int64)
    refused(directory(state, CONFIG), name, "I64")


@pytest.mark.parametrize("name", ["lm_head.weight", "layers.2.attn.eta", "layers.0.attn.wv.weight", "rotary.inv_freq"])
def test_extra_tensor(name, refused, directory):
    refused(directory({**cem_state(CONFIG), name: np.zeros(4, np.float32)}, CONFIG), f"'{name}' is not part")


@pytest.mark.parametrize("key", [k for k in CONFIG if k != "eta_entries"])
def test_missing_settings(key, refused, directory):
    config = {k: v for k, v in CONFIG.items() if k != key}
    refused(directory(cem_state(CONFIG), config), "--steps" if key.startswith("steps") else key)


@pytest.mark.parametrize("key, value", [
    ("vocab_size", 8), ("n_embd", 6), ("n_layer", 1), ("n_layer", 3), ("n_layer", 0), ("n_layer", 1 << 40), ("n_head", 3),
    ("n_head", 8), ("n_ff", 11), ("steps_attn", 0), ("steps_mlp", 65536), ("attn_diag", "none"), ("attn_diag", "per_head"),
    ("attn_diag", "full"), ("precond_rank", -1), ("precond_rank", 0), ("precond_rank", 2), ("precond_rank", -2),
    ("mlp_act", "relu"), ("rope_theta", 0), ("rope_theta", None), ("norm_eps", 0), ("tie_embeddings", False),
    ("tie_embeddings", 1), ("eta_entries", 3), ("rope_scaling", {"factor": 2}), ("model_type", "llama"),
    ("block_size", -1), ("block_size", "9")])
def test_settings(key, value, refused, directory):
    refused(directory(cem_state(CONFIG), {**CONFIG, key: value}))


def test_head_width_must_be_even(refused, directory):
    config = cem_config(C=9, K=3)
    refused(directory(cem_state(config), config), "even")


@pytest.mark.parametrize("key, value", [("attn", "llama"), ("mlp", "swiglu")])
def test_layers_without_an_energy(key, value, refused, directory):
    refused(directory(cem_state(CONFIG), {**CONFIG, key: value}), f"{key} is '{value}'", "without an energy")


def test_layers_named(good, directory):
    assert reading.fields(good(directory(cem_state(CONFIG), {**CONFIG, "attn": "cem", "mlp": "cem"})))["cem.block_count"] == 2


@pytest.mark.parametrize("option, attention, mlp", [(None, 2, 3), ("4", 4, 4), ("5x6", 5, 6)])
def test_steps(option, attention, mlp, good, directory):
    fields = reading.fields(good(directory(cem_state(CONFIG), CONFIG), *(["--steps", option] if option else [])))
    assert (fields["cem.steps.attention"], fields["cem.steps.mlp"]) == (attention, mlp)


def test_options_of_the_other_family(refused, directory):
    path = directory(cem_state(CONFIG), CONFIG)
    refused(path, "NRGPT", options=["--mask", "causal"])
    refused(path, "NRGPT", options=["--variant", "ff1"])
