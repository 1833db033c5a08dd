"""Every layout converts, and what is in the GGUF file is what was in the checkpoint: names, shapes, bits, settings."""

import struct
import zipfile

import gguf
import numpy as np
import pytest

import checkpoints
import reading
import torch_writer
from conftest import GOLDEN

MODELS = sorted(p for p in GOLDEN.iterdir() if p.name.startswith(("nrgpt-", "cem-")))


def check_tensors(out, state, names):
    written = reading.tensors(out)
    assert set(written) == {to for to, _ in names.values()}
    for name, (to, _) in names.items():
        kind, values = written[to]
        assert kind == "F32"
        assert np.array_equal(values, np.asarray(state[name], np.float32)), name


@pytest.mark.parametrize("directory", MODELS, ids=lambda p: p.name)
def test_golden(directory, good):
    out = good(directory, *(["--steps", "5"] if directory.name == "nrgpt-listops-bare" else []))
    state, settings = reading.source_state(directory)
    family = directory.name.split("-")[0]
    check_tensors(out, state, {"nrgpt": reading.nrgpt_names, "cem": reading.cem_names}[family](state))
    fields = reading.fields(out)
    assert fields["general.architecture"] == family
    assert fields["general.name"] == "out"
    assert fields["general.file_type"] == 0
    assert fields["descent.format_version"] == 1
    assert "general.quantization_version" not in fields
    if family == "cem":
        check_cem_fields(fields, settings)
    else:
        check_nrgpt_fields(fields, state, settings, directory.name)


def check_nrgpt_fields(fields, state, settings, name):
    V, C = state["token_embedding_table.weight"].shape
    variant = settings.get("feed_forward") or ("ff2w" if "listops" in name else name.split("-")[1])
    strict = np.array_equal(state["blocks.attn.heads.0.tril"][0, 0], 0) if "blocks.attn.heads.0.tril" in state \
        else settings["tril_plus_one"]
    expected = {
        "vocab_size": V, "embedding_length": C, "context_length": len(state["position_embedding_table.weight"]),
        "block_count": 1, "attention.head_count": sum(n.endswith(".H.weight") for n in state),
        "feed_forward_length": 4 * C, "steps": settings.get("n_layer", 5), "norm_epsilon": np.float32(1e-5),
        "attention.beta": settings.get("beta", 1.0), "feed_forward": variant,
        "attention.mask": "strict" if strict else "causal", "norm": settings.get("norm", "layernorm"),
        "rate": settings.get("rate", "matrix"),
    }
    assert {k.removeprefix("nrgpt."): v for k, v in fields.items() if k.startswith("nrgpt.")} == expected
    assert strict == (name in ("nrgpt-ff2w-strict", "nrgpt-listops-bare"))


def check_cem_fields(fields, config):
    expected = {
        "vocab_size": config["vocab_size"], "context_length": config["block_size"], "embedding_length": config["n_embd"],
        "block_count": config["n_layer"], "attention.head_count": config["n_head"], "feed_forward_length": config["n_ff"],
        "steps.attention": config["steps_attn"], "steps.mlp": config["steps_mlp"], "norm_epsilon": np.float32(1e-5),
        "rope.freq_base": config["rope_theta"], "attention.diagonal": config["attn_diag"],
        "activation": config["mlp_act"], "preconditioner.rank": config["precond_rank"],
    }
    assert {k.removeprefix("cem."): v for k, v in fields.items() if k.startswith("cem.")} == expected


def test_metadata_types(good):
    """The types docs/format.md gives, not merely the values."""
    types = reading.field_types(good(GOLDEN / "nrgpt-ff2w"))
    assert types["nrgpt.steps"] == ("UINT32",) and types["nrgpt.norm_epsilon"] == ("FLOAT32",)
    assert types["general.file_type"] == ("UINT32",) and types["descent.format_version"] == ("UINT32",)
    types = reading.field_types(good(GOLDEN / "cem-none-noprecond"))
    assert types["cem.preconditioner.rank"] == ("INT32",) and types["cem.rope.freq_base"] == ("FLOAT32",)


