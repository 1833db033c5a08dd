"""A torch checkpoint (.pt) as Python data whose tensors are lazy. Owns: the zip directory, the storages' places.

torch.save writes a zip archive of uncompressed entries: NAME/data.pkl, the pickle, and NAME/data/KEY, one storage each.
The archive's directory is read here rather than by zipfile because entries must be found inside the file, not inflated:
an entry that is compressed, encrypted or reaches outside the file is an error before anything is allocated for it. Names
are compared, never used as paths.
"""

import os
import struct
from dataclasses import dataclass

from . import unpickle
from .errors import ConvertError, show
from .tensor import SIZES, Tensor

MAX_DIRECTORY = 32 << 20
LEGACY_MAGIC = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # the number torch < 1.6 pickled first


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    header: int
    size: int
    stored: bool


class Archive:
    """An open .pt file. `value` is the unpickled object, `tensor` turns a TensorRef in it into a lazy tensor."""

    def __init__(self, file, path):
        self.file, self.path = file, path
        self.length = os.fstat(file.fileno()).st_size
        self.entries = self._directory()
        self.root = self._root()
        order = self.entries.get(self.root + "byteorder")
        if order is not None and self._bytes(order, 16).strip() != b"little":
            raise ConvertError(f"{path}: written on a big-endian machine, which is not read")
        pickle = self._bytes(self.entries[self.root + "data.pkl"], unpickle.MAX_BYTES)
        self.value = unpickle.loads(pickle, path)

    def tensor(self, name, ref):
        storage = ref.storage
        entry = self.entries.get(f"{self.root}data/{storage.key}")
        if entry is None:
            raise ConvertError(f"{self.path}: {show(name)}: its storage {show(storage.key)} is not in the archive")
        size = SIZES[storage.dtype]
        if storage.count * size != entry.size:
            raise ConvertError(f"{self.path}: {show(name)}: storage {show(storage.key)} holds {entry.size} bytes, "
                               f"{storage.count} elements of {storage.dtype} need {storage.count * size}")
        tensor = Tensor(self.file, name, storage.dtype, ref.shape, self._start(entry) + ref.offset * size, ref.strides)
        # A weight repeats none of its numbers; without this four bytes and a stride of 0 would make any amount of them.
        if tensor.count > storage.count:
            raise ConvertError(f"{self.path}: {show(name)}: {tensor.count} numbers in a storage of {storage.count}")
        return tensor

    # -- The zip container

    def _read(self, offset, count, what):
        if offset < 0 or offset + count > self.length:
            raise ConvertError(f"{self.path}: {what} lies outside the file; is it complete?")
        data = os.pread(self.file.fileno(), count, offset)
        if len(data) != count:
            raise ConvertError(f"{self.path}: the file became shorter while it was read")
        return data

    def _directory(self):
        start, size, count = self._directory_place()
        if size > MAX_DIRECTORY:
            raise ConvertError(f"{self.path}: a zip directory of {size} bytes; at most {MAX_DIRECTORY} are read")
        data = self._read(start, size, "the zip directory")
        entries, at = {}, 0
        while at < size:
            if size - at < 46 or data[at:at + 4] != b"PK\x01\x02":
                raise ConvertError(f"{self.path}: the zip directory is damaged")
            flags, method = struct.unpack_from("<HH", data, at + 8)
            packed, full, name_size, extra_size, comment_size = struct.unpack_from("<IIHHH", data, at + 20)
            header, = struct.unpack_from("<I", data, at + 42)
            tail = at + 46 + name_size
            if tail + extra_size + comment_size > size:
                raise ConvertError(f"{self.path}: the zip directory is damaged")
            name = data[at + 46:tail].decode("utf-8", "replace")
            full, packed, header = self._wide(data[tail:tail + extra_size], full, packed, header)
            if name in entries:
                raise ConvertError(f"{self.path}: the archive has two entries {show(name)}")
            entries[name] = _Entry(name, header, full, method == 0 and not flags & 1 and packed == full)
            at = tail + extra_size + comment_size
        if len(entries) != count:
            raise ConvertError(f"{self.path}: the zip directory lists {len(entries)} entries and counts {count}")
        return entries

    def _directory_place(self):
        """Offset, size and number of entries of the directory, from the record at the end of the file."""
        tail_size = min(self.length, 22 + 65535)
        tail = self._read(self.length - tail_size, tail_size, "the end of the file")
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < 22:
            if self._read(0, min(self.length, 64), "the start of the file").find(LEGACY_MAGIC) >= 0:
                raise ConvertError(f"{self.path}: torch's format from before version 1.6; load it and torch.save it again")
            raise ConvertError(f"{self.path}: no torch checkpoint (not a zip archive, or cut short)")
        count, size, start = struct.unpack_from("<HII", tail, at + 10)
        if at >= 20 and tail[at - 20:at - 16] == b"PK\x06\x07":
            place, = struct.unpack_from("<Q", tail, at - 12)
            record = self._read(place, 56, "the zip64 record")
            if record[:4] != b"PK\x06\x06":
                raise ConvertError(f"{self.path}: the zip64 record is damaged")
            count, size, start = struct.unpack_from("<QQQ", record, 32)
        return start, size, count

    def _wide(self, extra, *fields):
        """The fields of a directory entry; those that are all ones are in the zip64 extra field, in order."""
        at = 0
        while at + 4 <= len(extra):
            kind, size = struct.unpack_from("<HH", extra, at)
            if kind == 1 and at + 4 + size <= len(extra):
                wide = iter(struct.unpack_from(f"<{min(size // 8, 3)}Q", extra, at + 4))
                return tuple(next(wide, n) if n == 0xFFFFFFFF else n for n in fields)
            at += 4 + size
        return fields

    def _root(self):
        roots = [name[:-len("data.pkl")] for name in self.entries if name.endswith("/data.pkl")]
        if any(name.endswith("/constants.pkl") for name in self.entries):
            raise ConvertError(f"{self.path}: a TorchScript archive, which is a program; a checkpoint is needed")
        if len(roots) != 1:
            raise ConvertError(f"{self.path}: {len(roots)} entries data.pkl in the archive; a torch checkpoint has one")
        return roots[0]

    def _start(self, entry):
        """Where the entry's bytes begin: past its local header, whose name may be followed by padding."""
        if not entry.stored:
            raise ConvertError(f"{self.path}: {show(entry.name)} is compressed or encrypted; torch writes neither")
        header = self._read(entry.header, 30, f"entry {show(entry.name)}")
        if header[:4] != b"PK\x03\x04":
            raise ConvertError(f"{self.path}: entry {show(entry.name)} has no header where the directory says")
        name_size, extra_size = struct.unpack_from("<HH", header, 26)
        name = self._read(entry.header + 30, name_size, f"entry {show(entry.name)}")
        if name.decode("utf-8", "replace") != entry.name:
            raise ConvertError(f"{self.path}: entry {show(entry.name)} is called {show(name.decode('utf-8', 'replace'))}"
                               " in its own header")
        start = entry.header + 30 + name_size + extra_size
        if start + entry.size > self.length:
            raise ConvertError(f"{self.path}: entry {show(entry.name)} lies outside the file; is it complete?")
        return start

    def _bytes(self, entry, limit):
        if entry.size > limit:
            raise ConvertError(f"{self.path}: {show(entry.name)} is {entry.size} bytes; at most {limit} are read")
        return self._read(self._start(entry), entry.size, f"entry {show(entry.name)}")
