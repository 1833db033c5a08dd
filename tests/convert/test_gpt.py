"""The authors' baselines: every number under its name, heads stacked; which of them it is; what is refused."""

import numpy as np
import pytest

import checkpoints
import reading
from checkpoints import gpt_state, gpt_training
from conftest import GOLDEN


@pytest.fixture
def pt(tmp_path):
    return lambda value: checkpoints.write_pt(tmp_path / "ckpt.pt", value)


def same(path, state, kind="F32"):
    written, wanted = reading.tensors(path), reading.gpt_tensors(state)
    assert set(written) == set(wanted)
    for name, (values, matrix) in wanted.items():
        assert written[name][0] == (kind if matrix else "F32")
        assert written[name][1].shape == values.shape and np.array_equal(written[name][1], values)


@pytest.mark.parametrize("name, variant, blocks", [("gpt", "gpt", 2), ("gpt-rec-parallel", "gpt-rec-parallel", 1)])
def test_golden(name, variant, blocks, good):
    state, settings = reading.source_state(GOLDEN / name)
    path = good(GOLDEN / name)
    fields = reading.fields(path)
    same(path, state)
    expected = {"vocab_size": 65, "context_length": 32, "embedding_length": 64, "block_count": blocks, "attention.head_count": 4,
                "feed_forward_length": 256}
    if blocks == 1:
        expected["steps"] = settings["n_layer"]
    assert fields["general.architecture"] == variant and fields["tokenizer.ggml.model"] == "chars"
    epsilon = fields.pop(f"{variant}.norm_epsilon")
    assert epsilon == float(np.float32(1e-5))
    assert {key.removeprefix(variant + "."): value for key, value in fields.items() if key.startswith(variant + ".")} == expected


@pytest.mark.parametrize("blocks, name", [(3, "GPT"), (None, "GPT_Rec_parallel")])
def test_heads_that_do_not_fill_the_width(blocks, name, good, pt):
    """C = 7, H = 2: heads of 3."""
    state = gpt_state(blocks, extra=1)
    same(good(pt(gpt_training(state, name, 3, tril_plus_one=True))), state)


def test_types(good, pt):
    state = {name: values.astype(np.float16).astype(np.float32) if name != "pos_idx" else values
             for name, values in gpt_state().items()}
    same(good(pt(gpt_training(state, "GPT", 2)), "--type", "f16"), state, "F16")


def test_many_heads_in_order(good, pt):
    state = gpt_state(1, C=24, H=12, F=96)
    same(good(pt(gpt_training(state, "GPT", 1))), state)


# -- Which it is

def test_by_tensors(good, pt):
    assert reading.fields(good(pt(gpt_training(gpt_state(), None, 2))))["general.architecture"] == "gpt"
    fields = reading.fields(good(pt(gpt_state(3))))
    assert fields["general.architecture"] == "gpt" and fields["gpt.block_count"] == 3


def test_one_block_must_be_named(good, refused, pt):
    path = pt(gpt_training(gpt_state(None), None, 4))
    refused(path, "--variant gpt-rec-parallel", "GPT_Rec ")
    assert reading.fields(good(path, "--variant", "gpt-rec-parallel"))["gpt-rec-parallel.steps"] == 4
    path = pt(gpt_state(None))
    refused(path, "--steps", options=["--variant", "gpt-rec-parallel"])
    assert reading.fields(good(path, "--variant", "gpt-rec-parallel", "--steps", "7"))["gpt-rec-parallel.steps"] == 7


def test_contradictions(refused, pt):
    refused(pt(gpt_training(gpt_state(), "GPT_Rec_parallel", 2)), "gpt-rec-parallel", "several blocks")
    refused(pt(gpt_training(gpt_state(None), "GPT", 2)), "gpt", "one block")
    refused(pt(gpt_training(gpt_state(), "GPT", 2)), "--variant gpt-rec-parallel", options=["--variant", "gpt-rec-parallel"])
    refused(pt(gpt_state()), "ff1", options=["--variant", "ff1"])
    refused(pt(checkpoints.training(checkpoints.nrgpt_state())), "--variant gpt", options=["--variant", "gpt"])
    refused(pt({**checkpoints.training(checkpoints.nrgpt_state()), "config": {"model_path": "models.GPT"}}), "one block")
    refused(pt({**gpt_training(gpt_state(), "GPT", 2), "config": {"model_path": "models.NRGPT_H_FF2W"}}), "attn.heads.0.H")