@pytest.mark.parametrize("variant", ["ff1", "ff2", "ff2w"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("rate", ["matrix", "diag", "scalar"])
@pytest.mark.parametrize("alpha", [False, True])
def test_nrgpt_directories(variant, norm, rate, alpha, good, tmp_path):
    state = checkpoints.nrgpt_state(variant, norm=norm, rate=rate, alpha=alpha, buffers=False, strict=True)
    config = checkpoints.nrgpt_config(variant, norm=norm, rate=rate, alpha=alpha, strict=True)
    out = good(checkpoints.write_directory(tmp_path / "in", state, config))
    check_tensors(out, state, reading.nrgpt_names(state))
    fields = reading.fields(out)
    assert (fields["nrgpt.feed_forward"], fields["nrgpt.norm"], fields["nrgpt.rate"]) == (variant, norm, rate)
    assert fields["nrgpt.attention.beta"] == 0.5 and fields["nrgpt.attention.mask"] == "strict"


@pytest.mark.parametrize("diagonal", ["none", "shared", "per_head"])
@pytest.mark.parametrize("rank", [-1, 0, 3])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_cem_directories(diagonal, rank, tied, activation, good, tmp_path):
    config = checkpoints.cem_config(diagonal=diagonal, rank=rank, tied=tied, activation=activation)
    state = checkpoints.cem_state(config)
    out = good(checkpoints.write_directory(tmp_path / "in", state, config))
    check_tensors(out, state, reading.cem_names(state))
    check_cem_fields(reading.fields(out), config)


def test_stored_shapes(good):
    """Dimensions in the file's order, fastest first, as docs/format.md lists them."""
    shapes = {t.name: t.shape.tolist() for t in gguf.GGUFReader(good(GOLDEN / "cem-shared-r8-silu")).tensors}
    assert shapes["token_embd.weight"] == [64, 61] and shapes["blk.1.mlp_up.weight"] == [64, 96]
    assert shapes["blk.0.attn_precond_u.weight"] == [8, 64] and shapes["blk.0.attn_eta.weight"] == [1]
    shapes = {t.name: t.shape.tolist() for t in gguf.GGUFReader(good(GOLDEN / "cem-perhead-diag-gelu")).tensors}
    assert shapes["blk.0.attn_diag.weight"] == [64, 4]
    shapes = {t.name: t.shape.tolist() for t in gguf.GGUFReader(good(GOLDEN / "nrgpt-ff2w")).tensors}
    assert shapes["blk.0.ffn_1.weight"] == [64, 256] and shapes["blk.0.ffn_2.weight"] == [256, 64]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint16"])
def test_stored_types(dtype, good, tmp_path):
    """F64, F16 and BF16 (the upper half of a float32) in the checkpoint."""
    state = checkpoints.nrgpt_state()
    expected = dict(state)
    for name in reading.nrgpt_names(state):
        if dtype == "uint16":
            state[name] = (state[name].view(np.uint32) >> 16).astype(np.uint16)
            expected[name] = (state[name].astype(np.uint32) << 16).view(np.float32)
        else:
            state[name] = state[name].astype(dtype)
            expected[name] = state[name].astype(np.float32)
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state)))
    check_tensors(out, expected, reading.nrgpt_names(expected))


def test_views(good, tmp_path):
    """Transposed, sliced and shared storages."""
    state = checkpoints.nrgpt_state()
    expected = dict(state)
    transposed = np.ascontiguousarray(state["blocks.proj.weight"].T)
    state["blocks.proj.weight"] = torch_writer.View(transposed, (6, 6), (1, 6))
    heads = np.random.default_rng(1).standard_normal((6, 12)).astype(np.float32)
    for h in range(2):
        name = f"blocks.attn.heads.{h}.H.weight"
        state[name], expected[name] = torch_writer.View(heads, (6, 6), (12, 1), 6 * h), heads[:, 6 * h:6 * h + 6]
    table = np.random.default_rng(2).standard_normal((13, 6)).astype(np.float32)
    state["token_embedding_table.weight"] = torch_writer.View(table, (11, 6), (6, 1), 12)
    state["lm_head.weight"] = torch_writer.View(table, (11, 6), (6, 1), 12)
    expected["token_embedding_table.weight"] = expected["lm_head.weight"] = table[2:]
    state["blocks.scale_ff"] = torch_writer.View(np.array([3.0], np.float32), (), ())
    expected["blocks.scale_ff"] = np.array([3.0], np.float32)
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state)))
    check_tensors(out, expected, reading.nrgpt_names(expected))


def test_parameters_are_wrapped_tensors(good, tmp_path):
    state = checkpoints.nrgpt_state()
    writer = torch_writer.Writer()
    wrapped = dict(state)
    array = state["lm_head.bias"]
    writer.storages = [a for a in state.values()]
    inner = writer.value(array)
    wrapped["lm_head.bias"] = torch_writer.Raw(
        torch_writer.global_("torch._utils._rebuild_parameter") + b"(" + inner + b"\x88"
        + torch_writer.global_("collections.OrderedDict") + b")RtR")
    data = writer.pickle(checkpoints.training(wrapped))
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", [*state.values(), np.array(1.5, np.float32)], pickle=data))
    check_tensors(out, state, reading.nrgpt_names(state))


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."])
def test_prefixes(prefix, good, tmp_path):
    state = checkpoints.nrgpt_state()
    wrapped = {prefix + name: array for name, array in state.items()}
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", checkpoints.training(state, model=wrapped)))
    check_tensors(out, state, reading.nrgpt_names(state))


def test_same_bits_every_time(good):
    assert good(GOLDEN / "nrgpt-ff1").read_bytes() == good(GOLDEN / "nrgpt-ff1").read_bytes()


def zip64_archive(entries):
    """A zip archive whose sizes and offsets are all in 64-bit fields, as torch writes them past 4 GiB, and whose local
    headers are padded so that the contents are aligned, as torch always writes them."""
    data, directory = b"", b""
    for name, content in entries:
        name = name.encode()
        offset = len(data)
        padding = -(offset + 34 + len(name)) % 64
        data += (struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0x808, 0, 0, 0, 0, 0, 0, len(name), padding + 4) + name
                 + struct.pack("<2sH", b"FB", padding) + b"Z" * padding + content)
        wide = struct.pack("<HHQQQ", 1, 24, len(content), len(content), offset)
        directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0, 45, 0x808, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name),
                                 len(wide), 0, 0, 0, 0, 0xFFFFFFFF) + name + wide
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, len(entries), len(entries), len(directory), len(data))
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(data) + len(directory), 1)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return data + directory + record + locator + end


def test_zip64_and_padded_headers(good, tmp_path):
    state = checkpoints.nrgpt_state()
    writer = torch_writer.Writer()
    data = writer.pickle(checkpoints.training(state))
    entries = [("a/data.pkl", data)] + [(f"a/data/{i}", s.tobytes()) for i, s in enumerate(writer.storages)]
    path = tmp_path / "ckpt.pt"
    path.write_bytes(zip64_archive(entries))
    assert len(zipfile.ZipFile(path).namelist()) == len(entries)
    out = good(path)
    check_tensors(out, state, reading.nrgpt_names(state))
