"""Fixtures of the tests of what lies in tools/ beside the program's own commands: the benchmarks."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build")) / "descent"
sys.path[:0] = [str(ROOT / "tools")]


@pytest.fixture(scope="session")
def golden():
    """Path of a golden model, converted, by name."""
    folder = pathlib.Path(os.environ["DESCENT_GOLDEN_DIR"])
    return lambda name: folder / f"{name}.gguf"


@pytest.fixture(scope="session")
def bench():
    """bench(*arguments): `descent bench` on one thread; what it exited with and printed."""
    def run(*arguments):
        return subprocess.run([BINARY, "bench", "-t", "1", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    return run


@pytest.fixture(scope="session")
def told(bench):
    """told(*arguments): what it says with --json."""
    def run(*arguments):
        done = bench(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return run
