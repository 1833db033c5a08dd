"""Golden models in the quantized types, made with the public gguf package: quantize.py MODEL.gguf FOLDER writes, for each type,
FOLDER/NAME.TYPE.gguf and beside it FOLDER/NAME.TYPE.f32.gguf, the same model with the numbers that package reads from the
first. Q8_0 and Q4_0 are its own roundings of the model's weights. The K types it only reads: their bytes are drawn by chance,
scales such that the numbers are of the size of the tensor's own."""
import pathlib
import sys
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

TYPES = {"q8_0": Type.Q8_0, "q4_0": Type.Q4_0, "q4_k": Type.Q4_K, "q6_k": Type.Q6_K}
SMALL = ("precond", "attn_diag")  # of two dimensions, and F32 in every file


def is_matrix(tensor):
    return len(tensor.shape) == 2 and not any(word in tensor.name for word in SMALL)


def random_blocks(values, kind, seed):
    """Blocks of K types for rows of values.shape[1] numbers, zero in the mean and as spread as the values."""
    size, type_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    rows, per_row = values.shape[0], -(-values.shape[1] // size)
    blocks = rng.integers(0, 256, (rows * per_row, type_bytes), dtype=np.uint8)
    spread = values.std() * rng.uniform(0.5, 1.5, (rows * per_row, 1))
    if kind is Type.Q4_K:  # d * scale * quant - dmin * min: 6 bits, 4 bits and 6 bits
        d = spread / 268
        blocks[:, 0:2] = d.astype("<f2").view(np.uint8)
        blocks[:, 2:4] = (7.5 * d).astype("<f2").view(np.uint8)
    else:  # d * scale * quant: a signed byte and 6 bits about 32
        blocks[:, 208:210] = (spread / (74 * 18.5)).astype("<f2").view(np.uint8)
    return blocks.reshape(rows, per_row * type_bytes)


def quantized(tensor, kind):
    """The tensor's rows as bytes of that type, and the numbers the package reads from them."""
    values = np.array(tensor.data, dtype=np.float32)
    columns, size = values.shape[1], gguf.GGML_QUANT_SIZES[kind][0]
    if kind in (Type.Q4_K, Type.Q6_K):
        data = random_blocks(values, kind, zlib.crc32(f"{kind.name} {tensor.name}".encode()))
    else:
        data = quants.quantize(np.pad(values, ((0, 0), (0, -columns % size))), kind)
    return data, np.ascontiguousarray(quants.dequantize(data, kind)[:, :columns])


def write(reader, path, tensors):
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(model, folder):
    reader = gguf.GGUFReader(model)
    stem = pathlib.Path(folder) / pathlib.Path(model).stem
    for word, kind in TYPES.items():
        stored, read = [], []
        for tensor in reader.tensors:
            plain = np.array(tensor.data, dtype=np.float32)
            data, numbers = quantized(tensor, kind) if is_matrix(tensor) else (plain, plain)
            stored.append((tensor.name, data, kind if is_matrix(tensor) else None))
            read.append((tensor.name, numbers, None))
        write(reader, f"{stem}.{word}.gguf", stored)
        write(reader, f"{stem}.{word}.f32.gguf", read)


if __name__ == "__main__":
    main(*sys.argv[1:])
