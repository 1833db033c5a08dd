"""descent quantize: what it writes, read with the public gguf package, whose decoding is the reference and whose encoding is
what ours has to be as good as; its rules, its refusals, and what it leaves behind when it fails."""
import hashlib
import json
import math
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from conftest import environment
from models import ALPHABET, CONTEXT, Nrgpt, characters, encode

TYPES = ["Q8_0", "Q6_K", "Q4_K", "Q4_0", "BF16", "F16", "F32"]  # those on the left keep less, but for the last two
BLOCK = {"Q8_0": 32, "Q4_0": 32, "Q4_K": 256, "Q6_K": 256, "BF16": 1, "F16": 1, "F32": 1}
SHIPPED = ["nrgpt-shakespeare", "nrgpt-listops", "cem-kjv"]
FILE_TYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K": 14, "Q6_K": 18, "BF16": 32}


def quantize(descent, source, out, *arguments):
    result = descent("quantize", source, out, *arguments, "--json")
    assert result.code == 0 and result.err == "", result.err
    return json.loads(result.text)


def tensors_of(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def numbers(tensor):
    """A tensor's numbers as the gguf package decodes them, [rows][padded columns] or [n], in f32."""
    kind = tensor.tensor_type
    if kind == gguf.GGMLQuantizationType.BF16:
        wide = np.ascontiguousarray(tensor.data).view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32)
    return np.asarray(gguf.quants.dequantize(tensor.data, kind), np.float32)


def squared(a, b):
    return float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).sum())


def pieces(path):
    """Metadata by key as the bytes the file has."""
    return {key: b"".join(np.asarray(part).tobytes() for part in field.parts)
            for key, field in gguf.GGUFReader(path).fields.items() if not key.startswith("GGUF.")}


def model_of(path, **how):
    return Nrgpt(len(ALPHABET), **how).write(path, path.stem, characters)


@pytest.fixture
def only(tmp_path):
    """only(values): a model of which blk.0.ffn_1.weight is `values` [rows][cols]; its path."""
    def make(values, **how):
        values = np.asarray(values, np.float32)
        model = Nrgpt(len(ALPHABET), width=values.shape[1], hidden=values.shape[0], heads=1, **how)
        model.w, model.b = values, np.zeros(values.shape[0])
        return model.write(tmp_path / "only.gguf", "only", characters).path

    return make


def encoded(descent, source, tmp_path, kind, *arguments):
    """The tensor `only` is about, after quantization to `kind` whatever the rules, each block of a row by itself."""
    out = tmp_path / f"encoded-{kind}.gguf"
    quantize(descent, source, out, "--type", "F32", "--tensor", f"blk.0.ffn_1.weight={kind}", "--scales", "row", "--force", *arguments)
    return tensors_of(out)["blk.0.ffn_1.weight"]


# ---- Files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_written(descent, shipped, tmp_path, name, kind):
    """The gguf package opens it: the same metadata but for what the types decide, the same tensors in the same order, vectors
    byte by byte, and matrices as far from the original as the report says."""
    out = tmp_path / "out.gguf"
    report = quantize(descent, shipped(name), out, "--type", kind)
    before, after = pieces(shipped(name)), pieces(out)
    changed = {"general.file_type", "general.quantization_version", "descent.scales"}
    assert {k: v for k, v in after.items() if k not in changed} == {k: v for k, v in before.items() if k not in changed}
    assert gguf.GGUFReader(out).fields["general.file_type"].contents() == FILE_TYPE[kind]
    assert ("general.quantization_version" in after) == (BLOCK[kind] > 1)
    assert ("descent.scales" in after) == any(t["tiled"] for t in report["tensors"])
    old, new = tensors_of(shipped(name)), tensors_of(out)
    assert list(old) == list(new) == [t["name"] for t in report["tensors"]]
    assert report["bytes"] == out.stat().st_size and report["bytes_before"] == shipped(name).stat().st_size
    for told in report["tensors"]:
        was, now = old[told["name"]], new[told["name"]]
        assert (told["from"], told["to"]) == (was.tensor_type.name, now.tensor_type.name)
        assert told["shape"] == [int(d) for d in was.shape] and told["bytes"] == int(now.n_bytes)
        if not told["changed"]:
            assert now.data.tobytes() == was.data.tobytes()
            continue
        assert len(was.shape) == 2 and "precond" not in told["name"] and "norm" not in told["name"]
        x, y = numbers(was), numbers(now)
        padding = y[:, x.shape[1]:]  # zero, or in Q4_K, whose blocks have offsets, less than a step from it
        assert not padding.any() or told["to"] == "Q4_K" and abs(padding).max() < abs(x).max() / 8
        error = math.sqrt(squared(x, y[:, :x.shape[1]]) / x.size)
        assert told["rms_error"] == pytest.approx(error, rel=1e-6)
        assert told["relative_error"] == pytest.approx(error / math.sqrt(squared(x, 0 * x) / x.size), rel=1e-6)


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K", "Q4_K", "Q4_0", "BF16", "F16"])
def test_our_decoding_is_the_gguf_package_s(descent, shipped, tmp_path, kind):
    """Written as F32 again, every number is bit for bit what the package reads from the quantized file."""
    small, wide = tmp_path / "small.gguf", tmp_path / "wide.gguf"
    for name in SHIPPED:
        quantize(descent, shipped(name), small, "--type", kind, "--force")
        quantize(descent, small, wide, "--type", "F32", "--allow-requantize", "--force")
        old, new = tensors_of(small), tensors_of(wide)
        for key, tensor in new.items():
            assert tensor.tensor_type.name == "F32"
            x = numbers(old[key])
            assert np.array_equal(x[..., :tensor.data.shape[-1]].view(np.uint32), tensor.data.view(np.uint32)), key


