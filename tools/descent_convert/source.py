"""Finds what there is to convert: the checkpoint named or the one in the directory named, and the tokenizer beside it.

Every file is opened here, must be an ordinary file and, where it is read whole, of a bounded size.
"""

import os
import stat

from . import cem, gpt, jsonfile, nrgpt, official, spm, stfile, torchzip, words
from .errors import ConvertError, show
from .model import State
from .unpickle import TensorRef

MAX_CONFIG = 1 << 20
MAX_TOKENIZER = 64 << 20
WEIGHTS = "model.safetensors"
VARIANTS = (*nrgpt.VARIANTS, *gpt.VARIANTS)

_FAMILIES = {"nrgpt": nrgpt, "cem": cem, "gpt": gpt, "gpt-rec-parallel": gpt}  # by model_type in config.json

_MORE_THAN_THE_FILE = 4


def open_plain(path):
    """The ordinary file `path`, open for reading without buffering."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as e:
        raise ConvertError(f"{path}: {e.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConvertError(f"{path}: not an ordinary file")
    return os.fdopen(handle, "rb", buffering=0)


def read_whole(path, limit):
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ConvertError(f"{path}: {size} bytes; at most {limit} are read")
        return os.pread(file.fileno(), size, 0)


def checkpoint(path):
    """The path of the one checkpoint in the directory `path`, or `path` itself."""
    if not os.path.isdir(path):
        return path
    found = sorted(n for n in os.listdir(path) if n.endswith((".pt", ".pth")) or n == WEIGHTS)
    if not found:
        sharded = f"{WEIGHTS}.index.json" in os.listdir(path)
        raise ConvertError(f"{path}: " + ("weights in several files; save them as one model.safetensors" if sharded else
                                          "no checkpoint here (a .pt file, or model.safetensors with config.json)"))
    if len(found) > 1:
        raise ConvertError(f"{path}: more than one checkpoint ({', '.join(map(show, found))}); name one")
    return os.path.join(path, found[0])


def read_model(path, file, options):
    """The Model in the open checkpoint file `path`."""
    if path.endswith(".safetensors"):
        model = _from_safetensors(path, file, options)
    else:
        model = _from_torch(path, file, options)
    claimed, held = sum(w.source.nbytes for w in model.weights), os.fstat(file.fileno()).st_size
    if claimed > _MORE_THAN_THE_FILE * held:
        raise ConvertError(f"{path}: its tensors share storage so that {held} bytes of file stand for {claimed}")
    return model


def _from_safetensors(path, file, options):
    directory = os.path.dirname(path) or "."
    config_path = os.path.join(directory, "config.json")
    if not os.path.exists(config_path):
        raise ConvertError(f"{config_path}: missing; it says what {os.path.basename(path)} is")
    config = jsonfile.loads(read_whole(config_path, MAX_CONFIG), config_path)
    kind = jsonfile.Config(config, config_path).choice("model_type", tuple(_FAMILIES), jsonfile.REQUIRED)
    state = State(stfile.read(file, path), path)
    return _FAMILIES[kind].from_directory(config, state, options, directory)


def _family(name, state, path):
    """Of a checkpoint of the authors': by the name of its class; without one by its tensors."""
    if name is None:
        return gpt if gpt.owns(state) else nrgpt
    for family in (nrgpt, gpt):
        if name in family.CLASSES:
            return family
    supported = ", ".join(f"models.{c}" for family in (nrgpt, gpt) for c in family.CLASSES)
    raise ConvertError(f"{path}: class {show(name)} is unknown; supported: {supported}, CEM")


def _from_torch(path, file, options):
    archive = torchzip.Archive(file, path)
    value = archive.value
    if not isinstance(value, dict):
        raise ConvertError(f"{path}: holds a {type(value).__name__}; a dictionary expected")
    training = isinstance(value.get("model"), dict)
    tensors = value["model"] if training else value
    for name, ref in tensors.items():
        if not isinstance(name, str) or not isinstance(ref, TensorRef):
            raise ConvertError(f"{path}: {show(name)} is a {type(ref).__name__}; a state dictionary holds tensors by name")
    state = State({name: archive.tensor(name, ref) for name, ref in tensors.items()}, path)
    name = official.class_name(value, path) if training else None
    family = _family(name, state, path)
    if training:
        return family.from_training(value, name, state, options, path)
    return family.from_bare(state, options, path)


# -- Tokenizers

def _by_name(path):
    """The tokenizer in the file `path`, by what its name says it is."""
    name = os.path.basename(path)
    if name == "tokenizer.json":
        raise ConvertError(f"{path}: tokenizers of this format cannot be read; put tokenizer.model beside the checkpoint, or "
                           "remove it and convert without a tokenizer")
    data = read_whole(path, MAX_TOKENIZER)
    if name.endswith(".pkl"):
        return words.from_meta(data, path)
    if name.endswith(".chars.json"):
        return words.from_chars_json(data, path)
    if name.endswith(".model"):
        tokenizer = spm.from_model(data, path)
        beside = os.path.join(os.path.dirname(path), "tokenizer_config.json")
        if os.path.exists(beside):
            spm.apply_tokenizer_config(tokenizer, read_whole(beside, MAX_CONFIG), beside)
        return tokenizer
    return words.from_lines(data, path)


_BESIDE = ("tokenizer.model", "tokenizer.json", "tokenizer.chars.json", "meta.pkl", "vocab.txt")


def tokenizer(path, vocab_file, vocab):
    """The tokenizer --vocab names or the one beside the checkpoint `path`; None where there is none. `vocab`: V."""
    if vocab_file is None:
        directory = os.path.dirname(path)
        found = [n for n in _BESIDE if os.path.exists(os.path.join(directory, n))]
        if found[:2] == ["tokenizer.model", "tokenizer.json"]:  # two forms of one tokenizer
            del found[1]
        if len(found) > 1:
            raise ConvertError(f"{directory or '.'}: more than one tokenizer ({', '.join(found)}); name one with --vocab")
        if not found:
            return None
        vocab_file = os.path.join(directory, found[0])
    result = _by_name(vocab_file)
    if len(result.tokens) > vocab:
        raise ConvertError(f"{vocab_file}: {len(result.tokens)} tokens for a model of {vocab}")
    return result
