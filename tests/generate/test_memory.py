"""What a loaded model takes of memory: quantized tensors are repacked, and the file's memory of them is given back. Here, since
a generated model is large enough for it to show."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

VOCAB, WIDTH = 20000, 1020  # which no block divides
SHAPE = ["nrgpt", "--width", WIDTH, "--heads", 4, "--hidden", 4 * WIDTH, "--vocab", VOCAB, "--tokenizer", "none"]
ROOM = 4 << 20  # for what is no model: the library's own pages, lists, what the allocator keeps

# Opens a model by the function named, as a C program would; prints what the process holds, and held at most, more than before.
LOAD = """
import ctypes, json, os, re, sys
sys.path.insert(0, sys.argv[1])
from descent import _native

def held():
    with open("/proc/self/status") as file:
        status = file.read()
    return [int(re.search(key + r":\\s+(\\d+) kB", status)[1]) * 1024 for key in ("VmRSS", "VmHWM")]

before, model = held()[0], ctypes.c_void_p()
_native.call(sys.argv[2], os.fsencode(sys.argv[3]), ctypes.byref(model))
print(json.dumps([now - before for now in held()]))
"""


@pytest.mark.parametrize("kind, bits", [("q8_0", 8.5), ("q4_0", 4.5)])
def test_a_loaded_model_takes_what_its_file_takes(kind, bits, made):
    path = made(*SHAPE, "--type", kind)
    size = path.stat().st_size
    for function in ("descent_model_open", "descent_model_read"):
        done = subprocess.run([sys.executable, "-c", LOAD, ROOT / "tools" / "python", function, path], check=True,
                              capture_output=True, text=True)
        holds, most = json.loads(done.stdout)
        assert holds < 1.10 * size + ROOM, function
        assert most < size + 1.10 * VOCAB * WIDTH * bits / 8 + ROOM, function  # while loading: the file and one tensor
