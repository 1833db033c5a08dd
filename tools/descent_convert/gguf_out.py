"""Writes a Model as GGUF version 3 through the public gguf package, in pieces and beside its final name.

Each tensor is read, checked, encoded and written a few rows at a time, so that a conversion needs little more memory than
the interpreter. The file appears under its name when it is whole, or not at all. docs/format.md lists keys and tensors.
"""

import math
import os
import tempfile

import gguf
import numpy as np

from .errors import ConvertError, show, shape_text

TYPES = {
    "f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}
_FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2}
_FORMAT_VERSION = 1


def _layout(weight, kind):
    """GGUF type, stored shape (rows padded to whole blocks) and bytes of a weight."""
    kind = TYPES[kind] if weight.matrix else TYPES["f32"]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    row = -(-weight.shape[-1] // block) * block
    shape = (*weight.shape[:-1], row)
    return kind, shape, math.prod(shape) // block * size


class _Stream:
    """Stands where GGUFWriter.write_tensor_data takes an array: it wants the size and the numbers written, no more."""

    def __init__(self, weight, kind, path, progress):
        self.weight, self.path, self.progress = weight, path, progress
        self.kind, self.shape, self.nbytes = _layout(weight, kind)

    def tofile(self, file):
        written = 0
        for first, values in self._rows():
            data = self._encode(values, first)
            file.write(data)
            written += len(data)
            self.progress(len(data))
        assert written == self.nbytes

    def _rows(self):
        row, first = self.weight.shape[-1], 0
        for values in self.weight.source.chunks():
            yield first, values.reshape(-1, row)
            first += values.size // row

    def _encode(self, values, first):
        self._finite(values, values, first, "is not finite", "no model computes with it")
        short = self.shape[-1] - values.shape[-1]
        if short:
            values = np.pad(values, ((0, 0), (0, short)))
        with np.errstate(all="ignore"):  # what overflows is found below
            encoded = np.ascontiguousarray(gguf.quantize(values, self.kind))
            back = gguf.dequantize(encoded.view(np.uint8), self.kind).reshape(values.shape)
        self._finite(back, values, first, f"does not fit {self.kind.name.lower()}", "use --type f32")
        return encoded.tobytes()

    def _finite(self, values, shown, first, problem, way_out):
        good = np.isfinite(values)
        if not good.all():
            row, column = (int(n) for n in np.argwhere(~good)[0])
            where = [first + row, column] if len(self.weight.shape) > 1 else [column]
            raise ConvertError(f"{self.path}: {show(self.weight.source.name)} at {shape_text(where)}: "
                               f"{float(shown[row, column]):g} {problem}; {way_out}")


def write(model, tokenizer, out, kind, name, path, progress):
    """Writes the file `out`; returns its size. `progress(n)` hears of every n bytes of tensors written."""
    directory = os.path.dirname(out) or "."
    if os.path.exists(out) and not os.path.isfile(out):
        raise ConvertError(f"{out}: exists and is not an ordinary file; name the file to write")
    if not os.path.isdir(directory):
        raise ConvertError(f"{out}: the directory {show(directory)} does not exist")
    handle, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=directory)
    os.close(handle)
    try:
        _write(model, tokenizer, part, kind, name, path, progress)
        size = os.path.getsize(part)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)
        os.replace(part, out)
    except BaseException as e:
        os.unlink(part)
        if isinstance(e, OSError) and e.filename is None:  # of a write: the disk is full, say
            raise ConvertError(f"{out}: {e.strerror or e}") from None
        raise
    return size


def total_bytes(model, kind):
    return sum(_layout(w, kind)[2] for w in model.weights)


def _write(model, tokenizer, part, kind, name, path, progress):
    writer = gguf.GGUFWriter(part, model.architecture)
    try:
        writer.add_name(name)
        writer.add_file_type(_FILE_TYPES[kind])
        if kind in ("q8_0", "q4_0"):
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_uint32("descent.format_version", _FORMAT_VERSION)
        put = {"u32": writer.add_uint32, "i32": writer.add_int32, "f32": writer.add_float32, "string": writer.add_string}
        for key, value_kind, value in model.metadata:
            put[value_kind](f"{model.architecture}.{key}", value)
        if tokenizer is not None:
            tokenizer.write(writer)
        streams = [_Stream(w, kind, path, progress) for w in model.weights]
        for stream in streams:
            writer.add_tensor_info(stream.weight.name, stream.shape, np.dtype(np.float32), stream.nbytes, raw_dtype=stream.kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for stream in streams:
            writer.write_tensor_data(stream, tensor_endianess=gguf.GGUFEndian.LITTLE)
        writer.flush()
        for file in writer.fout:
            os.fsync(file.fileno())
    finally:
        if writer.fout is not None:
            writer.close()
