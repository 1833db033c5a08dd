"""GGUF files of ours in other people's readers: the public `gguf` package, `@huggingface/gguf` and the engine list the same
metadata and the same tensors, at the same places, for the shipped models and for every weight type of the converter."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
SOURCE = HERE.parent.parent
SHIPPED = sorted((SOURCE / "models").glob("*.gguf"))
CONVERTED = [(model, kind) for model in ("nrgpt-ff2w", "nrgpt-ff2", "cem-shared-r8-silu") for kind in ("f32", "f16", "bf16", "q8_0")]
ARRAY = gguf.GGUFValueType.ARRAY
WIDE = (gguf.GGUFValueType.UINT64, gguf.GGUFValueType.INT64)


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interop")

    def run(model, kind):
        path = folder / f"{model}-{kind}.gguf"
        if not path.exists():
            command = [sys.executable, SOURCE / "tools/convert.py", SOURCE / "tests/golden" / model, path, "--type", kind]
            done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout
        return path

    return run


@pytest.fixture(params=[*SHIPPED, *CONVERTED], ids=lambda p: p.name if isinstance(p, pathlib.Path) else "-".join(p))
def path(request, convert):
    return request.param if isinstance(request.param, pathlib.Path) else convert(*request.param)


def read_with_gguf(path):
    """Metadata as (key, value type, element type or None, value), tensors as (name, dimensions, type, place)."""
    reader = gguf.GGUFReader(path)
    metadata = [
        (key, field.types[0], field.types[-1] if field.types[0] == ARRAY else None, field.contents())
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.")
    ]
    tensors = [(t.name, [int(n) for n in t.shape], t.tensor_type, int(t.data_offset), int(t.n_bytes)) for t in reader.tensors]
    return metadata, tensors


def as_json_has_it(kind, element, value):
    """A value of the `gguf` package as list_gguf.mjs prints it."""
    if kind == ARRAY:
        return [as_json_has_it(element, None, item) for item in value]
    if kind in WIDE:
        return str(value)
    return value


def test_there_are_shipped_models():
    assert len(SHIPPED) >= 3


def test_hugging_face_lists_the_same(path):
    done = subprocess.run(["node", HERE / "list_gguf.mjs", path], check=False, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    metadata, tensors = read_with_gguf(path)
    assert found["metadata"] == [
        [key, kind, element, as_json_has_it(kind, element, value)] for key, kind, element, value in metadata
    ]
    assert found["tensors"] == [
        [name, [str(n) for n in dims], kind, str(place)] for name, dims, kind, place, _ in tensors
    ]


# ---- The engine


class TensorInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("n_dims", ctypes.c_uint32),
        ("dims", ctypes.c_uint64 * 4),
        ("bytes", ctypes.c_uint64),
    ]


class Status(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 512)]


@pytest.fixture(scope="module")
def library():
    library = ctypes.CDLL(os.environ["DESCENT_LIBRARY"])
    library.descent_model_open.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Status)]
    library.descent_model_close.argtypes = [ctypes.c_void_p]
    library.descent_model_metadata.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_char_p), ctypes.c_char_p, ctypes.c_size_t]
    library.descent_model_metadata.restype = ctypes.c_bool
    library.descent_model_tensor.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(TensorInfo)]
    library.descent_model_tensor.restype = ctypes.c_bool
    return library


@pytest.fixture
def model(library, path):
    model, status = ctypes.c_void_p(), Status()
    assert library.descent_model_open(os.fsencode(path), ctypes.byref(model), ctypes.byref(status)) == 0, status.message
    yield model
    library.descent_model_close(model)


def engine_metadata(library, model):
    key, text, i = ctypes.c_char_p(), ctypes.create_string_buffer(4096), 0
    while library.descent_model_metadata(model, i, ctypes.byref(key), text, len(text)):
        yield key.value.decode(), text.value.decode()
        i += 1


def engine_tensors(library, model):
    tensor, i = TensorInfo(), 0
    while library.descent_model_tensor(model, i, ctypes.byref(tensor)):
        yield tensor.name.decode(), list(tensor.dims)[: tensor.n_dims], tensor.type.decode(), tensor.bytes
        i += 1


def says(kind, element, value, text):
    """Whether `text` is what the engine should say of a value."""
    if kind == ARRAY:
        name = {gguf.GGUFValueType.STRING: "string", gguf.GGUFValueType.FLOAT32: "f32", gguf.GGUFValueType.INT32: "i32",
                gguf.GGUFValueType.UINT8: "u8"}[element]
        return text.startswith(f"{name}[{len(value)}] [") and text.endswith(", ...]" if len(value) > 8 else "]")
    if kind == gguf.GGUFValueType.FLOAT32:
        return np.float32(text) == np.float32(value)
    if kind == gguf.GGUFValueType.BOOL:
        return text == str(value).lower()
    return text == str(value)


def test_engine_lists_the_same(library, model, path):
    metadata, tensors = read_with_gguf(path)
    found = list(engine_metadata(library, model))
    assert [key for key, _ in found] == [key for key, *_ in metadata]
    for (key, text), (_, kind, element, value) in zip(found, metadata, strict=True):
        assert says(kind, element, value, text), (key, text, value)
    assert list(engine_tensors(library, model)) == [(name, dims, kind.name, size) for name, dims, kind, _, size in tensors]