def test_a_copy_is_a_copy(descent, shipped, tmp_path):
    """The type it has: every tensor's bytes, and every key's; and quantizing twice to one type changes nothing."""
    out, again = tmp_path / "out.gguf", tmp_path / "again.gguf"
    quantize(descent, shipped("cem-kjv"), out, "--type", "F32")
    assert pieces(out) == pieces(shipped("cem-kjv"))
    for kind in ("Q8_0", "Q4_0"):
        quantize(descent, shipped("cem-kjv"), out, "--type", kind, "--force")
        quantize(descent, out, again, "--type", kind, "--force")
        assert out.read_bytes() == again.read_bytes()


def test_alignment_and_odd_metadata_are_kept(descent, tmp_path):
    def odd(writer):
        characters(writer)
        writer.add_custom_alignment(256)
        writer.add_array("own.strings", ["", "a", "ü\0b"])
        writer.add_array("own.numbers", [1.5, -2.5])
        writer.add_array("own.nested", [[1, 2], [3]])
        writer.add_uint64("own.large", 2 ** 63 + 1)

    source = Nrgpt(len(ALPHABET), width=64).write(tmp_path / "odd.gguf", "odd", odd).path
    out = tmp_path / "out.gguf"
    quantize(descent, source, out, "--type", "Q8_0")
    before, after = pieces(source), pieces(out)
    decided = {"general.file_type", "general.quantization_version", "descent.scales"}
    assert {k: v for k, v in after.items() if k not in decided} == {k: v for k, v in before.items() if k not in decided}
    assert [k for k in after if k not in decided] == [k for k in before if k not in decided]
    assert all(t.data_offset % 256 == 0 for t in gguf.GGUFReader(out).tensors)


def test_threads_change_nothing(descent, shipped, tmp_path):
    digests = set()
    for threads in ("1", "2", "5"):
        out = tmp_path / f"{threads}.gguf"
        quantize(descent, shipped("nrgpt-shakespeare"), out, "--type", "Q4_K", "--threads", threads)
        digests.add(hashlib.sha256(out.read_bytes()).hexdigest())
    assert len(digests) == 1


# ---- How good the encodings are ------------------------------------------------------------------------------------


def kinds_of_numbers():
    random = np.random.default_rng(5)
    return {"normal": random.standard_normal((64, 512)) / 16,
            "heavy": random.standard_t(3, (64, 512)),
            "uniform": random.uniform(-1, 1, (32, 512)),
            "one side": random.exponential(1, (32, 512)),
            "far from zero": 5 + random.standard_normal((32, 512)) / 10,
            "rows of all sizes": random.standard_normal((64, 512)) * 10.0 ** random.uniform(-7, 3, (64, 1))}


def simple_blocks(x, kind):
    """Each part of a block rounded alone, its scale (and offset) exact, from its extremes: what Q4_K and Q6_K have to beat."""
    part = x.reshape(-1, 32 if kind == "Q4_K" else 16).astype(np.float64)
    if kind == "Q4_K":
        low = np.minimum(part.min(1, keepdims=True), 0)
        step = np.maximum(part.max(1, keepdims=True) - low, 1e-30) / 15
        return (np.round((part - low) / step) * step + low).reshape(x.shape)
    step = np.maximum(abs(part).max(1, keepdims=True), 1e-30) / 31
    return (np.round(part / step) * step).reshape(x.shape)


