"""Finds what there is to convert: the checkpoint named or the one in the directory named, and the tokenizer beside it.

Every file is opened here, must be an ordinary file and, where it is read whole, of a bounded size.
"""

import contextlib
import os
import stat

from . import cem, chat, gpt, gpt2, hf, jsonfile, nrgpt, official, shards, spm, stfile, torchzip, words
from .errors import ConvertError, show
from .model import State
from .unpickle import TensorRef

MAX_CONFIG = 1 << 20
MAX_TOKENIZER = 64 << 20
MAX_SETTINGS = 16 << 20  # of a tokenizer, in which every added token can be listed
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
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


class OpenFiles(contextlib.ExitStack):
    """The files of a checkpoint, open while its tensors are read."""

    def __init__(self):
        super().__init__()
        self._files = []

    def open(self, path):
        self._files.append(self.enter_context(open_plain(path)))
        return self._files[-1]

    @property
    def bytes(self):
        return sum(os.fstat(file.fileno()).st_size for file in self._files)

    def include(self, path):
        """Whether `path` is one of them."""
        return os.path.exists(path) and any(os.path.samestat(os.fstat(f.fileno()), os.stat(path)) for f in self._files)


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
    found = sorted(n for n in os.listdir(path) if n.endswith((".pt", ".pth")) or n in (WEIGHTS, INDEX))
    if not found:
        raise ConvertError(f"{path}: no checkpoint here (a .pt file, or model.safetensors with config.json)")
    if len(found) > 1:
        raise ConvertError(f"{path}: more than one checkpoint ({', '.join(map(show, found))}); name one")
    return os.path.join(path, found[0])


def read_model(path, files, options):
    """The Model in the checkpoint `path`, whose tensors are read while `files`, an OpenFiles, lasts."""
    file = files.open(path)
    if path.endswith((".safetensors", ".index.json")):
        model = _from_safetensors(path, file, files, options)
    else:
        model = _from_torch(path, file, options)
    claimed, held = sum(w.source.nbytes for w in model.weights), files.bytes
    if claimed > _MORE_THAN_THE_FILE * held:
        raise ConvertError(f"{path}: its tensors share storage so that {held} bytes of file stand for {claimed}")
    return model


def _from_safetensors(path, file, files, options):
    directory = os.path.dirname(path) or "."
    config_path = os.path.join(directory, "config.json")
    if not os.path.exists(config_path):
        raise ConvertError(f"{config_path}: missing; it says what {os.path.basename(path)} is")
    config = jsonfile.loads(read_whole(config_path, MAX_CONFIG), config_path)
    kind = jsonfile.Config(config, config_path).choice("model_type", tuple(_FAMILIES), jsonfile.REQUIRED)
    if path.endswith(".index.json"):
        tensors = shards.read(read_whole(path, shards.MAX_INDEX), path, files)
    else:
        tensors = stfile.read(file, path)
    state = State(tensors, path)
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

# Files beside a checkpoint that are a tokenizer; of the first ones, which are forms of one and the same, the first counts.
_FORMS = ("tokenizer.model", "tokenizer.json", *(vocab for vocab, _ in gpt2.FILES))
_LISTS = ("tokenizer.chars.json", "meta.pkl", "vocab.txt")
_MERGES_OF = dict(gpt2.FILES)
_VOCAB_OF = {merges: vocab for vocab, merges in gpt2.FILES}


def tokenizer_path(path, named, vocab):
    """The file of the tokenizer for the checkpoint `path` of `vocab` ids: the one `named`, a file or a directory that has one,
    else the one beside the checkpoint, else GPT-2's where its package is installed and the model has its size, else None."""
    if named is not None and not os.path.isdir(named):
        directory, name = os.path.split(named)
        return os.path.join(directory, _VOCAB_OF.get(name, name))
    directory = named or os.path.dirname(path)
    found = _beside(directory)
    if found is None and named is not None:
        raise ConvertError(f"{named}: no tokenizer here (tokenizer.model, tokenizer.json, vocab.json with merges.txt, "
                           "encoder.json with vocab.bpe, or a list of characters or words)")
    if found is None and vocab in gpt2.VOCABULARIES:
        files = gpt2.installed(directory)
        for file in files or ():
            gpt2.check_installed(read_whole(file, MAX_TOKENIZER), file)
        return files[0] if files else None
    return found


def _beside(directory):
    """The one tokenizer in a directory, None where there is none."""
    forms = [name for name in _FORMS if all(os.path.exists(os.path.join(directory, part)) for part in _parts(name))]
    found = forms[:1] + [name for name in _LISTS if os.path.exists(os.path.join(directory, name))]
    if forms[:2] == ["tokenizer.model", "tokenizer.json"] and not _is_sentencepiece(os.path.join(directory, forms[0])):
        found[0] = forms[1]  # Llama 3's tokenizer.model is a list of ranks, which says less
    if len(found) > 1:
        raise ConvertError(f"{directory or '.'}: more than one tokenizer ({', '.join(found)}); name one with --tokenizer")
    return os.path.join(directory, found[0]) if found else None


def _parts(name):
    return [name, _MERGES_OF[name]] if name in _MERGES_OF else [name]


def _is_sentencepiece(path):
    with open_plain(path) as file:
        return os.pread(file.fileno(), 1, 0) == b"\n"  # the first field, pieces


def read_tokenizer(path, vocab):
    """The tokenizer in the file `path`, by what its name says it is, for a model of `vocab` ids."""
    name = os.path.basename(path)
    data = read_whole(path, MAX_TOKENIZER)
    if name.endswith(".pkl"):
        result = words.from_meta(data, path)
    elif name.endswith(".chars.json"):
        result = words.from_chars_json(data, path)
    elif name in _MERGES_OF:
        merges = os.path.join(os.path.dirname(path), _MERGES_OF[name])
        result = gpt2.from_vocab_and_merges(data, path, read_whole(merges, MAX_TOKENIZER), merges, _files(path, hf.BESIDE), vocab)
    elif name.endswith(".json"):
        result = hf.from_json(data, path, _files(path, hf.BESIDE), vocab)
    elif name.endswith(".tiktoken") or name.endswith(".model") and not data.startswith(b"\n"):
        result = gpt2.from_ranks(data, path, vocab)
    elif name.endswith(".model"):
        result = spm.from_model(data, path)
        for beside, more in _files(path, ["tokenizer_config.json"]).values():
            spm.apply_tokenizer_config(result, more, beside)
    else:
        result = words.from_lines(data, path)
    if len(result.tokens) > vocab:
        raise ConvertError(f"{path}: {len(result.tokens)} tokens for a model of {vocab}")
    return result


def tokenizer(path, named, vocab):
    """The tokenizer of the checkpoint `path`, as tokenizer_path finds it; None where there is none."""
    found = tokenizer_path(path, named, vocab)
    return None if found is None else read_tokenizer(found, vocab)


def chat_template(tokenizer_file, tokens, bos, eos):
    """Which of our chat templates the model's own is, beside the file of its tokenizer, and a note; see chat.of_model. bos and
    eos: ids or None."""
    text = ["" if i is None else tokens[i] for i in (bos, eos)]
    return chat.of_model(_files(tokenizer_file, ("tokenizer_config.json", "chat_template.jinja")), *text)


def _files(path, names):
    """Path and bytes of those of the files `names` that lie beside `path`, by name."""
    directory, found = os.path.dirname(path), {}
    for name in names:
        beside = os.path.join(directory, name)
        if os.path.exists(beside):
            found[name] = beside, read_whole(beside, MAX_SETTINGS)
    return found
