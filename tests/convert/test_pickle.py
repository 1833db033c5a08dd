"""Hostile pickles. Nothing a pickle names is ever looked up, so no import happens and no code runs; what it could make
grow is bounded. The canary is a file that the payloads would create."""

import os
import pickle
import resource
import struct
import sys

import numpy as np
import pytest

import checkpoints
import torch_writer
from checkpoints import nrgpt_state, training
from descent_convert import unpickle
from descent_convert.errors import ConvertError
from torch_writer import Raw, global_, pickled, text


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


class Call:
    """Pickles as a call: what pickle.loads would make."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def calls(canary):
    touch = f"touch {canary}"
    python = f"open({str(canary)!r}, 'w')"
    return {
        "posix.system": pickle.dumps(Call(os.system, touch)),
        "os.system": b"cos\nsystem\n(" + text(touch) + b"tR.",
        "builtins.eval": pickle.dumps(Call(eval, python)),
        "builtins.exec": pickle.dumps(Call(exec, python)),
        "builtins.__import__": b"cbuiltins\n__import__\n(" + text("os") + b"tR.",
        "subprocess.Popen": b"\x80\x04" + text("subprocess") + text("Popen") + b"\x93(](" + text("touch") + text(str(canary))
                            + b"etR.",
        "builtins.getattr": b"cbuiltins\ngetattr\n(ctorch._utils\n_rebuild_tensor_v2\n" + text("__globals__") + b"tR.",
        "torch._utils.__builtins__": b"ctorch._utils\n__builtins__\n.",
        "torch.load": b"ctorch\nload\n(" + text(str(canary)) + b"tR.",
        "collections.OrderedDict.__class__": b"\x80\x04" + text("collections") + text("OrderedDict.__class__") + b"\x93.",
        "numpy.core.multiarray._reconstruct": b"cnumpy.core.multiarray\n_reconstruct\n.",
    }


@pytest.mark.parametrize("name", calls("canary"))
@pytest.mark.parametrize("nested", [False, True])
def test_names_outside_the_list(name, nested, canary, refused, tmp_path):
    payload = calls(canary)[name]
    if nested:  # deep in a checkpoint that is otherwise good, where nobody needs it
        body = payload[2:] if payload[:1] == b"\x80" else payload
        body = body[9:] if body[:1] == b"\x95" else body
        payload = pickled(training(nrgpt_state(), optimizer={"state": {0: [Raw(body[:-1])]}}))
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", {}, pickle=payload)
    refused(path, "nothing was run", f"names '{name}'")


@pytest.mark.parametrize("opcodes, words", [
    (global_("collections.OrderedDict") + b")\x81.", "0x81"),                       # NEWOBJ
    (global_("collections.OrderedDict") + b")}\x92.", "0x92"),                      # NEWOBJ_EX
    (b"(" + global_("collections.OrderedDict") + b"o.", "0x6f"),                    # OBJ
    (b"(icollections\nOrderedDict\n.", "0x69"),                                     # INST
    (b"\x82\x01.", "0x82"),                                                         # EXT1: the copyreg registry
    (b"Pos.system\n.", "0x50"),                                                     # PERSID
    (b"\x97.", "0x97"),                                                             # NEXT_BUFFER
    (b"I1" + b"0" * 100 + b"\n.", "0x49"),                                          # INT, as text
    (b"}}" + text("__class__") + b"Nsb.", "state of its own"),                      # BUILD on a plain dictionary
    (global_("collections.OrderedDict") + b")R}" + text("__setstate__") + b"Nsb.", "state of its own"),
    (global_("collections.OrderedDict") + b")R}" + text("__dict__") + b"}sb.", "state of its own"),
    (global_("collections.OrderedDict") + b"}b.", "state of its own"),              # BUILD on a class
    (global_("torch.FloatStorage") + b")R.", "arguments"),
    (global_("collections.OrderedDict") + b"(](NNetR.", "arguments"),
    (global_("torch._utils._rebuild_tensor_v2") + b")R.", "arguments"),
    (global_("torch._utils._rebuild_parameter") + b"(N\x88NtR.", "arguments"),
    (b"N)R.", "call"),
    (text("os.system") + b")R.", "call"),
    (global_("collections.OrderedDict") + b"NR.", "call"),
    (b"]Q.", "storage"),
    (b"(" + text("storage") + text("os") + text("0") + text("cpu") + b"K\x01tQ.", "storage"),
    (b"(" + text("storage") + global_("torch.FloatStorage") + text("../../etc/passwd") + text("cpu") + b"J\xff\xff\xff\xfftQ.",
     "negative"),
    (b"}(](Ne" + b"Nu.", "key of type list"),
    (b"}((tNu.", "key of type tuple"),
    (b"}(Nu.", "without a value"),
    (b".", "takes more"),
    (b"(.", "takes more"),
    (b"t.", "no mark"),
    (b"h\x07.", "memo entry 7"),
    (b"q\x00.", "remember"),
    (b"Na.", "a list"),
    (b"]NNs.", "a dictionary"),
    (b"N", "ends early"),
    (b"", "ends early"),
    (b"X\xff\xff\xff\xffabc.", "ends early"),
    (b"\x8d" + b"\xff" * 8 + b"abc.", "ends early"),
    (b"B\xff\xff\xff\x7fabc.", "ends early"),
    (b"X\x02\x00\x00\x00\xc3\x28.", "UTF-8"),
    (b"\x80\x06N.", "protocol 6"),
    (b"c" + b"a" * 5000 + b"\nb\n.", "does not end"),
    (b"NN\x93.", "not text"),
    (global_("collections.OrderedDict") + b".", "no dictionary"),
])
def test_machine(opcodes, words):
    with pytest.raises(ConvertError, match=words):
        unpickle.loads(opcodes, "file")


@pytest.mark.parametrize("offset, shape, strides, words", [
    (0, (2, 2), (2, 1), None), (0, (4,), (1,), None), (0, (0,), (1,), None), (3, (), (), None),
    (0, (5,), (1,), "past its storage"), (1, (2, 2), (2, 1), "past its storage"), (0, (2,), (1 << 40,), "past its storage"),
    (4, (), (), "past its storage"), (-1, (2,), (1,), "not counts"), (0, (-2,), (1,), "not counts"),
    (0, (2,), (-1,), "not counts"), (0, (True,), (1,), "not counts"), (0, (1.0,), (1,), "not counts"),
    (0, (1 << 60,), (0,), "not counts"), (0, (1,) * 9, (1,) * 9, "9 dimensions"), (0, (2, 2), (1,), "do not match"),
])
def test_tensor_views(offset, shape, strides, words):
    writer = torch_writer.Writer()
    data = writer.pickle(torch_writer.View(np.zeros(4, np.float32), shape, strides, offset))
    if words is None:
        assert unpickle.loads(data, "file").shape == shape
    else:
        with pytest.raises(ConvertError, match=words):
            unpickle.loads(data, "file")


def test_repeated_elements(refused, tmp_path):
    """Four bytes and strides of 0 are no weight matrix."""
    for H in (1, 2):
        value = training(nrgpt_state(H=H))
        one = np.ones(1, np.float32)
        value["model"]["blocks.proj.weight"] = torch_writer.View(one, (6, 6), (0, 0))
        refused(checkpoints.write_pt(tmp_path / "ckpt.pt", value), "36 numbers in a storage of 1")


def test_many_views_of_one_storage(refused, tmp_path):
    """A small file that stands for a large model."""
    value = training(nrgpt_state(C=32, F=128, H=200, buffers=False))
    shared = np.zeros((32, 32), np.float32)
    for h in range(200):
        value["model"][f"blocks.attn.heads.{h}.H.weight"] = torch_writer.View(shared, (32, 32), (32, 1))
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", value)
    refused(path, "share storage", f"{path.stat().st_size} bytes of file")


def test_values():
    """What a pickle may hold, against Python's own writer in every binary protocol."""
    value = {"a": [1, -1, 255, 65536, -(1 << 31), 1 << 40, 1.5, None, True, False], "b": ("x", ()), "c": {1: {"d": "\U0001f600"}},
             "e": [[], {}, (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "f": "y" * 300}
    value["again"] = value["a"]
    for protocol in (2, 3, 4, 5):
        assert unpickle.loads(pickle.dumps(value, protocol), "file") == value
    assert unpickle.loads(pickle.dumps({"b": b"bytes" * 100}, 4), "file") == {"b": b"bytes" * 100}


def test_integers():
    for n in (0, -1, (1 << 119) - 1, -(1 << 119)):
        assert unpickle.loads(pickled(n), "file") == n
    for data in (b"\x8a\xff" + b"\x7f" * 255 + b".", b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20) + b"."):
        with pytest.raises(ConvertError, match="at most 16"):
            unpickle.loads(data, "file")


def test_recursive_containers():
    for data in (b"]q\x00h\x00a.", b"}q\x00" + text("a") + b"h\x00s."):
        value = unpickle.loads(data, "file")
        assert len(value) == 1 and next(iter(value.values() if isinstance(value, dict) else value)) is value


@pytest.mark.parametrize("shape", ["nested tuples", "laughing lists", "deep lists", "marks", "dictionaries", "memo"])
def test_what_could_grow(shape):
    """Each is small on disk; none may take long or much. The last three run into the bound on opcodes."""
    many = unpickle.MAX_OPCODES + 1
    data = {
        "nested tuples": b"N" + b"q\x00h\x00\x86" * 1000 + b".",           # 2^1000 leaves, were anybody to walk them
        "laughing lists": b"]q\x00" + b"](" + b"h\x00" * 200 + b"eq\x00" * 1 + b"](" + b"h\x00" * 200 + b"e.",
        "deep lists": b"]" * 100_000 + b"a" * 99_999 + b".",
        "marks": b"(" * many, "dictionaries": b"}" * many, "memo": b"N" + b"\x94" * many,
    }[shape]
    before = resource.getrusage(resource.RUSAGE_SELF)
    if shape in ("marks", "dictionaries", "memo"):
        with pytest.raises(ConvertError, match="opcodes"):
            unpickle.loads(data, "file")
    else:
        unpickle.loads(data, "file")
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 20
    assert after.ru_maxrss - before.ru_maxrss < 400 << 10


def test_shared_tuples_as_keys_are_not_hashed():
    data = b"}N" + b"q\x00h\x00\x86" * 1000 + b"Ns."
    with pytest.raises(ConvertError, match="key of type tuple"):
        unpickle.loads(data, "file")


def test_size_of_the_pickle(refused, tmp_path):
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", {}, pickle=b"N" * (unpickle.MAX_BYTES + 1))
    refused(path, "data.pkl", "at most")
    with pytest.raises(ConvertError, match="at most"):
        unpickle.loads(b"N" * (unpickle.MAX_BYTES + 1), "file")


def test_nothing_is_imported(tmp_path, program):
    """The name of a module in a pickle does not load it."""
    (tmp_path / "boobytrap.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    path = checkpoints.write_pt(tmp_path / "ckpt.pt", {}, pickle=b"cboobytrap\nx\n.")
    result = program(path, tmp_path / "out.gguf", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert result.status == 1 and "boobytrap.x" in result.err
    assert not (tmp_path / "canary").exists() and "boobytrap" not in sys.modules


def test_meta_is_read_the_same_way(canary, refused, tmp_path):
    checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()))
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"itos": Call(os.system, f"touch {canary}")}))
    refused(tmp_path / "ckpt.pt", "meta.pkl", "nothing was run")
