"""Damaged and hostile files: cut short, bits flipped, archives and headers that lie. Always one line or a good file."""

import io
import json
import os
import random
import shutil
import struct
import zipfile

import gguf
import numpy as np
import pytest

import checkpoints
import torch_writer
from checkpoints import nrgpt_state, training
from conftest import GOLDEN


def small_pt():
    return torch_writer.saved(training(nrgpt_state(V=5, C=4, H=1, F=8, context=3, strict=True), F_per_C=2, strict=True))


def outcome(convert, source, out, *options):
    """One line and no file, or no line and a file another reader opens."""
    result = convert(source, out, *options)
    if result.status == 0:
        gguf.GGUFReader(out)
        os.unlink(out)
    else:
        assert result.status == 1 and result.out == ""
        assert result.err.startswith("convert.py: ") and result.err.count("\n") == 1
    assert [n for n in os.listdir(out.parent) if n.endswith((".gguf", ".part"))] == []
    return result


def test_torch_file_cut_short(convert, tmp_path):
    data, path = small_pt(), tmp_path / "ckpt.pt"
    for length in {*range(0, len(data), 37), *range(len(data) - 120, len(data))}:
        path.write_bytes(data[:length])
        assert outcome(convert, path, tmp_path / "out.gguf").status == 1, length


@pytest.mark.parametrize("name", ["cem-shared-eta3", "nrgpt-ff2w-scalar"])
def test_safetensors_cut_short(name, convert, tmp_path):
    shutil.copytree(GOLDEN / name, tmp_path / "in")
    data = (GOLDEN / name / "model.safetensors").read_bytes()
    for length in {*range(0, 3000, 61), *range(3000, len(data), 4999), len(data) - 1}:
        (tmp_path / "in" / "model.safetensors").write_bytes(data[:length])
        assert outcome(convert, tmp_path / "in", tmp_path / "out.gguf").status == 1, length


def mutated(data, rng, where):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.choice(where)
        match rng.randrange(4):
            case 0: data[at] ^= 1 << rng.randrange(8)
            case 1: data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2: del data[at:at + rng.randrange(1, 5)]
            case 3: data[at:at] = bytes(rng.choices(data, k=rng.randrange(1, 5)))
        where = range(where.start, min(where.stop, len(data)))
    return bytes(data)


@pytest.mark.parametrize("part", ["pickle", "directory", "anywhere"])
def test_torch_file_mutated(part, convert, tmp_path):
    data, path, rng = small_pt(), tmp_path / "ckpt.pt", random.Random(part)
    archive = zipfile.ZipFile(io.BytesIO(data))
    pickle = archive.getinfo("archive/data.pkl")
    where = {"pickle": range(pickle.header_offset, pickle.header_offset + pickle.file_size + 40),
             "directory": range(archive.start_dir, len(data)), "anywhere": range(len(data))}[part]
    statuses = set()
    for _ in range(400):
        changed = mutated(data, rng, where)
        if part == "pickle" and len(changed) != len(data):  # kept an archive, so that the pickle is reached
            body = mutated(archive.read(pickle), rng, range(pickle.file_size))
            changed = torch_writer.saved({}, pickle=body, extra=[(f"archive/data/{i}", archive.read(f"archive/data/{i}"))
                                                                 for i in range(20) if f"archive/data/{i}" in archive.namelist()])
        path.write_bytes(changed)
        statuses.add(outcome(convert, path, tmp_path / "out.gguf").status)
    assert 1 in statuses


def test_safetensors_mutated(convert, tmp_path):
    config = checkpoints.cem_config(layers=1)
    directory = checkpoints.write_directory(tmp_path / "in", checkpoints.cem_state(config), config)
    files = {name: (directory / name).read_bytes() for name in ("model.safetensors", "config.json")}
    header = 8 + struct.unpack("<Q", files["model.safetensors"][:8])[0]
    rng = random.Random(7)
    for i in range(500):
        name = ("model.safetensors", "config.json")[i % 2]
        where = range(header) if name == "model.safetensors" else range(len(files[name]))
        (directory / name).write_bytes(mutated(files[name], rng, where))
        outcome(convert, directory, tmp_path / "out.gguf")
        (directory / name).write_bytes(files[name])


# -- Archives that lie

@pytest.fixture
def pt(tmp_path):
    def write(data):
        (tmp_path / "ckpt.pt").write_bytes(data)
        return tmp_path / "ckpt.pt"
    return write


def test_compressed_archive(refused, tmp_path):
    """A bomb is small because it is compressed; nothing compressed is read."""
    value = training(nrgpt_state())
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", value, compression=zipfile.ZIP_DEFLATED)
    refused(path, "compressed")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"N" * (200 << 20))
    assert path.stat().st_size < 1 << 20
    refused(path, "data.pkl")