def test_depth_and_mask_options(good, refused, pt):
    refused(pt(gpt_training(gpt_state(), "GPT", 2)), "no recursion depth", options=["--steps", "4"])
    refused(pt(gpt_training(gpt_state(), "GPT", 2)), "--mask", options=["--mask", "causal"])
    path = pt(gpt_training(gpt_state(None), "GPT_Rec_parallel", 4))
    assert reading.fields(good(path, "--steps", "9"))["gpt-rec-parallel.steps"] == 9
    refused(path, "one depth", options=["--steps", "2x3"])


def test_a_mask_that_is_not_causal(refused, pt):
    state = gpt_state()
    state["blocks.1.sa.heads.1.tril"] = np.tri(5, 5, -1, dtype=np.float32)
    refused(pt(gpt_training(state, "GPT", 2)), "blocks.1.sa.heads.1.tril", "causal")


# -- Tensors and settings

WEIGHTS = [name for name in gpt_state() if not name.endswith((".tril", "pos_idx"))]


@pytest.mark.parametrize("name", WEIGHTS)
def test_missing_tensor(name, refused, pt):
    value = gpt_training(gpt_state(), "GPT", 2)
    del value["model"][name]
    message = refused(pt(value))
    assert "is missing" in message or "n_head" in message


@pytest.mark.parametrize("name", WEIGHTS)
def test_misshapen_tensor(name, refused, pt):
    for change in (lambda a: np.concatenate([a, a[:1]]), lambda a: a[None], lambda a: a[:0]):
        value = gpt_training(gpt_state(), "GPT", 2)
        value["model"][name] = change(value["model"][name])
        refused(pt(value))


@pytest.mark.parametrize("name", ["blocks.2.sa.proj.bias", "blocks.0.sa.heads.2.key.weight", "blocks.scale_ff", "blocks.0.proj.weight"])
def test_extra_tensor(name, refused, pt):
    state = gpt_state()
    state[name] = np.zeros((3, 7) if "key" in name else 7, np.float32)
    refused(pt(gpt_training(state, "GPT", 2, n_head=2)))


def test_a_block_is_missing_in_the_middle(refused, pt):
    state = {name: values for name, values in gpt_state(3).items() if not name.startswith("blocks.1.")}
    refused(pt(gpt_training(state, "GPT", 3)), "blocks.1.", "missing")
    refused(pt(state), "blocks.1.", "missing")


@pytest.mark.parametrize("key, value", [("vocab_size", 12), ("n_embed", 5), ("n_head", 1), ("n_head", 3), ("block_size", 6),
                                        ("ff_hid_factor", 3), ("n_layer", 1), ("n_layer", 3), ("n_layer", 0), ("window", 4)])
def test_settings_against_tensors(key, value, refused, pt):
    checkpoint = gpt_training(gpt_state(), "GPT", 2)
    checkpoint["model_args"][key] = value
    refused(pt(checkpoint), key if key != "n_layer" or value != 3 else "blocks.2.")


def test_number_that_is_not_finite(refused, pt):
    state = gpt_state()
    state["blocks.1.sa.heads.1.value.weight"][2, 3] = np.inf
    refused(pt(gpt_training(state, "GPT", 2)), "blocks.1.sa.heads.*.value.weight", "[5, 3]")


# -- Directories

@pytest.mark.parametrize("blocks, kind", [(2, "gpt"), (None, "gpt-rec-parallel")])
def test_directory(blocks, kind, good, refused, tmp_path):
    state = gpt_state(blocks)
    config = {"model_type": kind, "vocab_size": 11, "n_embed": 7, "n_layer": 2, "n_head": 2, "block_size": 5,
              "ff_hid_factor": 4, "norm_eps": 1e-6}
    path = good(checkpoints.write_directory(tmp_path / "in", state, config))
    same(path, state)
    assert reading.fields(path)[f"{kind}.norm_epsilon"] == float(np.float32(1e-6))
    refused(checkpoints.write_directory(tmp_path / "in", state, {**config, "beta": 1.0}), "beta")
    other = "gpt" if blocks is None else "gpt-rec-parallel"
    refused(checkpoints.write_directory(tmp_path / "in", state, {**config, "model_type": other}), other)
