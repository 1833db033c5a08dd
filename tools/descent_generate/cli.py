"""The command line of tools/generate_model.py: arguments in, one line out. Exit status 1 when there can be no such model, 2
when the command is not one."""

import argparse
import math
import os
import re
from dataclasses import fields

from descent_convert import chat, cli as convert, gguf_out, progress, source
from descent_convert import cem as cem_layout, gpt as gpt_layout, nrgpt as nrgpt_layout
from descent_convert.errors import ConvertError
from descent_convert.model import State

from . import cem, gpt, nrgpt, shapes, tokenizers
from .random_tensor import RandomTensor

_PROGRAM = "generate_model.py"
_FAMILIES = {"nrgpt": (nrgpt, nrgpt_layout), "cem": (cem, cem_layout), "gpt": (gpt, gpt_layout),
             "gpt-rec-parallel": (gpt, gpt_layout)}
_MAX_SEED = (1 << 64) - 1


def _depth(text):
    return tuple(convert.depth(text))


def _integer(text):
    if not re.fullmatch("-?[0-9]{1,20}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _seed(text):
    if not 0 <= _integer(text) <= _MAX_SEED:
        raise argparse.ArgumentTypeError(f"a number from 0 to {_MAX_SEED} expected")
    return int(text)


def _positive(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-30 <= value <= 1e30:
        raise argparse.ArgumentTypeError("a positive number expected")
    return value


def _table():
    """The named shapes, with their parameters counted."""
    lines = ["shapes:"]
    for name in shapes.NAMED:
        shape = shapes.named(name)
        numbers = [f"C {shape.width}", f"H {shape.heads}", f"F {shape.hidden}", f"V {shape.vocab}", f"context {shape.context}"]
        numbers += [f"{shape.layers} layers"] if shape.layers else []
        numbers += [f"T {_words(shape.steps)}"] if shape.steps else []
        lines.append(f"  {name:16} {_model(shape, 0).parameters:>11,} parameters: {', '.join(numbers)}")
        lines.append(f"  {'':16} {shapes.NAMED[name][1]}")
    return "\n".join(lines)


def _words(steps):
    return "x".join(map(str, steps)) if steps else "none"


def _arguments(argv):
    parser = progress.Parser(prog=_PROGRAM, description="Makes a model with random weights: a named shape, changed by flags.",
                     epilog=_table() if {"-h", "--help"} & set(argv) else None,
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", metavar="SHAPE", choices=list(shapes.NAMED), help="one of those below")
    parser.add_argument("output", metavar="OUT", help="the GGUF file to write")
    parser.add_argument("--type", default="f32", choices=list(gguf_out.TYPES), help="of the matrices (f32)")
    parser.add_argument("--seed", type=_seed, default=1, help="the same seed gives the same file, bit for bit (1)")
    parser.add_argument("--tokenizer", metavar="WHICH", default="bytes",
                        help="bytes (the default) or sentencepiece: any text, with as many tokens as the vocabulary; none; or a "
                        "file that convert.py knows")
    parser.add_argument("--chat-template", choices=chat.TEMPLATES, help="stated, with the special tokens it needs")
    parser.add_argument("--name", help="general.name of the model (OUT without .gguf)")
    group = parser.add_argument_group("any shape")
    group.add_argument("--width", type=_integer, metavar="C")
    group.add_argument("--heads", type=_integer, metavar="H")
    group.add_argument("--hidden", type=_integer, metavar="F", help="of the feed-forward or MLP")
    group.add_argument("--vocab", type=_integer, metavar="V")
    group.add_argument("--context", type=_integer, metavar="L", help="block size")
    group.add_argument("--layers", type=_integer, metavar="N", help="cem, gpt")
    group.add_argument("--steps", type=_depth, metavar="T", help="trained depth; cem: TxT, of attention and MLP")
    group = parser.add_argument_group("nrgpt")
    group.add_argument("--variant", choices=nrgpt_layout.VARIANTS)
    group.add_argument("--mask", choices=nrgpt_layout.MASKS)
    group.add_argument("--norm", choices=("layernorm", "rmsnorm"))
    group.add_argument("--rate", choices=("matrix", "diag", "scalar"))
    group.add_argument("--beta", type=_positive)
    group.add_argument("--learned-alpha", action="store_const", const=True, dest="alpha", help="a factor a head")
    group = parser.add_argument_group("cem")
    group.add_argument("--attention", choices=("cem", "llama"))
    group.add_argument("--mlp", choices=("cem", "swiglu"))
    group.add_argument("--diagonal", choices=("none", "shared", "per_head"))
    group.add_argument("--rank", type=_integer, metavar="R", help="of the preconditioner: -1 none, 0 diagonal")
    group.add_argument("--activation", choices=("silu", "gelu"))
    group.add_argument("--eta-entries", type=_integer, metavar="N", dest="etas", help="rates a descent")
    group.add_argument("--head", choices=("tied", "own"), help="the embedding, or a matrix of its own")
    group.add_argument("--rope-theta", type=_positive, dest="theta")
    return parser.parse_args(argv)


def _model(shape, seed):
    """The Model gguf_out writes: the checkpoint that such a model would have, read as one."""
    family, layout = _FAMILIES[shape.family]
    made = {}

    def random(name, dimensions, **distribution):
        made[name] = RandomTensor(seed, name, dimensions, **distribution)

    family.tensors(shape, random)
    return layout.from_directory(family.config(shape), State(made, "the model"), convert.Options(), "the model")


def _tokenizer(which, template, vocab):
    if which in tokenizers.KINDS:
        return tokenizers.synthetic(which, vocab, template)
    tokenizer = None if which == "none" else source.tokenizer(which, which, vocab)
    return tokenizers.with_template(tokenizer, template, which)


def generate(arguments):
    """Writes the model the parsed arguments ask for; returns the summary line."""
    given = vars(arguments)
    changes = {f.name: given[f.name] for f in fields(shapes.Shape) if given.get(f.name) is not None}
    shape = shapes.changed(arguments.shape, changes)
    model = _model(shape, arguments.seed)
    tokenizer = _tokenizer(arguments.tokenizer, arguments.chat_template, shape.vocab)
    name = arguments.name or os.path.splitext(os.path.basename(arguments.output))[0]
    name = name.encode("utf-8", "replace").decode("utf-8")
    total = gguf_out.total_bytes(model, arguments.type)
    size = gguf_out.write(model, tokenizer, arguments.output, arguments.type, name, "the model", progress.meter(total))
    words = "none" if tokenizer is None else f"{tokenizer.kind}, {len(tokenizer.tokens)} tokens"
    return (f"{arguments.output}: {shape.family} ({model.variant}), {model.parameters} parameters in {len(model.weights)} "
            f"tensors, T {_words(shape.steps)}, {arguments.type}, {size} bytes, seed {arguments.seed}, tokenizer: {words}")


def main(argv):
    return progress.run(_PROGRAM, lambda: generate(_arguments(argv)))
