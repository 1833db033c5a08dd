"""CEM directories: settings and tensors that do not make a model; depths; Llama's layers in place of descents."""

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


def test_a_rank_above_the_width_which_the_engine_refuses(refused, directory):
    config = {**CONFIG, "precond_rank": CONFIG["n_embd"] + 1}
    refused(directory(cem_state(config), config), "precond_rank", f"from -1 to {CONFIG['n_embd']}")


def test_head_width_must_be_even(refused, directory):
    config = cem_config(C=9, K=3)
    refused(directory(cem_state(config), config), "even")


HYBRIDS = {"llama": {"attn": "llama", "mlp": "swiglu"}, "cem attention": {"mlp": "swiglu"}, "cem mlp": {"attn": "llama"}}
OWN = {"attn": ["attn_diag", "steps_attn"], "mlp": ["mlp_act", "steps_mlp"]}  # settings of a sub-layer that is CEM's


def needless(kinds):
    """Settings that mean nothing where the sub-layers are of these kinds."""
    return [k for part in kinds for k in OWN[part]] + (["precond_rank", "eta_entries"] if len(kinds) == 2 else [])


@pytest.mark.parametrize("kinds", HYBRIDS.values(), ids=HYBRIDS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_llama_layers(kinds, tied, bare, good, directory):
    """Every tensor under its name with its numbers; settings of what is not there may be left out or not."""
    config = {**cem_config(tied=tied), **kinds}
    state = cem_state(config)
    if bare:
        config = {k: v for k, v in config.items() if k not in needless(kinds)}
    path = good(directory(state, config), "--type", "f16")
    fields, tensors = reading.fields(path), reading.tensors(path)
    names = reading.cem_names(state)
    assert len(tensors) == len(names) == len(state)
    for name, (gguf_name, matrix) in names.items():
        assert tensors[gguf_name][0] == ("F16" if matrix else "F32")
        np.testing.assert_array_equal(tensors[gguf_name][1], state[name].astype(np.float16) if matrix else state[name])
    for l in range(config["n_layer"]):
        for part in ("attn", "mlp"):
            assert (f"layers.{l}.{part}.eta" in state) == (part not in kinds)
    assert fields.get("cem.attention.kind") == kinds.get("attn")
    assert fields.get("cem.mlp.kind") == kinds.get("mlp")
    present = {"cem.steps.attention", "cem.attention.diagonal"} if "attn" not in kinds else set()
    present |= {"cem.steps.mlp", "cem.activation"} if "mlp" not in kinds else set()
    present |= {"cem.preconditioner.rank"} if len(kinds) == 1 else set()
    assert present == {k for k in ("cem.steps.attention", "cem.steps.mlp", "cem.attention.diagonal", "cem.activation",
                                   "cem.preconditioner.rank") if k in fields}


@pytest.mark.parametrize("kinds", HYBRIDS.values(), ids=HYBRIDS)
def test_tensors_of_llama_layers(kinds, refused, directory):
    config = {**CONFIG, **kinds}
    for name in cem_state(config):
        state = cem_state(config)
        whole = state.pop(name)
        refused(directory(state, config), f"'{name}' is missing")
        state[name] = np.concatenate([whole, whole[:1]])
        assert name in refused(directory(state, config))
    for part in kinds:  # nothing to step with
        refused(directory({**cem_state(config), f"layers.0.{part}.eta": np.ones(2, np.float32)}, config), "is not part")


def test_kinds(refused, directory):
    refused(directory(cem_state(CONFIG), {**CONFIG, "attn": "swiglu"}), "attn is 'swiglu'", "cem, llama")
    refused(directory(cem_state(CONFIG), {**CONFIG, "mlp": "llama"}), "mlp is 'llama'", "cem, swiglu")


def test_steps_of_llama_layers(good, refused, directory):
    llama, attention, mlp = ({**CONFIG, **kinds} for kinds in HYBRIDS.values())
    refused(directory(cem_state(llama), llama), "--steps", options=["--steps", "2"])
    for config, key in ((attention, "cem.steps.attention"), (mlp, "cem.steps.mlp")):
        path = directory(cem_state(config), config)
        refused(path, "one depth", options=["--steps", "2x3"])
        assert reading.fields(good(path, "--steps", "7"))[key] == 7
        config = {k: v for k, v in config.items() if not k.startswith("steps")}
        refused(directory(cem_state(config), config), "--steps")


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
