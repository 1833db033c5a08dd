"""Writes a safetensors file: a header of JSON (name, type, shape, place), then the tensors' bytes, little-endian, no gaps."""
import json
import os
import struct


def write_safetensors(path, tensors):
    """tensors: name -> float32 torch tensor on the CPU. The file appears whole or not at all."""
    header, at = {}, 0
    for name, t in tensors.items():
        size = 4 * t.numel()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".new", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            file.write(t.contiguous().numpy().astype("<f4").tobytes())
    os.replace(path + ".new", path)