@pytest.mark.parametrize("name", kinds_of_numbers())
def test_no_worse_than_others(descent, only, tmp_path, name):
    """Q8_0 and Q4_0: in every block no more squared error than the gguf package's own encoding. Q6_K and Q4_K, which it does
    not write: in all, than rounding each part by its extremes with exact scales."""
    x = kinds_of_numbers()[name].astype(np.float32)
    source = only(x)
    for kind in ("Q8_0", "Q4_0"):
        theirs = gguf.quants.dequantize(gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind]),
                                        gguf.GGMLQuantizationType[kind])
        ours = numbers(encoded(descent, source, tmp_path, kind))

        def by_block(y):
            return ((x.astype(np.float64) - y.astype(np.float64)) ** 2).reshape(-1, 32).sum(1)

        slack = 1 + 1e-5  # sums of squares in f32 decide between candidates
        assert (by_block(ours) <= by_block(theirs) * slack).all()
        assert by_block(ours).sum() < 0.97 * by_block(theirs).sum()
    for kind in ("Q6_K", "Q4_K"):
        ours = numbers(encoded(descent, source, tmp_path, kind))
        loss = ((x.astype(np.float64) - ours) ** 2).sum(1) / (x.astype(np.float64) ** 2).sum(1)
        simple = ((x.astype(np.float64) - simple_blocks(x, kind)) ** 2).sum(1) / (x.astype(np.float64) ** 2).sum(1)
        fair = abs(x).max(1) > 1e-4  # below, half precision has no fine scales left
        assert loss[fair].mean() < simple[fair].mean()


@pytest.mark.parametrize("name", SHIPPED)
def test_no_worse_than_others_on_trained_models(descent, shipped, tmp_path, name):
    for kind in ("Q8_0", "Q4_0"):
        out = tmp_path / "out.gguf"
        quantize(descent, shipped(name), out, "--type", kind, "--scales", "row", "--force")
        compared = 0
        for key, tensor in tensors_of(out).items():
            if tensor.tensor_type.name != kind:
                continue
            x = numbers(tensors_of(shipped(name))[key])
            padded = np.zeros((x.shape[0], int(tensor.shape[0])), np.float32)
            padded[:, :x.shape[1]] = x
            theirs = gguf.quants.dequantize(gguf.quants.quantize(padded, tensor.tensor_type), tensor.tensor_type)
            assert squared(padded, numbers(tensor)) < 0.97 * squared(padded, theirs), key
            compared += 1
        assert compared > 3


# ---- Extremes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K", "Q4_K", "Q4_0"])
def test_extremes(descent, only, tmp_path, kind):
    random = np.random.default_rng(8)
    x = np.zeros((40, 256), np.float32)
    x[1] = 1e-40  # denormal in f32
    x[2] = 1e-30 * random.standard_normal(256)
    x[3] = 1e-6 * random.standard_normal(256)  # steps below half precision's smallest
    x[4] = 0.01 * random.standard_normal(256)
    x[4, 77] = 1000  # one outlier
    x[5] = 0.25
    x[6] = -0.25
    x[7] = 3e4 * random.standard_normal(256).clip(-2, 2)
    x[8, 255] = -1e-3
    x[9] = np.where(np.arange(256) % 2, 1.0, -1.0)
    x[10] = np.finfo(np.float32).tiny
    y = numbers(encoded(descent, only(x), tmp_path, kind))
    assert np.isfinite(y).all()
    assert not y[0].any()
    assert np.array_equal(y[11:], x[11:])
    size = np.sqrt((x.astype(np.float64) ** 2).mean(1))
    error = np.sqrt(((x.astype(np.float64) - y) ** 2).mean(1))
    assert (error <= size * 1.0001).all()  # nothing is made worse than zeros would be
    good = {"Q8_0": 0.005, "Q6_K": 0.02, "Q4_K": 0.08, "Q4_0": 0.1}[kind]
    for row in (5, 6, 7, 9):
        assert error[row] <= good * size[row], row
    assert abs(y[4, 77] - 1000) < 10 and abs(y[8, 255] + 1e-3) < 1e-4


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K", "Q4_K", "Q4_0", "F16", "BF16"])
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_numbers_that_are_none_are_named(descent, only, tmp_path, kind, bad):
    x = np.ones((50, 64), np.float32)
    x[45, 33] = float(bad)
    out = tmp_path / "out.gguf"
    result = descent("quantize", only(x), out, "--type", kind)
    assert result.code == 1 and result.out == b"" and list(tmp_path.glob("out*")) == []
    for word in ("blk.0.ffn_1.weight", "row 45", "column 33", bad):
        assert word in result.err


