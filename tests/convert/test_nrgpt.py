"""NRGPT checkpoints: which mask, which feed-forward, how many steps; what is missing, extra, misshapen or contradictory."""

import numpy as np
import pytest

import checkpoints
import reading
from checkpoints import nrgpt_state, training
from conftest import GOLDEN


@pytest.fixture
def pt(tmp_path):
    return lambda value: checkpoints.write_pt(tmp_path / "ckpt.pt", value)


# -- Mask

@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("source", ["buffer", "setting", "option", "all"])
def test_mask(strict, source, good, pt):
    state = nrgpt_state(strict=strict, buffers=source in ("buffer", "all"))
    value = training(state, strict=strict)
    if source in ("buffer", "option"):
        del value["model_args"]["tril_plus_one"]
    options = ["--mask", "strict" if strict else "causal"] if source in ("option", "all") else []
    assert reading.fields(good(pt(value), *options))["nrgpt.attention.mask"] == ("strict" if strict else "causal")


def test_mask_unknown(refused, pt):
    value = training(nrgpt_state(buffers=False))
    del value["model_args"]["tril_plus_one"]
    refused(pt(value), "--mask causal or strict")


@pytest.mark.parametrize("strict", [False, True])
def test_mask_contradictions(strict, refused, pt):
    refused(pt(training(nrgpt_state(strict=strict), strict=not strict)), "tril_plus_one", "heads.0.tril", "causal", "strict")
    other = ["--mask", "causal" if strict else "strict"]
    refused(pt(training(nrgpt_state(strict=strict), strict=strict)), "--mask", options=other)
    refused(pt(training(nrgpt_state(strict=strict, buffers=False), strict=strict)), "--mask", options=other)


def test_mask_differs_between_heads(refused, pt):
    state = nrgpt_state()
    state["blocks.attn.heads.1.tril"] = np.tri(5, 5, -1, dtype=np.float32)
    refused(pt(training(state)), "heads.0.tril", "heads.1.tril")


def test_mask_of_another_kind(refused, pt):
    state = nrgpt_state()
    state["blocks.attn.heads.1.tril"][4, 0] = 0  # a window
    refused(pt(training(state)), "heads.1.tril", "neither")


def test_boolean_mask(good, pt):
    state = nrgpt_state(strict=True)
    for h in range(2):
        state[f"blocks.attn.heads.{h}.tril"] = state[f"blocks.attn.heads.{h}.tril"].astype(bool)
    assert reading.fields(good(pt(training(state, strict=True))))["nrgpt.attention.mask"] == "strict"


# -- Variant

@pytest.mark.parametrize("variant", ["ff1", "ff2", "ff2w"])
def test_variant_by_class(variant, good, pt):
    fields = reading.fields(good(pt(training(nrgpt_state(variant), variant.upper()))))
    assert fields["nrgpt.feed_forward"] == variant and fields["nrgpt.feed_forward_length"] == 24


@pytest.mark.parametrize("variant", ["ff1", "ff2", "ff2w"])
def test_variant_by_shapes(variant, good, pt):
    value = training(nrgpt_state(variant))
    del value["config"]["model_path"]
    assert reading.fields(good(pt(value)))["nrgpt.feed_forward"] == variant


@pytest.mark.parametrize("variant", ["ff2", "ff2w"])
def test_variant_by_option(variant, good, refused, pt):
    """At ff_hid_factor 1 both matrices are square."""
    path = pt(training(nrgpt_state(variant, F=6), F_per_C=1, config={}))
    refused(path, "ff2 and ff2w", "--variant")
    assert reading.fields(good(path, "--variant", variant))["nrgpt.feed_forward"] == variant
    path = pt(training(nrgpt_state(variant, F=6), variant.upper(), F_per_C=1))
    assert reading.fields(good(path))["nrgpt.feed_forward"] == variant


def test_variant_contradictions(refused, pt):
    refused(pt(training(nrgpt_state("ff2w"), "FF2")), "ff2,", "ff2w")
    refused(pt(training(nrgpt_state("ff1"), "FF2W")), "ff2w,", "ff1")
    refused(pt(training(nrgpt_state("ff2w"), "FF2W")), "--variant ff2,", options=["--variant", "ff2"])
    refused(pt(training(nrgpt_state("ff2w"), config={})), "ff2w", options=["--variant", "ff2"])
    state = nrgpt_state("ff2w")
    state["blocks.ffwd.net.2.weight"] = np.zeros((7, 24), np.float32)
    refused(pt(training(state)), "[24, 6]", "[7, 24]")


def test_unknown_class(refused, pt):
    for path in ("models.NRGPT_H_FF3", "models.GPT_Rec", "os.system", "models.NRGPT_H_FF1\nfake line"):
        value = training(nrgpt_state())
        value["config"]["model_path"] = path
        refused(pt(value), "unknown", "models.NRGPT_H_FF1", "models.GPT_Rec_parallel")


