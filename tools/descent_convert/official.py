"""What the authors' trainer says about a checkpoint beside its tensors, whichever of its classes it is of: the name of the
class, and model_args. Sizes come from the tensors and must agree with what is stated here."""

from dataclasses import dataclass

import numpy as np

from .errors import ConvertError, show
from .jsonfile import Config
from .model import MAX_COUNT, MAX_STEPS, agree


@dataclass
class Sizes:
    """None where the checkpoint is silent."""

    steps: int | None = None
    strict: bool | None = None
    vocab: int | None = None
    width: int | None = None
    heads: int | None = None
    context: int | None = None
    factor: int | None = None

    def read(self, config):
        self.context = config.integer("block_size", 1, MAX_COUNT)
        self.width = config.integer("n_embed", 1, MAX_COUNT)
        self.steps = config.integer("n_layer", 1, MAX_STEPS)
        self.heads = config.integer("n_head", 1, MAX_COUNT)
        self.factor = config.integer("ff_hid_factor", 1, MAX_COUNT)
        self.vocab = config.integer("vocab_size", 1, MAX_COUNT)
        self.strict = config.flag("tril_plus_one")

    def read_model_args(self, value, path):
        """Of a training checkpoint's dictionary; what none of the classes reads is ignored."""
        if "model_args" in value:
            args = Config(value["model_args"], f"{path}: model_args")
            self.read(args)
            args.ignore("alpha", "decay_update", "use_layer_norm", "bias", "dropout")
            args.finish()

    def agree(self, path, V, C, context, F):
        agree(path, "vocab_size", self.vocab, V, "'token_embedding_table.weight'")
        agree(path, "n_embed", self.width, C, "'token_embedding_table.weight'")
        agree(path, "block_size", self.context, context, "'position_embedding_table.weight'")
        if self.factor is not None:
            agree(path, "ff_hid_factor * n_embed", self.factor * C, F, "the feed-forward's shape")


def class_name(value, path):
    """The last part of config.model_path in a training checkpoint's dictionary; None where it names none."""
    config = value.get("config")
    if config is None:
        return None
    if not isinstance(config, dict):
        raise ConvertError(f"{path}: config is no dictionary")
    model_path = config.get("model_path")
    if model_path is not None and not isinstance(model_path, str):
        raise ConvertError(f"{path}: config.model_path is no text")
    return model_path and model_path.rpartition(".")[2]


def count_heads(state, pattern, name, settings, path):
    """Heads numbered from 0 without a gap. `pattern` finds their numbers, `name` is a tensor's name with {} for the number."""
    numbers = sorted(int(m[1]) for m in map(pattern.fullmatch, state) if m)
    if not numbers or numbers != list(range(len(numbers))):
        missing = next((i for i, n in enumerate(numbers) if i != n), len(numbers))
        raise ConvertError(f"{path}: tensor {show(name.format(missing))} is missing")
    if settings.heads is not None and settings.heads > len(numbers):
        raise ConvertError(f"{path}: n_head is {settings.heads}, but tensor {show(name.format(len(numbers)))} is missing")
    agree(path, "n_head", settings.heads, len(numbers), f"the number of tensors {show(name.format('*'))}")
    return len(numbers)


def is_triangle(tensor, last):
    """Whether row i is ones up to column i + last, and zeros from there."""
    first, columns = 0, np.arange(tensor.shape[1])
    for values in tensor.chunks():
        rows = first + np.arange(len(values))[:, None]
        if not np.array_equal(values, columns <= rows + last):
            return False
        first += len(values)
    return True
