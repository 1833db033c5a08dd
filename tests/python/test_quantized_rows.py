"""x(0) of a quantized file: the sum of the two embeddings' rows, each exactly what the public gguf package reads."""
import os
import pathlib
import subprocess

import gguf
import numpy as np
import pytest

from conftest import ROOT, descent

PROGRAM = pathlib.Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build")) / "descent"


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K", "Q4_K", "Q4_0"])
@pytest.mark.parametrize("name, width", [("nrgpt-shakespeare", 256), ("nrgpt-listops", 88)])
def test_embeddings_are_what_the_type_says(tmp_path, name, width, kind):
    out = tmp_path / "out.gguf"
    subprocess.run([PROGRAM, "quantize", ROOT / "models" / f"{name}.gguf", out, "--type", kind, "--tensor", f"*_embd.*={kind}"],
                   check=True, capture_output=True)
    tensors = {t.name: t for t in gguf.GGUFReader(out).tensors}
    tokens, positions = (gguf.quants.dequantize(tensors[f"{part}_embd.weight"].data, tensors[f"{part}_embd.weight"].tensor_type)
                         for part in ("token", "position"))
    ids = np.array([3, 0, 19, 7])
    with descent.Model(out) as model:
        states = model.run(ids, steps=1, observe=["state"]).states
    wanted = (tokens[ids] + positions[:len(ids)])[:, :width].astype(np.float32)
    assert tensors["token_embd.weight"].tensor_type.name == kind
    assert np.array_equal(states.reshape(-1, len(ids), width)[0], wanted)
