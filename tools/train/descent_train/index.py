"""models/science: the trained models of the plan and index.json, which says what each is and what was measured of it.

baselines.py has the schema. The index is read and written whole, appears whole or not at all, and may lack any run of the
plan: what is not there has not been trained yet. Texts and test items that figures were measured on lie in models/data
already, or are kept beside the index, once.
"""
import json
import os
import shlex

from . import cost, plan
from .vocab import DataError

FORMAT = 1


class Index:
    """The index in `directory`; `runs` are its entries by name."""

    def __init__(self, directory, data):
        """data: the directory of the files that figures are measured on, of models that ship already."""
        self.directory, self.data = directory, data
        self.path = os.path.join(directory, "index.json")
        try:
            with open(self.path, encoding="utf-8") as file:
                read = json.load(file)
            if read["format"] != FORMAT:
                raise DataError(f"{self.path}: format {read['format']!r}; expected {FORMAT}")
            self.runs = {entry["name"]: entry for entry in read["runs"]}
        except FileNotFoundError:
            self.runs = {}
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: expected an index of models: {error!r}") from None

    def has(self, run):
        """True where the run is in the index as the plan has it now, and its model is there."""
        entry = self.runs.get(run.name)
        return (entry is not None and entry["options"] == run.words
                and os.path.exists(os.path.join(self.directory, entry["file"])))

    def put(self, entry, model):
        """Takes a model's file in, and then its entry."""
        os.makedirs(self.directory, exist_ok=True)
        with open(model, "rb") as file:
            _replace(os.path.join(self.directory, entry["file"]), file.read())
        self.runs[entry["name"]] = entry
        self.write()

    def write(self):
        order = {run.name: i for i, run in enumerate(plan.runs())}
        entries = sorted(self.runs.values(), key=lambda entry: (order.get(entry["name"], len(order)), entry["name"]))
        whole = {"format": FORMAT, "experiments": plan.EXPERIMENTS, "runs": entries}
        _replace(self.path, (json.dumps(whole, indent=1) + "\n").encode())

    def keep(self, content, name):
        """The path, from the index, of a file with this content: one that models are measured on already, or a new one."""
        os.makedirs(self.directory, exist_ok=True)  # a path from there leads nowhere while it is not
        for known in sorted(os.listdir(self.data)):
            path = os.path.join(self.data, known)
            if os.path.getsize(path) == len(content):
                with open(path, "rb") as file:
                    if file.read() == content:
                        return os.path.relpath(path, self.directory)
        os.makedirs(os.path.join(self.directory, "data"), exist_ok=True)
        path = os.path.join(self.directory, "data", name)
        if not os.path.exists(path):
            _replace(path, content)
        with open(path, "rb") as file:
            if file.read() != content:
                raise DataError(f"{path}: not what this run is measured on; runs in one index are measured on the same texts")
        return os.path.join("data", name)


def shape(a):
    """What of a model's options says its shape."""
    said = {"width": a.width, "heads": a.heads, "hidden": a.hidden or 4 * a.width, "block": a.block}
    if a.model in ("gpt", "cem", "llama", "cem-swiglu", "llama-cem"):
        said["layers"] = a.layers
    if a.model in ("cem", "cem-swiglu"):
        said["diagonal"] = a.diagonal
    if a.model in ("cem", "cem-swiglu", "llama-cem"):
        said["rank"] = a.rank
    return said


def entry(run, reference, measured, seconds):
    """The entry of a run: what the plan says of it, what the engine measured (engine.py), and seconds of CPU it was trained."""
    a = run.settings
    matched = None
    if reference is not None:
        matched = {"reference": reference.name, "in": run.matched, "off": round(plan.off(run, reference), 4)}
    return {"name": run.name, "file": run.name + ".gguf", "family": a.model, "experiments": list(run.experiments),
            "seed": run.seed, "matched": matched, "options": run.words, "shape": shape(a),
            "trained_steps": list(a.random_steps) if a.random_steps else None, **measured,
            "training_tokens": cost.training_tokens(a), "training_multiply_adds": round(cost.training(a)),
            "seconds": round(seconds, 1)}


def command(entry):
    """How a run of the index is trained by hand."""
    return shlex.join(["python3", "tools/train/train.py", "runs/" + entry["name"], *shlex.split(entry["options"])])


def _replace(path, content):
    with open(path + ".new", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
