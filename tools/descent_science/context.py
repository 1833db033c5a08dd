"""What a claim measures with: the program, the models, the cache of what was measured before.

A measurement is kept under the hash of what it depends on: the program's version, the contents of every file it read, and
the options; of a computation in Python also the source of the module that makes it. Another model file under the same name
is thus another measurement, and the same file under another name is not.
"""
import datetime
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .models import ROOT, Science, Shipped


class ScienceError(Exception):
    """What is told to whoever ran the command, without a traceback."""


def digest(path):
    """Of a file's contents."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Context:
    """descent: the program. models: the directory with models, data/ and science/. work: a directory of its own. quick: little of
    everything. say: called with what is being measured."""

    def __init__(self, descent, models, work, quick=False, say=lambda text: None):
        self.descent, self.models, self.work, self.quick, self.say = Path(descent), Path(models), Path(work), quick, say
        self.work.mkdir(parents=True, exist_ok=True)
        self.science = Science(self.models / "science")
        self.version = self._told("--version").strip()
        self.stamps = []  # of everything measured or found since the command last emptied it
        self._digests = {}
        self._module = None

    # ---- Models and data

    def shipped(self, name):
        """One of the models that ship, by name: models.Shipped."""
        found = Shipped(self.models, name)
        if not found.path.is_file() or not (found.text or found.items):
            raise ScienceError(f"{found.path} and its data are not there")
        return found

    def pick(self, full, quick):
        """`full`, or with --quick `quick`."""
        return quick if self.quick else full

    def head(self, path, characters):
        """A file of the first so many characters of a text."""
        return self._input(Path(path).read_text(encoding="utf-8")[:characters], Path(path).suffix)

    def lines(self, path, count):
        """A file of the first so many lines of another."""
        kept = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)[:count]
        return self._input("".join(kept), Path(path).suffix)

    def file(self, text, suffix=".txt"):
        """A file of this text."""
        return self._input(text, suffix)

    def _input(self, text, suffix):
        data = text.encode()
        path = self.work / "inputs" / (hashlib.sha256(data).hexdigest()[:24] + suffix)
        if not path.is_file():
            self._keep(path, data)
        return path

    # ---- Measuring

    def run(self, command, model, *options, fresh=False):
        """What `descent COMMAND MODEL OPTIONS --json` answers. An option that is a Path counts by the file's contents, any other by its
        text. `fresh` measures again whatever was kept: for times."""
        return self._measured(["run", *self._asked(command, model, options)], lambda: self.ask(command, model, *options), fresh)

    def ask(self, command, model, *options):
        """The same, neither looked for nor kept: for what is part of a larger measurement that is."""
        self.stamps.append(self.stamp())
        self.say(" ".join(["descent", command, *(one.name if isinstance(one, Path) else str(one) for one in (Path(model), *options))]))
        return json.loads(self._told(command, str(model), *map(str, options), "--json"))

    def scale(self, model, *options, fresh=False):
        """`descent scale` with what each input (a window, a text, a record) gave: {"told": its answer, "inputs": {T: {field: [of each
        input, in their order]}}}; the fields are those of its --resume file, such as nats, predictions, right and seconds."""
        def ask():
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                log = Path(folder) / "inputs.jsonl"
                told = self.ask("scale", model, *options, "--resume", log)
                setup, *lines = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
            lines.sort(key=lambda line: line["input"])
            return {"told": told, "inputs": {
                steps: {field: [line["readings"][i][f] for line in lines] for f, field in enumerate(setup["fields"])}
                for i, steps in enumerate(setup["depths"])}}

        return self._measured(["scale", *self._asked("scale", model, options)], ask, fresh)

    def cached(self, what, files, settings, compute):
        """What compute() returns, as JSON has it: kept by `what`, the contents of `files`, `settings` and the source of the module that
        compute is from."""
        source = self._digest(Path(sys.modules[compute.__module__].__file__))
        key = ["cached", self.version, source, what, [self._digest(path) for path in files], settings]

        def ask():
            self.say(f"{what} of {', '.join(Path(path).name for path in files)}")
            return json.loads(json.dumps(compute()))

        return self._measured(key, ask, False)

    def open(self, model):
        """The model in the Python module, a descent.Model of the library beside the program; use it in a `with`."""
        if self._module is None:
            library = self.descent.parent / "libdescent.so"
            if not library.is_file():
                raise ScienceError(f"{library} is not there: the library is looked for beside the program")
            os.environ["DESCENT_LIBRARY"] = str(library)
            sys.path.insert(0, str(ROOT / "tools" / "python"))
            import descent
            self._module = descent
        return self._module.Model(model)

    @property
    def descent_module(self):
        """The Python module itself, once a model was opened."""
        return self._module

    def stamp(self):
        """When something was measured, and how busy the machine was then: to be kept beside times."""
        return {"at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "load": round(os.getloadavg()[0], 2),
                "processors": len(os.sched_getaffinity(0))}

    # ---- Its own

    def _asked(self, command, model, options):
        return [self.version, command, self._digest(model),
                *(self._digest(option) if isinstance(option, Path) else str(option) for option in options)]

    def _digest(self, path):
        path = Path(path)
        try:
            seen = path.stat()
        except OSError as error:
            raise ScienceError(f"{path}: {error.strerror}") from error
        known = (str(path), seen.st_size, seen.st_mtime_ns)
        if known not in self._digests:
            self._digests[known] = digest(path)
        return self._digests[known]

    def _measured(self, key, ask, fresh):
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        path = self.work / "measured" / f"{name[:40]}.json"
        if path.is_file() and not fresh:
            found = json.loads(path.read_text(encoding="utf-8"))
            self.stamps.append(found["stamp"])
            return found["answer"]
        began, stamp = time.monotonic(), self.stamp()
        self.stamps.append(stamp)
        answer = ask()
        self._keep(path, json.dumps({"key": key, "stamp": stamp, "seconds": time.monotonic() - began, "answer": answer}).encode())
        return answer

    def _keep(self, path, data):
        """At once, or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_bytes(data)
        part.replace(path)

    def _told(self, *words):
        try:
            done = subprocess.run([self.descent, *words], capture_output=True, text=True, check=False)
        except OSError as error:
            raise ScienceError(f"{self.descent}: {error.strerror}") from error
        if done.returncode != 0:
            raise ScienceError(f"descent {' '.join(words)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return done.stdout
