"""The plan of the models that docs/science.md compares: which runs there are, in which order, and what each is matched in.

A run is a line of train.py's options. Shapes are written out, and the tests hold each to what it claims to be matched in; the
iterations that give a model as many training multiply-adds as its reference follow from both shapes (cost.py). Plain Python:
baselines.py lists, trains and indexes what is here.
"""
import shlex
from dataclasses import dataclass

from . import cost, options

SEEDS = (1, 2, 3)
MATCHED_WITHIN = 0.05
SHAKESPEARE, LISTOPS = "tinyshakespeare.txt", "add_10:6,max_10,median_10"
FAMILIES, SIZES, VARIANTS, GAP, DEPTHS = "families", "listops-sizes", "cem-variants", "gap", "depths"
EXPERIMENTS = {
    FAMILIES: "families, each matched with its reference in parameters, in inference and in training multiply-adds",
    SIZES: "ListOps: exact match against parameters",
    VARIANTS: "CEM: diagonal and preconditioner",
    GAP: "training and validation loss against size",
    DEPTHS: "NRGPT trained at one T or at many, as long each (trained at 4: the reference of families)",
}

_TEXT = f"--text {SHAKESPEARE} --block 128 --batch 8 --short-windows 0 --lr 0.002"
_LISTOPS = (f"--listops {LISTOPS} --lines 300000 --flat-lines 0.7 --block 96 --batch 10 --short-windows 0 --lr 0.002 "
            "--iterations 4000 --heads 4")
_ITERATIONS, _GAP_ITERATIONS = 1000, 1500
# Muon's: what was best of 0.005, 0.01, 0.02, 0.04 and 0.08 for each family, on 400 batches with another seed.
_RATES = {"nrgpt": 0.01, "gpt": 0.02, "gpt-rec-parallel": 0.04, "cem": 0.04, "llama": 0.04, "cem-swiglu": 0.04,
          "llama-cem": 0.04}
_LISTOPS_RATE = 0.3  # of these: NRGPT calculates at 0.003, and hardly at 0.015

_REFERENCES = {
    "nrgpt": "--width 48 --heads 4 --hidden 96 --steps 4",
    "cem": "--width 48 --heads 4 --hidden 96 --layers 2 --steps 2",
}
# family: (its reference's, as many parameters, as many multiply-adds a token)
_BASELINES = {
    "gpt": ("nrgpt", "--width 32 --heads 4 --layers 2", "--width 68 --heads 4 --layers 4"),
    "gpt-rec-parallel": ("nrgpt", "--width 43 --heads 4 --steps 4", "--width 68 --heads 4 --steps 4"),
    "llama": ("cem", "--width 40 --heads 4 --hidden 80 --layers 2", "--width 80 --heads 4 --hidden 120 --layers 2"),
    "cem-swiglu": ("cem", "--width 40 --heads 4 --hidden 100 --layers 2 --steps 2",
                   "--width 56 --heads 4 --hidden 112 --layers 2 --steps 2"),
    "llama-cem": ("cem", "--width 40 --heads 4 --hidden 108 --layers 2 --steps 2",
                  "--width 48 --heads 4 --hidden 192 --layers 2 --steps 2"),
}
_VARIANTS = {  # the reference has a shared diagonal and a preconditioner of rank 8
    "diagonal-none": "--diagonal none",
    "diagonal-per-head": "--diagonal per_head",
    "preconditioner-none": "--rank -1",
    "preconditioner-diagonal": "--rank 0",
}
# Thousands of parameters: (NRGPT's width, that of GPT's three blocks, of GPT_Rec_parallel's one)
_LISTOPS_SIZES = {10: (25, 15, 24), 18: (34, 20, 33), 29: (45, 26, 43), 57: (66, 38, 64), 98: (88, 50, 84)}
_PAPER_SIZE, _OTHER_SIZES, _LARGEST_SIZE = 29, (18, 57, 10), 98  # the first is where the paper finds that NRGPT learns
_GAP_SIZES = {13: (26, 18), 34: (48, 32), 86: (84, 54), 161: (120, 76)}  # the same: NRGPT's width, that of GPT's two blocks


@dataclass(frozen=True)
class Planned:
    """A run: train.py's options are `words`; what it is matched in is None, or parameters, inference or training."""

    name: str
    experiments: tuple
    words: str
    seed: int
    reference: str | None = None
    matched: str | None = None

    @property
    def settings(self):
        """The options as train.py reads them."""
        return options.arguments([self.name, *shlex.split(self.words)])

    @property
    def trained_on(self):
        return "listops" if self.settings.listops else "shakespeare"


MEASURES = {"parameters": cost.parameters, "inference": cost.inference, "training": cost.training}