def test_compressed_storage(refused, tmp_path):
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()))
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "b.pt", "w") as changed:
        for name in archive.namelist():
            changed.writestr(name, archive.read(name),
                             zipfile.ZIP_DEFLATED if name.endswith("/data/3") else zipfile.ZIP_STORED)
    refused(tmp_path / "b.pt", "archive/data/3", "compressed")


@pytest.mark.parametrize("extra, words", [
    ([("archive/data.pkl", b"N.")], "two entries"),
    ([("other/data.pkl", b"N.")], "2 entries data.pkl"),
    ([("archive/constants.pkl", b"N.")], "TorchScript"),
    ([("archive/byteorder", b"big")], "big-endian"),
])
def test_archive_contents(extra, words, refused, tmp_path):
    with pytest.warns(UserWarning) if words == "two entries" else _nothing():
        path = checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()), extra=extra)
    refused(path, words)


class _nothing:
    def __enter__(self): return self

    def __exit__(self, *_): return False


def test_other_entries_are_left_alone(good, tmp_path):
    """Absolute and climbing names are names; nothing is extracted."""
    extra = [("archive/byteorder", b"little"), ("archive/.data/serialization_id", b"1"), ("../../escape", b"x"), ("/etc/x", b"x")]
    good(checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()), extra=extra))
    assert not (tmp_path.parent.parent / "escape").exists()


def test_storage_key_that_climbs(refused, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(144))
    data = torch_writer.pickled(training(nrgpt_state()))
    for key in ("../secret", "/etc/passwd", "../../../../etc/passwd", ""):
        changed = data.replace(torch_writer.text("3"), torch_writer.text(key), 1)
        assert changed != data
        refused(checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()), pickle=changed), "not in the archive")


def test_storage_of_another_size(refused, tmp_path):
    data = torch_writer.pickled(training(nrgpt_state()))
    changed = data.replace(torch_writer.global_("torch.FloatStorage"), torch_writer.global_("torch.DoubleStorage"))
    refused(checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()), pickle=changed), "bytes", "F64")


@pytest.mark.parametrize("at, layout, value, words", [
    (10, "<H", 3, "counts 3"), (12, "<I", 1 << 31, "at most"), (12, "<I", 20, "damaged"), (16, "<I", 1 << 30, "outside"),
    (16, "<I", 5, "damaged"),
])
def test_end_record(at, layout, value, words, refused, pt):
    data = bytearray(small_pt())
    struct.pack_into(layout, data, data.rfind(b"PK\5\6") + at, value)
    refused(pt(data), words)


@pytest.mark.parametrize("at, layout, value, words", [
    (20, "<II", (1 << 30, 1 << 30), "holds"), (42, "<I", 1 << 30, "outside"), (42, "<I", 3, "no header"),
    (8, "<H", 1, "encrypted"), (10, "<H", 14, "compressed"), (0, "<I", 0, "damaged"), (28, "<H", 60000, "damaged"),
])
def test_directory_entry(at, layout, value, words, refused, pt):
    """Of a storage in the middle."""
    data = bytearray(small_pt())
    entry = data.rfind(b"archive/data/4") - 46
    struct.pack_into(layout, data, entry + at, *(value if isinstance(value, tuple) else (value,)))
    refused(pt(data), words)


def test_two_names_for_one_entry(refused, pt):
    data = bytearray(small_pt())
    at = data.find(b"archive/data/4")
    data[at:at + 14] = b"archive/data/9"
    refused(pt(data), "in its own header")


