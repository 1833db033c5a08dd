"""--type: matrices in the type asked for, everything else F32, and how far the numbers are from the originals."""

import gguf
import numpy as np
import pytest

import checkpoints
import reading
from conftest import GOLDEN

NAMES = {"nrgpt": reading.nrgpt_names, "cem": reading.cem_names}


def quantized(directory, kind, good):
    state, _ = reading.source_state(directory)
    names = NAMES[directory.name.split("-")[0]](state)
    out = good(directory, "--type", kind)
    return out, state, names, reading.tensors(out)


@pytest.mark.parametrize("name", ["nrgpt-ff2", "cem-perhead-diag-gelu", "cem-shared-r8-silu"])
@pytest.mark.parametrize("kind, number", [("f16", 1), ("bf16", 32), ("q8_0", 7), ("q4_0", 2)])
def test_which_tensors(name, kind, number, good):
    out, state, names, written = quantized(GOLDEN / name, kind, good)
    fields = reading.fields(out)
    assert fields["general.file_type"] == number
    assert fields.get("general.quantization_version") == (2 if kind[0] == "q" else None)
    for source, (to, matrix) in names.items():
        stored, values = written[to]
        assert stored == (kind.upper() if matrix else "F32")
        if not matrix:
            assert np.array_equal(values, state[source])


def test_f16(good):
    _, state, names, written = quantized(GOLDEN / "nrgpt-ff2", "f16", good)
    for source, (to, matrix) in names.items():
        if matrix:
            assert np.array_equal(written[to][1], state[source].astype(np.float16).astype(np.float32))


def test_bf16_rounds_to_nearest_even(good, tmp_path):
    state = checkpoints.nrgpt_state()
    exact = state["blocks.proj.weight"].view(np.uint32)
    #                 down        up          tie to even   tie to even   carries into the exponent   subnormal
    exact.flat[:6] = [0x3F807FFF, 0x3F808001, 0x3F808000, 0x3F818000, 0x3FFFFFFF, 0x00008001]
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state)), "--type", "bf16")
    written = reading.tensors(out)
    bits = written["blk.0.rate.weight"][1].view(np.uint32).flat[:6]
    assert [hex(b) for b in bits] == [hex(b) for b in
                                      [0x3F800000, 0x3F810000, 0x3F800000, 0x3F820000, 0x40000000, 0x00010000]]
    for source, (to, matrix) in reading.nrgpt_names(state).items():
        if matrix:  # no bf16 number is nearer: the distance is at most half the gap between two
            x, y = state[source].astype(np.float64), written[to][1].astype(np.float64)
            gap = np.exp2(np.maximum(np.floor(np.log2(np.abs(x))), -126) - 7)
            assert np.all(np.abs(x - y) <= gap / 2)


@pytest.mark.parametrize("name", ["nrgpt-ff2w", "cem-shared-r8-silu"])
def test_q8_0(name, good):
    """Each number is off by half a step at most: the largest of its block of 32 is 127 steps (the step an f16)."""
    _, state, names, written = quantized(GOLDEN / name, "q8_0", good)
    for source, (to, matrix) in names.items():
        if matrix:
            blocks, back = state[source].reshape(-1, 32), written[to][1].reshape(-1, 32)
            largest = np.abs(blocks).max(axis=1, keepdims=True)
            assert np.all(np.abs(blocks - back) <= largest * (0.5 / 127 + 2.0 ** -11) + 2.0 ** -24)
            assert np.any(blocks != back)


@pytest.mark.parametrize("name", ["nrgpt-ff2w", "cem-shared-r8-silu"])
def test_q4_0(name, good):
    """Each number is off by half a step, but for the end of the block's range that 16 steps of the largest leave out."""
    _, state, names, written = quantized(GOLDEN / name, "q4_0", good)
    for source, (to, matrix) in names.items():
        if matrix:
            blocks, back = state[source].reshape(-1, 32), written[to][1].reshape(-1, 32)
            largest = np.abs(blocks).max(axis=1, keepdims=True)
            assert np.all(np.abs(blocks - back) <= largest * (1 / 8 + 2.0 ** -11) + 2.0 ** -24)
            assert np.abs(blocks - back).mean() < largest.mean() / 24


def test_q8_0_pads_rows(good, tmp_path):
    """Width 6 and hidden width 40: rows of whole blocks, zeros past the true width, which stays in the metadata."""
    state = checkpoints.nrgpt_state(F=42)
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state, F_per_C=7)), "--type", "q8_0")
    fields = reading.fields(out)
    assert fields["nrgpt.embedding_length"] == 6 and fields["nrgpt.feed_forward_length"] == 42
    shapes = {t.name: t.shape.tolist() for t in gguf.GGUFReader(out).tensors}
    assert shapes["blk.0.ffn_1.weight"] == [32, 42] and shapes["blk.0.ffn_2.weight"] == [64, 6]
    assert shapes["blk.0.ffn_1.bias"] == [42]
    written = reading.tensors(out)
    for source, (to, matrix) in reading.nrgpt_names(state).items():
        if matrix:
            values, width = written[to][1], state[source].shape[-1]
            assert np.all(values[:, width:] == 0)
            assert np.allclose(values[:, :width], state[source], atol=np.abs(state[source]).max() * 0.006)


def test_rows_read_in_pieces(good, tmp_path, monkeypatch):
    """A tensor larger than one reading gives the same file."""
    from descent_convert import tensor
    state = checkpoints.nrgpt_state()
    state["blocks.proj.weight"] = np.asfortranarray(state["blocks.proj.weight"])
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state))
    for kind in ("f32", "q8_0"):
        whole = good(path, "--type", kind).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(tensor, "CHUNK", 13)
            assert good(path, "--type", kind).read_bytes() == whole


@pytest.mark.parametrize("value, kind, words", [
    (np.nan, "f32", ["blocks.proj.weight", "[2, 3]", "not finite"]),
    (-np.inf, "f16", ["blocks.proj.weight", "[2, 3]", "-inf"]),
    (1e5, "f16", ["blocks.proj.weight", "[2, 3]", "does not fit f16", "--type"]),
    (3.4e38, "bf16", ["does not fit bf16"]),
    (1e30, "q8_0", ["does not fit q8_0"]),
])
def test_numbers_that_do_not_fit(value, kind, words, refused, tmp_path):
    state = checkpoints.nrgpt_state()
    state["blocks.proj.weight"][2, 3] = value
    refused(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state)), *words, options=["--type", kind])


def test_float64_beyond_float32(refused, tmp_path):
    state = checkpoints.nrgpt_state()
    state["ln_f.bias"] = state["ln_f.bias"].astype(np.float64)
    state["ln_f.bias"][4] = 1e300
    refused(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state)), "ln_f.bias", "[4]")
