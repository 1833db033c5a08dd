"""The T of a model, as people write it and as the models take it.

    nrgpt, gpt-rec-parallel   a number                      4
    cem                       one of attention, one of the MLP: (4, 2), written 4x2; 4 is 4x4
    cem-swiglu, llama-cem     the number of the half that is CEM's, 4
    gpt, llama                none: None, written none

A layered model's pass (cem.py) takes pairs; of a hybrid's the number of the other half is not read.
"""

_NUMBERS = {"nrgpt": 1, "gpt-rec-parallel": 1, "cem": 2, "cem-swiglu": 1, "llama-cem": 1, "gpt": 0, "llama": 0}
LAYERED = ("cem", "llama", "cem-swiglu", "llama-cem")


def numbers(model):
    """How many numbers the T of such a model is."""
    return _NUMBERS[model]


def trained(options):
    """The T that the model of a run is served at."""
    return {0: None, 1: options.steps, 2: (options.steps, options.steps)}[numbers(options.model)]


def read(text, model):
    """The T that `text` says."""
    count = numbers(model)
    if count == 0 and text == "none":
        return None
    given = text.split("x")
    if not count or len(given) > count or not all(n.isdecimal() and int(n) > 0 for n in given):
        wanted = ("none: such a model has no T", "a number of at least 1", "a number of at least 1 or two, as in 4x2")[count]
        raise ValueError(f"{text!r} is no T of {model}; expected {wanted}")
    both = tuple(int(n) for n in given * (count + 1 - len(given)))
    return both if count == 2 else both[0]


def several(text, options):
    """The T's of a list; the trained one where it is empty or the model has none."""
    if not text or not numbers(options.model):
        return [trained(options)]
    return [read(one, options.model) for one in text.split(",")]


def label(T):
    """As the engine writes it: 4, 4x2, none."""
    return "none" if T is None else "x".join(map(str, T)) if isinstance(T, (tuple, list)) else str(T)