def test_no_torch_file(refused, pt):
    refused(pt(b""), "no torch checkpoint")
    refused(pt(bytes(1000)), "no torch checkpoint")
    refused(pt(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." + bytes(100)), "before version 1.6")
    refused(pt(torch_writer.saved({}, root="archive", pickle=b"")), "ends early")


# -- Safetensors headers that lie

def safetensors(directory, header, data=b""):
    directory.mkdir(exist_ok=True)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (directory / "config.json").write_text(json.dumps(checkpoints.cem_config()))
    return directory


def entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize("header, size, words", [
    (b"[]", 0, "object"), (b"{", 0, "line 1"), (b"[" * 100_000, 0, "deep"), (b'{"a": 1' + b"0" * 5000 + b"}", 0, "long"),
    (b'{"a": NaN}', 0, "NaN"), (b'{"a": 1, "a": 2}', 0, "twice"), (b'{"\xff": 1}', 0, "UTF-8"), (b'{"a": 1}', 0, "dtype"),
    ({"a": entry([2], 0, 8, "F4")}, 8, "type 'F4'"), ({"a": entry([2], 0, 8, ["F32"])}, 8, "type"),
    ({"a": entry([3], 0, 8)}, 8, "needs 12"), ({"a": entry([1 << 47, 1 << 47], 0, 8)}, 8, "needs"),
    ({"a": entry([-2], 0, 8)}, 8, "counts"), ({"a": entry([2.0], 0, 8)}, 8, "counts"), ({"a": entry([True], 0, 4)}, 4, "counts"),
    ({"a": entry([1] * 9, 0, 4)}, 4, "at most 8"), ({"a": entry(2, 0, 8)}, 8, "counts"),
    ({"a": entry([2], 8, 0)}, 8, "in order"), ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, 8, "two counts"),
    ({"a": entry([2], 4, 12)}, 12, "begins"), ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, 12, "begins"),
    ({"a": entry([2], 0, 8)}, 9, "the file at"), ({"a": entry([2], 0, 8)}, 4, "the file at"),
    ({"a": entry([1 << 40], 0, 4 << 40)}, 8, "the file at"),
])
def test_safetensors_header(header, size, words, refused, tmp_path):
    refused(safetensors(tmp_path / "in", header, bytes(size)), words)


def test_safetensors_header_size(refused, tmp_path):
    directory = safetensors(tmp_path / "in", {})
    for size in (1 << 63, 1 << 40, 3, (1 << 64) - 1):
        (directory / "model.safetensors").write_bytes(struct.pack("<Q", size) + b"{}")
        refused(directory, "header" if size != 3 else "complete")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"\xff", b'{"model_type": "nrgpt", "model_type": "cem"}',
                                  b'{"model_type": NaN}', b"[" * 100_000, b'{"model_type": ["cem"]}', bytes(1000)])
def test_config_file(text, refused, tmp_path):
    directory = safetensors(tmp_path / "in", {})
    (directory / "config.json").write_bytes(text)
    refused(directory, "config.json")


def test_config_file_missing_or_huge(refused, tmp_path):
    directory = safetensors(tmp_path / "in", {})
    (directory / "config.json").write_bytes(b" " * (2 << 20))
    refused(directory, "config.json", "at most")
    (directory / "config.json").unlink()
    refused(directory, "config.json", "missing")


# -- What is written

def test_no_half_written_file(convert, tmp_path, monkeypatch):
    """Whatever goes wrong while writing, the name keeps what it had."""
    source = checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()))
    out = tmp_path / "out.gguf"
    out.write_bytes(b"what was there")
    before = sorted(os.listdir(tmp_path))
    state = nrgpt_state()
    state["lm_head.bias"][3] = np.nan  # the last tensor written
    assert convert(checkpoints.write_pt(tmp_path / "ckpt.pt", training(state)), out).status == 1
    checkpoints.write_pt(source, training(nrgpt_state()))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        result = convert(source, out)
        assert result.status == 1 and result.err == f"convert.py: {out}: No space left on device\n"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert convert(source, out).status == 130
    assert out.read_bytes() == b"what was there" and sorted(os.listdir(tmp_path)) == before
    assert convert(source, out).status == 0
    assert out.read_bytes()[:4] == b"GGUF" and sorted(os.listdir(tmp_path)) == before


def test_where_it_cannot_be_written(convert, tmp_path):
    source = checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()))
    data = source.read_bytes()
    os.mkfifo(tmp_path / "fifo")
    for out, words in ((tmp_path, "not an ordinary file"), (tmp_path / "none" / "out.gguf", "does not exist"),
                       (tmp_path / "fifo", "not an ordinary file"), (source, "checkpoint itself")):
        result = convert(source, out)
        assert result.status == 1 and words in result.err
    os.link(source, tmp_path / "other")
    assert convert(source, tmp_path / "other").status == 1
    assert source.read_bytes() == data and (tmp_path / "fifo").is_fifo()


def test_permissions_are_those_of_any_new_file(good, tmp_path):
    out = good(checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state())))
    (tmp_path / "plain").touch()
    assert out.stat().st_mode == (tmp_path / "plain").stat().st_mode


# -- What is found

def test_directories(refused, good, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "no checkpoint here")
    refused(tmp_path / "nowhere", "No such file")
    checkpoints.write_pt(empty / "Best_1.pt", training(nrgpt_state()))
    good(empty)
    checkpoints.write_pt(empty / "Last_1.pt", training(nrgpt_state()))
    refused(empty, "more than one", "Best_1.pt", "Last_1.pt")
    good(empty / "Last_1.pt")
    os.mkfifo(tmp_path / "fifo.pt")
    refused(tmp_path / "fifo.pt", "not an ordinary file")
    refused("/dev/zero", "not an ordinary file")
