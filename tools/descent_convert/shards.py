"""A checkpoint in several .safetensors files: model.safetensors.index.json names the file of each tensor, files lie beside it.

The index and the files must agree on every tensor, so that none is read from where it was not meant to be."""

import os

from . import jsonfile, stfile
from .errors import ConvertError, show

MAX_INDEX = 16 << 20
MAX_FILES = 512  # all are open at once


def read(data, path, files):
    """Name to lazy Tensor for every tensor of the index `data`, which `path` held; `files` opens and keeps the files."""
    index = jsonfile.loads(data, path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places:
        raise ConvertError(f"{path}: a weight_map with the file of each tensor expected")
    for name, place in places.items():
        if not isinstance(place, str) or not place.endswith(".safetensors") or place != os.path.basename(place):
            raise ConvertError(f"{path}: {show(name)} is in {show(place)}; a .safetensors file beside the index expected")
    if len(set(places.values())) > MAX_FILES:
        raise ConvertError(f"{path}: {len(set(places.values()))} files; at most {MAX_FILES} are read")
    tensors = {}
    for place in sorted(set(places.values())):
        shard = os.path.join(os.path.dirname(path), place)
        for name, tensor in stfile.read(files.open(shard), shard).items():
            if places.get(name) != place:
                where = f"that it is in {show(places[name])}" if name in places else "nothing of it"
                raise ConvertError(f"{shard}: holds {show(name)}; {os.path.basename(path)} says {where}")
            tensors[name] = tensor
    for name, place in places.items():
        if name not in tensors:
            raise ConvertError(f"{path}: {show(name)} is not in {show(place)}")
    return tensors