@pytest.mark.parametrize("kind, value", [("F16", 65520), ("F16", -7e4), ("Q8_0", 1e8), ("Q4_0", 1e7), ("Q4_K", 1e8), ("Q6_K", 1e9),
                                         ("BF16", 3.4e38)])
def test_numbers_that_a_type_has_no_room_for(descent, only, tmp_path, kind, value):
    x = np.ones((4, 256), np.float32)
    x[2, 200] = value
    source = only(x)
    result = descent("quantize", source, tmp_path / "out.gguf", "--type", kind)
    assert result.code == 1 and not (tmp_path / "out.gguf").exists()
    for word in ("blk.0.ffn_1.weight", "row 2", kind):
        assert word in result.err
    quantize(descent, source, tmp_path / "out.gguf", "--type", kind, "--tensor", "*ffn_1.weight=F32")


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q6_K", "Q4_K", "Q4_0"])
@pytest.mark.parametrize("size", [1e10, 1e18, 1e25, 1e38])
def test_blocks_that_a_type_has_no_room_for(descent, only, tmp_path, kind, size):
    """All 256 numbers, whose squares are beyond f32 as well: nothing is written as zeros."""
    x = np.ones((4, 512), np.float32)
    x[3, 256:] = size * np.random.default_rng(3).uniform(-2, 2, 256)
    result = descent("quantize", only(x), tmp_path / "out.gguf", "--type", kind)
    assert result.code == 1 and not (tmp_path / "out.gguf").exists()
    assert "blk.0.ffn_1.weight" in result.err and "row 3" in result.err and kind in result.err


# ---- Rules ---------------------------------------------------------------------------------------------------------


def types_after(descent, source, tmp_path, *arguments):
    out = tmp_path / "rules.gguf"
    report = quantize(descent, source, out, "--force", *arguments)
    return {t["name"]: t["to"] for t in report["tensors"]}, report


def test_rules_of_nrgpt(descent, shipped, tmp_path):
    def types(*arguments):
        return types_after(descent, shipped("nrgpt-shakespeare"), tmp_path, *arguments)[0]

    ends = ["token_embd.weight", "position_embd.weight", "output.weight"]
    assert all(types("--type", "Q8_0")[name] == "Q8_0" for name in [*ends, "blk.0.rate.weight", "blk.0.ffn_1.weight"])
    for kind in ("Q4_0", "Q4_K", "Q6_K"):
        found = types("--type", kind)
        assert all(found[name] == "Q6_K" for name in ends)
        assert found["blk.0.rate.weight"] == "Q8_0"
        assert found["blk.0.ffn_1.weight"] == found["blk.0.attn_h.3.weight"] == kind
        vectors = {name for name, tensor in tensors_of(shipped("nrgpt-shakespeare")).items() if len(tensor.shape) == 1}
        assert {name for name, to in found.items() if to == "F32"} == vectors
    found = types("--type", "Q4_K", "--embedding-type", "f16", "--head-type", "q8_0", "--tensor", "blk.0.rate.weight=Q4_K",
                  "--tensor", "blk.0.attn_h.*=Q8_0", "--tensor", "blk.0.attn_h.?.weight=Q6_K")
    assert [found[name] for name in ends] == ["F16", "F16", "Q8_0"]
    assert found["blk.0.rate.weight"] == "Q4_K" and found["blk.0.attn_h.0.weight"] == "Q6_K"


def test_rules_of_cem(descent, shipped, tmp_path):
    """The preconditioners' factors and what is no matrix stay; the head is the embedding."""
    found, _ = types_after(descent, shipped("cem-kjv"), tmp_path, "--type", "Q4_K")
    assert found["token_embd.weight"] == "Q6_K" and found["blk.2.attn_q.weight"] == found["blk.1.mlp_gate.weight"] == "Q4_K"
    assert {to for name, to in found.items() if "precond" in name or "norm" in name or "eta" in name or "diag" in name} == {"F32"}
    result = descent("quantize", shipped("cem-kjv"), tmp_path / "o.gguf", "--type", "Q4_K", "--head-type", "Q8_0")
    assert result.code == 1 and "--embedding-type" in result.err


def test_rows_too_narrow_for_a_type(descent, shipped, tmp_path):
    """88 columns: 256 of them as Q4_K take more than 96 as Q8_0. The report says so; who names a tensor is obeyed."""
    found, report = types_after(descent, shipped("nrgpt-listops"), tmp_path, "--type", "Q4_K")
    assert found["blk.0.attn_h.0.weight"] == "Q8_0"
    (note,) = {t["note"] for t in report["tensors"] if t["name"] == "blk.0.attn_h.0.weight"}
    assert "88" in note and "256" in note and "Q4_K" in note
    found, report = types_after(descent, shipped("nrgpt-listops"), tmp_path, "--type", "Q4_K", "--tensor", "*attn_h*=Q4_K")
    assert found["blk.0.attn_h.0.weight"] == "Q4_K"
    assert all(t["note"] is None for t in report["tensors"] if "attn_h" in t["name"])
    assert int(tensors_of(tmp_path / "rules.gguf")["blk.0.attn_h.0.weight"].shape[0]) == 256


