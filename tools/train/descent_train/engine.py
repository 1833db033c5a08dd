"""What the engine says of a converted model, by `descent scale` and `descent info`: parameters, counted multiply-adds, the
loss at every T and exact match. Everything in the index that is measured is measured here, on the file that ships.
"""
import json
import os
import subprocess

from . import depth
from .vocab import DataError

_NUMBERS = (1, 2, 3, 4, 6, 8)
_PAIRS = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4))
_WINDOWS = 2  # whole windows that multiply-adds are counted over


class Engine:
    """The program `descent` at `binary`; `scratch` is a directory for texts it is given."""

    def __init__(self, binary, scratch, threads=1):
        self.binary, self.scratch, self.threads = binary, scratch, threads

    def _json(self, *words):
        done = subprocess.run([self.binary, *map(str, words), "--json"], capture_output=True, text=True)
        if done.returncode:
            raise DataError(f"{self.binary} {words[0]}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def _rows(self, model, what, path, depths):
        """{label of T: row} of descent scale."""
        steps = [] if depths == [None] else ["--steps", ",".join(map(depth.label, depths))]
        rows = self._json("scale", model, what, path, *steps, "--threads", self.threads)["rows"]
        if len(rows) != len(depths):
            raise DataError(f"{model}: {len(rows)} rows for {len(depths)} depths")
        return dict(zip(map(depth.label, depths), rows))

    def _counted(self, model, text, block, depths):
        """{label of T: multiply-adds a token} over whole windows."""
        path = os.path.join(self.scratch, "counted.txt")
        with open(path, "wb") as file:
            file.write(text(_WINDOWS * block + 1).encode())
        rows = self._rows(model, "--text", path, depths)
        return {T: row["multiply_adds"] / row["tokens"] for T, row in rows.items()}

    def measured(self, model, a, words, texts):
        """What entries of the index have of a model trained with the options `a`. words(n): a text of n tokens; texts: paths of
        "validation" and "training" text, or of "items"."""
        trained, depths = depth.trained(a), read_at(a)
        info = self._json("info", model)
        counted = self._counted(model, words, a.block, depths)
        found = {"T": depth.label(trained), "parameters": info["parameters"], "weights": info["weight_type"],
                 "file_bytes": os.path.getsize(model), "multiply_adds": counted[depth.label(trained)], "train_loss": None,
                 "validation": None, "exact_match": None}
        if "items" in texts:
            rows = self._rows(model, "--records", texts["items"], depths)
            found["exact_match"] = [{"T": T, "multiply_adds": counted[T], "right": row["right"], "items": row["items"]}
                                    for T, row in rows.items()]
            return found
        rows = self._rows(model, "--text", texts["validation"], depths)
        found["validation"] = [{"T": T, "multiply_adds": counted[T], "loss": row["loss"], "low": row["intervals"]["loss"][0],
                                "high": row["intervals"]["loss"][1]} for T, row in rows.items()]
        (row,) = self._rows(model, "--text", texts["training"], [trained]).values()
        found["train_loss"] = row["loss"]
        return found


def read_at(a):
    """Every T that a model with these options is read at, the trained one among them."""
    trained = depth.trained(a)
    if trained is None:
        return [None]
    return sorted({*(_PAIRS if isinstance(trained, tuple) else _NUMBERS), trained})
