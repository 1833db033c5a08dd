"""Where the module finds its library, and that the README's example runs."""
import os
import re
import shutil
import subprocess
import sys

import numpy as np
from conftest import ROOT, model_path
from descent import _native

PACKAGE = ROOT / "tools" / "python" / "descent"
LIBRARY = _native.library._name


def import_in(directory, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("DESCENT_LIBRARY", "PYTHONPATH")}
    return subprocess.run([sys.executable, "-c", "import descent; print(descent._native.library._name)"], cwd=directory,
                          env={**kept, **environment}, capture_output=True, text=True)


def test_the_library_named_is_the_only_one_tried(tmp_path):
    assert import_in(PACKAGE.parent, DESCENT_LIBRARY=LIBRARY).stdout.strip() == LIBRARY
    shutil.copytree(PACKAGE, tmp_path / "descent")
    shutil.copy(LIBRARY, tmp_path / "descent" / "libdescent.so")
    missing = import_in(tmp_path, DESCENT_LIBRARY=str(tmp_path / "nowhere.so"))
    assert missing.returncode != 0 and "nowhere.so" in missing.stderr and "DESCENT_LIBRARY" in missing.stderr


def test_the_library_beside_the_package_comes_next(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "descent")
    shutil.copy(LIBRARY, tmp_path / "descent" / "libdescent.so")
    assert import_in(tmp_path).stdout.strip() == str(tmp_path / "descent" / "libdescent.so")


def test_then_the_repositorys_release_build(tmp_path):
    package = tmp_path / "tools" / "python" / "descent"
    shutil.copytree(PACKAGE, package)
    (tmp_path / "build" / "release").mkdir(parents=True)
    shutil.copy(LIBRARY, tmp_path / "build" / "release" / "libdescent.so")
    assert import_in(package.parent).stdout.strip() == str(tmp_path / "build" / "release" / "libdescent.so")


def test_objects_left_open_at_exit_are_closed_in_order():
    code = ("import descent, sys; m = descent.Model(sys.argv[1]); s = m.sequence(); s.append([1, 2]);"
            "s.observe('energy', lambda o: s); s.finish(); b = s.cache.batch(); print('done')")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "DESCENT_LIBRARY": LIBRARY}
    done = subprocess.run([sys.executable, "-c", code, model_path("nrgpt-ff1")], env=environment, capture_output=True,
                          text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_the_readmes_example(capsys):
    text = (PACKAGE.parent / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    example = example.replace("models/nrgpt-shakespeare.gguf", str(model_path("nrgpt-ff2w")))
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    run, length = names["run"], len(names["ids"])
    assert run.states.shape == run.g.shape == (7, length, 64) and run.energy["feed_forward"].shape == (7, length)
    assert run.own_change.shape == run.history_change.shape == run.relative_change.shape == (6, length)
    assert names["logits"].shape == (4, length, 65)
    assert np.array_equal(names["changed"][:4], run.logits[:4]) and not np.array_equal(names["changed"][4], run.logits[4])
    assert len(capsys.readouterr().out) > 0
