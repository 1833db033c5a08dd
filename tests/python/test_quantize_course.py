"""descent_quantize tells how far it is, and stops where it is told to, inside of a tensor as well."""
import ctypes
import os

import pytest

from conftest import ROOT
from descent import _native
from descent._native import library

Q8_0 = 4  # descent_weight_type
SOURCE = ROOT / "models" / "nrgpt-shakespeare.gguf"
WRITTEN, PROGRESS = (dict(_native.QuantizeOptions._fields_)[name] for name in ("written", "progress"))


def quantize(out, progress, written=lambda user, tensor: True):
    """What descent_quantize returned, and its message."""
    status = _native.Status()
    options = _native.QuantizeOptions(type=Q8_0, threads=1, written=WRITTEN(written), progress=PROGRESS(progress))
    code = library.descent_quantize(os.fsencode(SOURCE), os.fsencode(out), ctypes.byref(options), ctypes.byref(status))
    return _native.Code(code), status.message.decode()


def test_course(tmp_path):
    """From the first part to all of it, never back, and within the tensors."""
    seen, tensors = [], []
    code, _ = quantize(tmp_path / "out.gguf", lambda user, done, total: seen.append((done, total)) or True,
                       lambda user, tensor: tensors.append(tensor.contents.before) or True)
    assert code == _native.Code.OK
    assert {total for _, total in seen} == {sum(tensors)} and seen[-1][0] == sum(tensors)
    dones = [done for done, _ in seen]
    assert dones == sorted(dones) and 0 < dones[0] < max(tensors)
    assert len(set(dones) - {sum(tensors[:i + 1]) for i in range(len(tensors))}) > 10


@pytest.mark.parametrize("call", [1, 2, 40])
def test_stopping(tmp_path, call):
    """Where the caller says no, nothing more is done and nothing is left."""
    calls, tensors = [], []
    code, message = quantize(tmp_path / "out.gguf", lambda user, done, total: calls.append(done) or len(calls) < call,
                             lambda user, tensor: tensors.append(tensor.contents.before) or True)
    assert code == _native.Code.IO and "stopped" in message and list(tmp_path.iterdir()) == []
    assert len(calls) == call and sum(tensors) <= calls[-1]