def test_the_paper_s_width(descent, tmp_path):
    """C = 1020, as the paper's 128M model has it: Q8_0 under 0.6 of F16."""
    model = Nrgpt(len(ALPHABET), width=1020, hidden=64, heads=2)
    source = model.write(tmp_path / "wide.gguf", "wide", characters).path
    half = quantize(descent, source, tmp_path / "f16.gguf", "--type", "F16")["bytes"]
    assert quantize(descent, source, tmp_path / "q8.gguf", "--type", "Q8_0")["bytes"] < 0.6 * half
    assert {int(t.shape[0]) for t in gguf.GGUFReader(tmp_path / "q8.gguf").tensors if len(t.shape) == 2} == {1024}


def test_padded_floats_are_the_unpadded_s(descent, tmp_path):
    """Rows of 60 numbers as 64 or 256, whatever stands behind them: the same loss to the last bit."""
    model = Nrgpt(len(ALPHABET), width=60, hidden=52)
    text = tmp_path / "text"
    text.write_text("".join(np.random.default_rng(1).choice(list(ALPHABET), 3 * CONTEXT)))

    def loss(path):
        result = descent("eval", path, "--file", text, "-T", "1,3,7", "--json")
        assert result.code == 0, result.err
        return result.text

    plain = loss(model.write(tmp_path / "plain.gguf", "m", characters).path)
    for width, behind in ((64, 0.0), (256, 0.0), (64, 1e30)):
        def padded(x, to=width, behind=behind):
            return np.concatenate([x, np.full((x.shape[0], -(-x.shape[1] // to) * to - x.shape[1]), behind)], axis=1)

        other = Nrgpt(len(ALPHABET), width=60, hidden=52)
        other.tokens, other.positions, other.w = padded(model.tokens), padded(model.positions), padded(model.w)
        other.h, other.rate, other.head = [padded(h) for h in model.h], padded(model.rate), padded(model.head)
        assert loss(other.write(tmp_path / f"{width}.gguf", "m", characters).path) == plain
    other.tokens = np.concatenate([model.tokens, np.zeros((len(ALPHABET), 3))], axis=1)
    result = descent("info", other.write(tmp_path / "63.gguf", "m", characters).path)
    assert result.code == 1 and "token_embd.weight" in result.err and "[63" in result.err


@pytest.mark.parametrize("kind, family", [("Q8_0", "nrgpt-shakespeare"), ("Q4_0", "nrgpt-shakespeare"), ("Q8_0", "cem-kjv"),
                                          ("Q8_0", "nrgpt-listops")])
def test_tiles(descent, shipped, tmp_path, kind, family):
    """Matrices multiplied both ways have one scale for 32 x 32 weights, the others and the rest of the file are as without."""
    tiled, plain = tmp_path / "tiled.gguf", tmp_path / "plain.gguf"
    report = quantize(descent, shipped(family), tiled, "--type", kind, "--scales", "tile")
    quantize(descent, shipped(family), plain, "--type", kind, "--scales", "row")
    assert gguf.GGUFReader(tiled).fields["descent.scales"].contents() == "tile"
    assert "descent.scales" not in gguf.GGUFReader(plain).fields
    both_ways = ("attn_h", "ffn_1", "ffn_2") if "nrgpt" in family else ("attn_q", "mlp_up")
    rows = tensors_of(plain)
    for told, (name, tensor) in zip(report["tensors"], tensors_of(tiled).items(), strict=True):
        tile = any(part in name for part in both_ways) and len(tensor.shape) == 2
        assert told["tiled"] == tile
        if not tile:
            assert tensor.data.tobytes() == rows[name].data.tobytes()
            continue
        assert tensor.tensor_type.name == kind
        blocks = tensor.data.reshape(tensor.data.shape[0], -1, 34 if kind == "Q8_0" else 18)
        scales = np.ascontiguousarray(blocks[..., :2]).view(np.uint16)[..., 0]
        for first in range(0, len(scales), 32):
            assert (scales[first:first + 32] == scales[first]).all()
        x = numbers(tensors_of(shipped(family))[name])
        assert squared(x, numbers(rows[name])[:, :x.shape[1]]) < squared(x, numbers(tensor)[:, :x.shape[1]])
        assert squared(x, numbers(tensor)[:, :x.shape[1]]) < 4 * squared(x, numbers(rows[name])[:, :x.shape[1]])


def tiled_by_name(report):
    return {t["name"] for t in report["tensors"] if t["tiled"]}


def test_scales_by_default(descent, shipped, tmp_path):
    """Equal over tiles in Q8_0, whatever --type made a matrix that; by row in Q4_0, and in Q8_0 for those who want them."""
    out, asked = tmp_path / "out.gguf", tmp_path / "asked.gguf"
    for name, kind, scales in (("nrgpt-shakespeare", "Q8_0", "tile"), ("cem-kjv", "Q8_0", "tile"), ("nrgpt-shakespeare", "Q4_0", "row")):
        report = quantize(descent, shipped(name), out, "--type", kind, "--force")
        quantize(descent, shipped(name), asked, "--type", kind, "--scales", scales, "--force")
        assert out.read_bytes() == asked.read_bytes() and bool(tiled_by_name(report)) == (scales == "tile")
    report = quantize(descent, shipped("nrgpt-shakespeare"), out, "--type", "Q4_K", "--force")
    assert not tiled_by_name(report) and "descent.scales" not in gguf.GGUFReader(out).fields
    report = quantize(descent, shipped("nrgpt-listops"), out, "--type", "Q4_K", "--force")  # too narrow for it: Q8_0
    assert "blk.0.attn_h.0.weight" in tiled_by_name(report)


def test_what_is_q8_0_is_copied(descent, shipped, tmp_path):
    """With scales by row as well: they become equal where that is asked for only."""
    rows, again, tiles = tmp_path / "rows.gguf", tmp_path / "again.gguf", tmp_path / "tiles.gguf"
    quantize(descent, shipped("nrgpt-shakespeare"), rows, "--type", "Q8_0", "--scales", "row")
    quantize(descent, rows, again, "--type", "Q8_0")
    assert again.read_bytes() == rows.read_bytes()
    assert tiled_by_name(quantize(descent, rows, tiles, "--type", "Q8_0", "--scales", "tile"))
    quantize(descent, tiles, again, "--type", "Q8_0", "--force")
    assert again.read_bytes() == tiles.read_bytes()


# ---- Importance ----------------------------------------------------------------------------------------------------


def met(model, ids, steps):
    """Mean squares that ffn_1 (FF1: z = W g + b, gradient -2 W^T(gelu gelu')) meets: of g by column, of u by row; and of what
    the head meets."""
    from models import gelu, gelu_slope
    columns, rows, head = np.zeros(model.width), np.zeros(model.hidden), np.zeros(model.width)
    for start in range(0, len(ids), CONTEXT):
        part = ids[start:start + CONTEXT]
        for t in range(steps):
            x, _ = model.descend(part, t)
            g = model._normal(x) + model.norm_bias
            z = g @ model.w.T + model.b
            columns += (g ** 2).sum(0)
            rows += ((gelu(z) * gelu_slope(z)) ** 2).sum(0)
        x, _ = model.descend(part, steps)
        head += ((model._normal(x) * model.norm_f + model.norm_f_bias) ** 2).sum(0)
    return columns / columns.mean(), rows / rows.mean(), head / head.mean()


@pytest.mark.parametrize("kind, scales", [("Q4_0", "row"), ("Q4_0", "tile"), ("Q8_0", "tile"), ("Q6_K", "row"), ("Q4_K", "row")])
def test_importance_weighs_by_what_a_matrix_meets(descent, tmp_path, kind, scales):
    """What a text makes large loses less: measured with the mean squares that float64 mathematics gives for that text."""
    model = Nrgpt(len(ALPHABET), width=256, hidden=96, seed=4)
    model.norm_bias = (5 * np.random.default_rng(3).standard_normal(256) ** 3).astype(np.float32).astype(np.float64)
    model.b = (3 * np.random.default_rng(2).standard_normal(96)).astype(np.float32).astype(np.float64)
    source = model.write(tmp_path / "m.gguf", "m", characters).path
    text = tmp_path / "text"
    text.write_text("".join(np.random.default_rng(6).choice(list(ALPHABET), 2 * CONTEXT + 5)))
    columns, rows, head = met(model, encode(text.read_text()), model.steps)
    asked = ["--type", kind, "--head-type", kind, "--scales", scales]
    quantize(descent, source, tmp_path / "plain.gguf", *asked)
    quantize(descent, source, tmp_path / "weighed.gguf", *asked, "--importance", text)

    def loss(path, name, x, weights):
        y = numbers(tensors_of(tmp_path / path)[name])
        return float(((x - y) ** 2 * weights).sum())

    for name, x, weights in (("blk.0.ffn_1.weight", model.w, np.outer(rows, columns)),
                             ("output.weight", model.head, head[None, :])):
        plain, weighed = loss("plain.gguf", name, x, weights), loss("weighed.gguf", name, x, weights)
        assert weighed < 0.95 * plain and loss("weighed.gguf", name, x, 1) > loss("plain.gguf", name, x, 1)


def test_importance_of_texts_that_say_nothing(descent, shipped, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    for file, word in (("empty", "no token"), ("missing", "No such file")):
        result = descent("quantize", shipped("nrgpt-shakespeare"), tmp_path / "o.gguf", "--type", "Q8_0", "--importance",
                         tmp_path / file)
        assert result.code == 1 and word in result.err and not (tmp_path / "o.gguf").exists()


# ---- Refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Q6_K", "Q4_K", "Q4_0"])
def test_what_has_lost_is_not_made_to_lose_again(descent, shipped, tmp_path, kind):
    small, out = tmp_path / "small.gguf", tmp_path / "out.gguf"
    quantize(descent, shipped("nrgpt-shakespeare"), small, "--type", kind)
    result = descent("quantize", small, out, "--type", "Q8_0")
    assert result.code == 1 and "Q6_K already" in result.err and "--allow-requantize" in result.err and not out.exists()
    quantize(descent, small, out, "--type", "Q8_0", "--allow-requantize")
    assert {t.tensor_type.name for t in gguf.GGUFReader(out).tensors} == {"Q8_0", "F32"}


def test_q8_0_may_be_quantized_further(descent, shipped, tmp_path):
    quantize(descent, shipped("nrgpt-shakespeare"), tmp_path / "q8.gguf", "--type", "Q8_0")
    quantize(descent, tmp_path / "q8.gguf", tmp_path / "q4.gguf", "--type", "Q4_K")
    quantize(descent, shipped("nrgpt-shakespeare"), tmp_path / "once.gguf", "--type", "Q4_K")
    x = numbers(tensors_of(shipped("nrgpt-shakespeare"))["blk.0.ffn_1.weight"])
    twice, once = (squared(x, numbers(tensors_of(tmp_path / f"{n}.gguf")["blk.0.ffn_1.weight"])) for n in ("q4", "once"))
    assert once < twice < 1.05 * once


def test_files_that_are_in_the_way(descent, shipped, tmp_path):
    source = tmp_path / "in.gguf"
    source.write_bytes(shipped("nrgpt-listops").read_bytes())
    digest = hashlib.sha256(source.read_bytes()).digest()
    (tmp_path / "link.gguf").symlink_to(source)
    os.link(source, tmp_path / "hard.gguf")
    kept = tmp_path / "kept.gguf"
    kept.write_text("mine")
    (tmp_path / "folder").mkdir()
    for out, word, force in ((source, "one file", True), (tmp_path / "link.gguf", "one file", True),
                             (tmp_path / "hard.gguf", "one file", True), (kept, "exists already", False),
                             (tmp_path / "folder", "folder", True), (tmp_path / "no" / "where.gguf", "No such file", True),
                             (Path("/dev/full"), "no ordinary file", True)):
        result = descent("quantize", source, out, "--type", "Q8_0", *(["--force"] if force else []))
        assert result.code == 1 and word in result.err and result.err.count("\n") == 1 and result.out == b""
    assert kept.read_text() == "mine" and hashlib.sha256(source.read_bytes()).digest() == digest
    quantize(descent, source, kept, "--type", "Q8_0", "--force")
    assert kept.read_bytes()[:4] == b"GGUF" and list(tmp_path.glob("*.part")) == []


def test_a_link_is_the_file_it_leads_to(descent, shipped, tmp_path):
    (tmp_path / "there").mkdir()
    real, link, dangling = tmp_path / "there" / "real.gguf", tmp_path / "link.gguf", tmp_path / "dangling.gguf"
    real.write_text("old")
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "nowhere")
    quantize(descent, shipped("nrgpt-listops"), link, "--type", "Q8_0", "--force")
    assert link.is_symlink() and real.read_bytes()[:4] == b"GGUF" and list(real.parent.iterdir()) == [real]
    result = descent("quantize", shipped("nrgpt-listops"), dangling, "--type", "Q8_0", "--force")
    assert result.code == 1 and "symbolic link" in result.err and dangling.is_symlink() and not dangling.exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_comes_meanwhile(binary, shipped, tmp_path, force):
    """OUT is made by somebody else while the file is being written: without --force it is theirs. Where the file was written
    before this looked, it is written again."""
    out = tmp_path / "out.gguf"
    for _ in range(10):
        process = subprocess.Popen([binary, "quantize", shipped("cem-kjv"), out, "--type", "Q4_K", "--threads", "1",
                                    *(["--force"] if force else [])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=environment())
        while not list(tmp_path.glob("*.part")) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        if process.returncode is None:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if not out.exists():
            break
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=300)
        out.unlink()
    out.write_text("theirs")
    process.send_signal(signal.SIGCONT)
    error = process.communicate(timeout=300)[1].decode()
    assert list(tmp_path.iterdir()) == [out]
    if force:
        assert process.returncode == 0 and out.read_bytes()[:4] == b"GGUF"
    else:
        assert process.returncode == 1 and "out.gguf" in error and "exists" in error and out.read_text() == "theirs"


def test_a_full_disk_leaves_nothing(binary, shipped, tmp_path):
    """A file may have 100,000 bytes here; the system's word for it is in the message, and no part of the file stays."""
    for replaced in (False, True):
        out = tmp_path / "out.gguf"
        if replaced:
            out.write_text("mine")
        done = subprocess.run([binary, "quantize", shipped("nrgpt-shakespeare"), out, "--type", "Q8_0", "--force"],
                              capture_output=True, env=environment(), restore_signals=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
        assert done.returncode == 1 and b"File too large" in done.stderr and b"out.gguf" in done.stderr
        assert [p.name for p in tmp_path.iterdir()] == (["out.gguf"] if replaced else [])
        assert not replaced or out.read_text() == "mine"


def test_damaged_input(descent, shipped, tmp_path):
    whole = shipped("nrgpt-listops").read_bytes()
    for cut in (0, 3, 100, 3000, len(whole) - 40):
        damaged = tmp_path / "damaged.gguf"
        damaged.write_bytes(whole[:cut])
        result = descent("quantize", damaged, tmp_path / "out.gguf", "--type", "Q8_0")
        assert result.code == 1 and "damaged.gguf" in result.err and not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("arguments, word", [
    ([], "--type"), (["--type", "Q5_K"], "Q5_K"), (["--type", "Q8_0", "--tensor", "x"], "PATTERN=TYPE"),
    (["--type", "Q8_0", "--tensor", "=F16"], "PATTERN=TYPE"), (["--type", "Q8_0", "--tensor", "*=Q9"], "Q9"),
    (["--type", "Q8_0", "--embedding-type", "no"], "--embedding-type"), (["--type", "Q8_0", "--scales", "column"], "column")])
def test_mistakes(descent, shipped, tmp_path, arguments, word):
    result = descent("quantize", shipped("nrgpt-listops"), tmp_path / "out.gguf", *arguments)
    assert result.code == 2 and word in result.err and not (tmp_path / "out.gguf").exists()


def test_patterns_that_fit_nothing(descent, shipped, tmp_path):
    for pattern in ("blk.7.*", "blk.0.norm.weight"):  # none, and no matrix
        result = descent("quantize", shipped("nrgpt-listops"), tmp_path / "o.gguf", "--type", "Q8_0", "--tensor", f"{pattern}=F16")
        assert result.code == 1 and pattern in result.err


def test_table(descent, shipped, tmp_path):
    """The text says what the JSON says, a line a tensor."""
    report = quantize(descent, shipped("nrgpt-listops"), tmp_path / "a.gguf", "--type", "Q4_K")
    text = descent("quantize", shipped("nrgpt-listops"), tmp_path / "b.gguf", "--type", "Q4_K").text
    lines = {line.split()[0]: line for line in text.splitlines()}
    for told in report["tensors"]:
        line = lines[told["name"]]
        for word in (" x ".join(map(str, told["shape"])), told["from"], told["to"], str(told["bytes"]), told["note"] or ""):
            assert word in line
    assert text.splitlines()[-1].split()[0] == str(report["bytes"])


def test_on_a_terminal(terminal, shipped, data, tmp_path):
    """A bar while it works; Ctrl-C ends it and nothing stays."""
    screen = terminal("quantize", shipped("cem-kjv"), tmp_path / "out.gguf", "--type", "Q4_K", "--threads", "1")
    screen.expect(b"quantize")
    assert screen.finish() == 0 and b"token_embd.weight" in screen.seen
    (tmp_path / "out.gguf").unlink()
    screen = terminal("quantize", shipped("nrgpt-shakespeare"), tmp_path / "out.gguf", "--type", "Q4_K", "--importance",
                      data / "nrgpt-shakespeare.val.txt")
    screen.expect(b"importance")
    screen.interrupt()
    assert screen.finish() == 130 and list(tmp_path.iterdir()) == []