# -- Steps

def test_steps(good, refused, pt):
    assert reading.fields(good(pt(training(nrgpt_state(), steps=7))))["nrgpt.steps"] == 7
    assert reading.fields(good(pt(training(nrgpt_state(), steps=7)), "--steps", "9"))["nrgpt.steps"] == 9
    assert reading.fields(good(pt(nrgpt_state()), "--steps", "65535"))["nrgpt.steps"] == 65535
    refused(pt(nrgpt_state()), "--steps")
    refused(pt(nrgpt_state()), "one depth", options=["--steps", "2x3"])
    refused(pt(training(nrgpt_state(), steps=0)), "n_layer")
    refused(pt(training(nrgpt_state(), steps=65536)), "n_layer")


def test_bare_with_strict_buffer(good):
    fields = reading.fields(good(GOLDEN / "nrgpt-listops-bare", "--steps", "5"))
    assert fields["nrgpt.attention.mask"] == "strict" and fields["tokenizer.ggml.model"] == "words"


# -- Tensors

WEIGHTS = [name for name in nrgpt_state() if not name.endswith((".tril", "pos_idx"))]


@pytest.mark.parametrize("name", WEIGHTS)
def test_missing_tensor(name, refused, pt):
    value = training(nrgpt_state())
    del value["model"][name]
    message = refused(pt(value))
    if name == "blocks.ffwd.net.2.weight":  # without it the shapes are those of another kind
        assert "ff1" in message
    else:
        assert f"'{name}' is missing" in message


@pytest.mark.parametrize("name", WEIGHTS)
def test_misshapen_tensor(name, refused, pt):
    for change in (lambda a: np.concatenate([a, a[:1]]), lambda a: a[None], lambda a: a[:0]):
        value = training(nrgpt_state())
        value["model"][name] = change(value["model"][name])
        refused(pt(value))


def test_wrong_kind_of_tensor(refused, pt):
    state = nrgpt_state()
    state["blocks.proj.weight"] = np.zeros((6, 6), np.int64)
    refused(pt(training(state)), "blocks.proj.weight", "I64")


@pytest.mark.parametrize("name", ["blocks.eta", "blocks.attn.alpha", "blocks.attn.heads.0.key.weight", "a\nb"])
def test_extra_tensor(name, refused, pt):
    state = nrgpt_state()
    state[name] = np.zeros(6, np.float32)
    refused(pt(training(state)), "is not part of this model" if "\n" not in name else "a\\nb")


def test_two_prefixes_one_name(refused, pt):
    state = nrgpt_state()
    state["module.ln_f.bias"] = state["ln_f.bias"]
    refused(pt(training(state)), "'ln_f.bias'", "two tensors")


def test_head_missing_in_the_middle(refused, pt):
    state = nrgpt_state(H=3)
    del state["blocks.attn.heads.1.H.weight"]
    refused(pt(training(state)), "heads.1.H.weight' is missing")


@pytest.mark.parametrize("key, value", [("vocab_size", 12), ("vocab_size", 1 << 40), ("n_embed", 5), ("n_head", 1),
                                        ("n_head", 3), ("block_size", 6), ("ff_hid_factor", 3), ("n_layer", "3"),
                                        ("n_layer", True), ("n_embed", 6.0), ("tril_plus_one", "no"), ("window", 4)])
def test_settings_against_tensors(key, value, refused, pt):
    checkpoint = training(nrgpt_state())
    checkpoint["model_args"][key] = value
    refused(pt(checkpoint), key)


def test_settings_are_optional(good, pt):
    value = training(nrgpt_state())
    value["model_args"] = {"n_layer": 3}
    assert reading.fields(good(pt(value)))["nrgpt.embedding_length"] == 6


@pytest.mark.parametrize("value", [[], 5, "text", {}, {"model": 5}, {"model": {"a": 1}}, {"model": {}, "config": []},
                                   {"model": {}, "model_args": 3}, {1: 2}, {"a": np.zeros(3, np.float32)}])
def test_no_checkpoint(value, refused, pt):
    refused(pt(value))


# -- Directories

@pytest.mark.parametrize("key, value", [
    ("norm", "batchnorm"), ("norm", 1), ("rate", "full"), ("feed_forward", "ff3"), ("learned_alpha", 1), ("beta", 0),
    ("beta", "1"), ("beta", 1e39), ("norm_eps", -1e-5), ("norm_eps", 1e-60), ("norm_eps", True), ("sliding_window", 4),
    ("vocab_size", 12), ("norm", "rmsnorm"), ("rate", "diag"), ("learned_alpha", True), ("feed_forward", "ff1")])
def test_config(key, value, refused, tmp_path):
    config = checkpoints.nrgpt_config()
    config[key] = value
    refused(checkpoints.write_directory(tmp_path / "in", nrgpt_state(buffers=False), config))
