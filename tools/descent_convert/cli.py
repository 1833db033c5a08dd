"""The command line of tools/convert.py: arguments in, one line out. Exit status 1 when the checkpoint cannot be converted,
2 when the command is not one."""

import argparse
import os
import re

from . import chat, gguf_out, gpt2, nrgpt, progress, source
from .errors import ConvertError
from .model import MAX_STEPS


class Options:
    """What the command line says beside the files. `steps` is a list of one or two numbers."""

    def __init__(self, steps=None, mask=None, variant=None):
        self.steps, self.mask, self.variant = steps, mask, variant

    def both_steps(self, path, stated):
        """T of a model with one recursion depth."""
        if self.steps and len(self.steps) > 1:
            raise ConvertError(f"{path}: this model has one depth; say --steps {self.steps[0]}")
        steps = self.steps[0] if self.steps else stated
        if steps is None:
            raise ConvertError(f"{path}: the checkpoint does not say its trained depth; say --steps N")
        return steps

    def steps_of_each(self, path, attention, mlp):
        """T of attention and of the MLP."""
        if self.steps:
            return self.steps[0], self.steps[-1]
        if attention is None or mlp is None:
            raise ConvertError(f"{path}: the checkpoint does not say its trained depths; say --steps N or --steps NxM")
        return attention, mlp


def depth(text):
    """The argument of --steps, as a list of one or two numbers."""
    if not re.fullmatch("[0-9]{1,5}(x[0-9]{1,5})?", text) or not all(1 <= int(n) <= MAX_STEPS for n in text.split("x")):
        raise argparse.ArgumentTypeError(f"a depth from 1 to {MAX_STEPS}, or two as in 2x2, expected")
    return [int(n) for n in text.split("x")]


def _arguments(argv):
    parser = progress.Parser(prog="convert.py", description="Converts a checkpoint of an energy-based language model to GGUF.")
    parser.add_argument("input", metavar="IN", help="a .pt file, or a directory with one checkpoint in it")
    parser.add_argument("output", metavar="OUT", help="the GGUF file to write")
    parser.add_argument("--type", default="f32", choices=list(gguf_out.TYPES), help="of the matrices (f32)")
    parser.add_argument("--steps", type=depth, metavar="N", help="trained recursion depth, where the checkpoint does not "
                        "say or says another; NxM: of attention and MLP")
    parser.add_argument("--tokenizer", "--vocab", metavar="PATH", help="the tokenizer, where it is not beside the checkpoint: a file "
                        "(tokenizer.json, tokenizer.model, vocab.json or encoder.json, .tiktoken, meta.pkl, words one a line) or a "
                        "directory with one")
    parser.add_argument("--mask", choices=nrgpt.MASKS, help="where the checkpoint does not say")
    parser.add_argument("--variant", choices=source.VARIANTS, help="where the checkpoint does not say")
    parser.add_argument("--name", help="general.name of the model (OUT without .gguf)")
    return parser.parse_args(argv)


def _note(text):
    progress.note("convert.py", text)


def _tokenizer(path, named, vocab):
    """The tokenizer to write, with the chat template where the model's own is one of ours, and what there is to say of it."""
    found = source.tokenizer_path(path, named, vocab)
    if found is None:
        guess = f"; {vocab} ids suggest GPT-2's, found where {gpt2.PACKAGES} puts it" if vocab in gpt2.VOCABULARIES else ""
        return None, [f"{path}: no tokenizer beside it{guess}: the model takes and gives token ids only"]
    tokenizer = source.read_tokenizer(found, vocab)
    notes = [f"{found}: {note}" for note in getattr(tokenizer, "notes", ())]
    if named is None and os.path.dirname(found) != os.path.dirname(path):
        notes.append(f"{path}: no tokenizer beside it: GPT-2's, from {os.path.dirname(found)}")
    if len(tokenizer.tokens) < vocab:
        notes.append(f"{path}: {len(tokenizer.tokens)} tokens for {vocab} ids: the others have no text")
    template, note = source.chat_template(found, tokenizer.tokens, getattr(tokenizer, "bos", None), getattr(tokenizer, "eos", None))
    notes += [note] if note else []
    return chat.Stated(tokenizer, template) if template else tokenizer, notes


def convert(arguments):
    """Converts as the parsed arguments say; returns the summary line."""
    path = source.checkpoint(arguments.input)
    options = Options(arguments.steps, arguments.mask, arguments.variant)
    with source.OpenFiles() as files:
        model = source.read_model(path, files, options)
        if files.include(arguments.output):
            raise ConvertError(f"{arguments.output}: is the checkpoint itself")
        tokenizer, notes = _tokenizer(path, arguments.tokenizer, model.vocab)
        name = arguments.name or os.path.splitext(os.path.basename(arguments.output))[0]
        name = name.encode("utf-8", "replace").decode("utf-8")
        total = gguf_out.total_bytes(model, arguments.type)
        size = gguf_out.write(model, tokenizer, arguments.output, arguments.type, name, path, progress.meter(total))
    for note in notes:
        _note(note)
    words = "none" if tokenizer is None else f"{tokenizer.kind}, {len(tokenizer.tokens)} tokens"
    return (f"{arguments.output}: {model.architecture} ({model.variant}), {model.parameters} parameters in "
            f"{len(model.weights)} tensors, {arguments.type}, {size} bytes, tokenizer: {words}")


def main(argv):
    return progress.run("convert.py", lambda: convert(_arguments(argv)))