def off(run, reference):
    """By what share of the reference's a run's figure is off, of what it is matched in."""
    measure = MEASURES[run.matched]
    return measure(run.settings) / measure(reference.settings) - 1


def runs():
    """All of the plan, what says most first: every question with one seed, then the others."""
    out = []
    for seed in SEEDS:
        out += _families(seed) + _listops(seed, [_PAPER_SIZE]) + _variants(seed)
        if seed == SEEDS[0]:
            out += _depths(seed) + _gap(seed) + _listops(seed, _OTHER_SIZES)
    return out + _listops(SEEDS[0], [_LARGEST_SIZE]) + [run for seed in SEEDS[1:] for run in _depths(seed)]


def _planned(name, experiments, family, shape, data, seed, iterations=None, **matched):
    rate = _RATES[family] * (_LISTOPS_RATE if data is _LISTOPS else 1)
    words = f"--model {family} {shape} {data} --muon-lr {rate:.3g}"
    if iterations:
        words += f" --iterations {iterations}"
    return Planned(f"{name}-{seed}", experiments, f"{words} --seed {seed}", seed, **matched)


def _families(seed):
    """The references, then all that is matched in one figure before the next."""
    references = {family: _planned(f"text-{family}", (FAMILIES, VARIANTS) if family == "cem" else (FAMILIES,), family, shape,
                                   _TEXT, seed, _ITERATIONS) for family, shape in _REFERENCES.items()}
    out = list(references.values())
    for matched in MEASURES:
        for family, (of, parameters, inference) in _BASELINES.items():
            def run(iterations, reference=references[of]):
                return _planned(f"text-{family}-{matched}", (FAMILIES,), family, inference if matched == "inference" else parameters,
                                _TEXT, seed, iterations, reference=reference.name, matched=matched)
            made = run(_ITERATIONS)
            if matched == "training":
                share = cost.training(references[of].settings) / cost.training(made.settings)
                made = run(round(share * _ITERATIONS))
            out.append(made)
    return out


def _variants(seed):
    return [_planned(f"text-cem-{name}", (VARIANTS,), "cem", f"{_REFERENCES['cem']} {variant}", _TEXT, seed, _ITERATIONS)
            for name, variant in _VARIANTS.items()]


def _depths(seed):
    at = {"at-1": "--steps 1", "at-2": "--steps 2", "at-8": "--steps 8", "at-many": "--steps 4 --random-steps 1 8"}
    shape = _REFERENCES["nrgpt"].replace(" --steps 4", "")
    return [_planned(f"text-nrgpt-{name}", (DEPTHS,), "nrgpt", f"{shape} {steps}", _TEXT, seed, _ITERATIONS) for name, steps in at.items()]


def _listops(seed, sizes):
    out = []
    for size in sizes:
        nrgpt, gpt, recursive = _LISTOPS_SIZES[size]
        shapes = {"nrgpt": f"--width {nrgpt} --hidden {3 * nrgpt} --mask strict --steps 5 --random-steps 3 7",
                  "gpt": f"--width {gpt} --layers 3",
                  "gpt-rec-parallel": f"--width {recursive} --steps 5 --random-steps 3 7"}
        out += [_planned(f"listops-{family}-{size}k", (SIZES,), family, shape, _LISTOPS, seed)
                for family, shape in shapes.items()]
    return out


def _gap(seed):
    out = []
    for size, (nrgpt, gpt) in _GAP_SIZES.items():
        shapes = {"nrgpt": f"--width {nrgpt} --heads 4 --hidden {2 * nrgpt} --steps 4", "gpt": f"--width {gpt} --heads 4 --layers 2"}
        out += [_planned(f"gap-{family}-{size}k", (GAP,), family, shape, _TEXT, seed, _GAP_ITERATIONS)
                for family, shape in shapes.items()]
    return out


# Microseconds a token and step of a block spends between the products, and multiply-adds/s of these: of one core of a Zen 5
# server with bfloat16 products.
_BETWEEN = {"nrgpt": 2.0, "gpt": 4.5, "gpt-rec-parallel": 3.5, "cem": 3.0, "llama": 2.5, "cem-swiglu": 2.6, "llama-cem": 1.5}
_PRODUCTS = 75e9
_AROUND = 10  # seconds: starting, measuring


def seconds(run):
    """A guess at a core's seconds for the run, its measuring included."""
    a = run.settings
    passes = {"nrgpt": a.steps, "gpt": a.layers, "gpt-rec-parallel": a.steps, "llama": a.layers}.get(a.model, a.layers * a.steps)
    return _AROUND + cost.training(a) / _PRODUCTS + cost.training_tokens(a) * passes * _BETWEEN[a.model] * 1e-6
