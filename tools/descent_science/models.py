"""The models that are measured: those that ship under models/, with their cards' figures, and those of models/science, which were
trained to be compared.
"""
import json
import re
from pathlib import Path


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


class Science:
    """models/science: `entries` of its index, as the trainer wrote them; none where there is no index."""

    def __init__(self, folder):
        self.folder = Path(folder)
        index = self.folder / "index.json"
        self.index = json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
