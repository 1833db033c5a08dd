"""What is asked for: a named shape with the flags' changes, checked before anything is written.

A Shape holds every number its family needs; what it does not have is None, and a flag that sets such a field is refused by
name. A sub-layer of Llama's in a CEM layer has neither T nor a CEM setting: those are taken away once the kinds are known.
"""

from dataclasses import dataclass, fields, replace

from descent_convert.errors import ConvertError
from descent_convert.model import MAX_STEPS

# What the engine reads.
_LIMITS = {"width": (2, 1 << 20), "heads": (1, 1 << 16), "hidden": (1, 1 << 24), "vocab": (1, 1 << 24), "context": (1, 1 << 24),
           "layers": (1, 1 << 15), "etas": (1, MAX_STEPS), "rank": (-1, 1 << 20)}
_MOST_ROTATIONS = 1 << 26  # context times head width


@dataclass(frozen=True)
class Shape:
    family: str  # nrgpt, cem, gpt or gpt-rec-parallel
    width: int
    heads: int
    hidden: int
    vocab: int
    context: int
    layers: int | None = None
    steps: tuple | None = None  # T; with two kinds of descent of attention and MLP
    # NRGPT
    variant: str | None = None
    mask: str | None = None
    norm: str | None = None
    rate: str | None = None
    beta: float | None = None
    alpha: bool | None = None  # a learned factor a head
    # CEM
    attention: str | None = None
    mlp: str | None = None
    diagonal: str | None = None
    rank: int | None = None
    activation: str | None = None
    etas: int | None = None
    head: str | None = None
    theta: float | None = None

    @property
    def descents(self):
        """How many kinds of sub-layer have a T."""
        return (self.attention == "cem") + (self.mlp == "cem") if self.family == "cem" else int(self.family != "gpt")


def _nrgpt(width, heads, hidden, vocab, context, steps):
    return Shape("nrgpt", width, heads, hidden, vocab, context, steps=(steps,), variant="ff2w", mask="causal", norm="layernorm",
                 rate="matrix", beta=1.0, alpha=False)


def _cem(width, heads, hidden, vocab, context, layers, steps=(2, 2), head="tied", attention="cem", mlp="cem"):
    return Shape("cem", width, heads, hidden, vocab, context, layers, steps, attention=attention, mlp=mlp, diagonal="shared",
                 rank=8, activation="silu", etas=1, head=head, theta=10000.0)


# name: (shape, what it is)
NAMED = {
    "nrgpt-90m": (_nrgpt(768, 12, 3072, 50304, 1024, 12), "OpenWebText model of arXiv 2512.16762: GPT-2's width and heads"),
    "nrgpt-128m": (_nrgpt(1020, 14, 4080, 50304, 1024, 12), "its wider sibling; of C 1020 it takes 14 heads to make 128M"),
    "cem-86m": (_cem(768, 12, 2560, 32000, 1024, 12), "CEM (arXiv 2605.07588), head tied to the embedding"),
    "cem-162m": (_cem(768, 12, 5344, 32000, 1024, 12, head="own"),
                 "CEM of Llama-160M's size: its width and layers, and an MLP that makes up for the matrices CEM ties"),
    "cem-llama160m": (_cem(768, 12, 3072, 32000, 2048, 12, head="own"), "CEM of Llama-160M's width, layers and MLP width"),
    "llama-160m": (_cem(768, 12, 3072, 32000, 2048, 12, (), "own", "llama", "swiglu"), "Llama-160M itself, in CEM's files"),
    "gpt2": (Shape("gpt", 768, 12, 3072, 50304, 1024, 12), "baseline of GPT-2's width, heads and layers, head not tied"),
    "gpt-rec-85m": (Shape("gpt-rec-parallel", 768, 12, 3072, 50304, 1024, steps=(12,)), "GPT_Rec_parallel of arXiv 2512.16762"),
    "nrgpt": (_nrgpt(64, 4, 256, 1024, 128, 6), "a small one to change by flags"),
    "cem": (_cem(64, 4, 192, 1024, 128, 2), "a small one to change by flags"),
    "gpt": (Shape("gpt", 64, 4, 256, 1024, 128, 2), "a small one to change by flags"),
    "gpt-rec-parallel": (Shape("gpt-rec-parallel", 64, 4, 256, 1024, 128, steps=(4,)), "a small one to change by flags"),
}

_FLAGS = {"etas": "--eta-entries", "theta": "--rope-theta", "alpha": "--learned-alpha"}


def named(name):
    return _settled(NAMED[name][0])


def changed(name, changes):
    """The named shape with `changes` {field: value}; a ConvertError names the flag that does not fit."""
    shape = NAMED[name][0]
    _refuse_absent(shape, {"attention", "mlp"} & set(changes))
    shape = _settled(replace(shape, **{f: changes[f] for f in ("attention", "mlp") if f in changes}))
    _refuse_absent(shape, changes)
    steps = changes.get("steps", shape.steps)
    if steps and len(steps) > shape.descents:
        raise ConvertError(f"--steps {'x'.join(map(str, steps))}: this model has one depth; say --steps {steps[0]}")
    shape = replace(shape, **changes)
    shape = replace(shape, steps=steps and steps + steps[-1:] * (shape.descents - len(steps)))
    _check(shape)
    return shape


def flag(field):
    """The flag that sets a field of Shape."""
    return _FLAGS.get(field, "--" + field)


def _settled(shape):
    """Without what no sub-layer of its kinds has, and with a T for each that has one."""
    if shape.family != "cem":
        return shape
    steps = (shape.steps or (2, 2))[:shape.descents] or None
    shape = replace(shape, steps=steps)
    absent = ["diagonal"] * (shape.attention != "cem") + ["activation"] * (shape.mlp != "cem")
    absent += ["rank", "etas"] * (not shape.descents)
    return replace(shape, **dict.fromkeys(absent))


def _refuse_absent(shape, changes):
    for field in changes:
        if getattr(shape, field) is None:
            have = " ".join(flag(f.name) for f in fields(Shape) if f.name != "family" and getattr(shape, f.name) is not None)
            raise ConvertError(f"{flag(field)} means nothing to this {shape.family} model; it has {have}")


def _check(shape):
    for field, (least, most) in _LIMITS.items():
        value = getattr(shape, field)
        if value is not None and not least <= value <= most:
            raise ConvertError(f"{flag(field)} {value}: a number from {least} to {most} expected")
    if shape.family == "cem" and (shape.width % shape.heads or shape.width // shape.heads % 2):
        raise ConvertError(f"--heads {shape.heads}: --width {shape.width} is not that many times an even number")
    if shape.rank is not None and shape.rank > shape.width:
        raise ConvertError(f"--rank {shape.rank}: more than --width {shape.width}")
    if shape.family == "cem" and shape.context * (shape.width // shape.heads) > _MOST_ROTATIONS:
        raise ConvertError(f"--context {shape.context}: times the head width {shape.width // shape.heads} more than "
                           f"{_MOST_ROTATIONS} rotations")
    if shape.family.startswith("gpt") and shape.heads > shape.width:
        raise ConvertError(f"--heads {shape.heads}: more than --width {shape.width}")
