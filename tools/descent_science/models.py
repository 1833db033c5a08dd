"""The models that are measured: those that ship under models/, with their cards' figures, and those of models/science, which were
trained to be compared.
"""
import json
import re
import sys
from pathlib import Path

from .section import joined

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/train"))
from descent_train import intervals, listops, plan  # noqa: E402, F401  (the trainer's own: read from here by the claims)


class Shipped:
    """A model of models/ by name. `text` and `items` are the data it is measured on, either None where it has none; `figures` is what its
    card was made from: `swept` and `fixed` hold rows of this model at every T, and of models trained at one T each."""

    def __init__(self, models, name):
        self.name, self.path = name, Path(models) / f"{name}.gguf"
        data = Path(models) / "data"
        self.text, self.items = (path if path.is_file() else None for path in (data / f"{name}.val.txt", data / f"{name}.eval.tsv"))
        figures = data / f"{name}.figures.json"
        self.figures = json.loads(figures.read_text(encoding="utf-8")) if figures.is_file() else {}

    @property
    def trained_over(self):
        """Lowest and highest T that training batches drew, by the model's card; None where they all had one T."""
        drawn = re.search(r"drew T from (\d+) to (\d+)", self.figures.get("facts", {}).get("depth", ""))
        return [int(t) for t in drawn.groups()] if drawn else None

    def worked(self, count):
        """The worked chains of the first so many questions, each a text whose special tokens are spelled out."""
        return [listops.VOCAB.decode(listops.chain(item.prompt[:-1])) for item in listops.read_items(self.items)[:count]]


class Trained:
    """A run of models/science: `entry` is the index's (tools/train/baselines.py has its schema)."""

    def __init__(self, folder, entry):
        self.entry, self.name, self.path = entry, entry["name"], folder / entry["file"]
        self.texts = {what: folder / path for what, path in entry["texts"].items()}

    @property
    def has_steps(self):
        return self.entry["T"] != "none"


class Science:
    """models/science: the runs of its index. Any run of the plan may be missing, and all of them."""

    def __init__(self, folder):
        folder = Path(folder)
        index = folder / "index.json"
        told = json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {"runs": []}
        self.runs = {entry["name"]: Trained(folder, entry) for entry in told["runs"]}

    def of(self, experiment):
        """The runs that are there, in the order of the plan."""
        return [run for run in self.runs.values() if experiment in run.entry["experiments"]]

    def missing(self, experiment):
        """What is planned and not there, seeds together: ["text-gpt-training (seeds 2 and 3)"]."""
        absent = {}
        for run in plan.runs():
            if experiment in run.experiments and run.name not in self.runs:
                absent.setdefault(run.name.removesuffix(f"-{run.seed}"), []).append(str(run.seed))
        return [f"`{name}` (seed{'s' if len(seeds) > 1 else ''} {joined(seeds)})" for name, seeds in absent.items()]
