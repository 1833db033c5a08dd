"""What the end-to-end tests share: the program, the shipped models, small models made on the spot, and a terminal."""
import os
import subprocess
from pathlib import Path

import pytest

import models
from terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build")) / "descent"


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than 20 s on two cores")


class Result:
    """What one run of the program left: exit code, and both outputs as bytes and as text."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr.decode()

    @property
    def text(self):
        return self.out.decode()


def environment():
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    env["TERM"] = "xterm"
    return env


@pytest.fixture(scope="session")
def binary():
    assert BINARY.is_file(), f"{BINARY} is missing: build first, or set DESCENT_BUILD_DIR"
    return BINARY


@pytest.fixture(scope="session")
def descent(binary):
    """descent(*arguments, input=b""): runs the program with pipes at all three ends."""

    def run(*arguments, input=b"", timeout=300):
        done = subprocess.run([binary, *map(str, arguments)], input=input, capture_output=True,
                              timeout=timeout, env=environment())
        return Result(done)

    return run


@pytest.fixture
def terminal(binary):
    """terminal(*arguments): starts the program on a terminal of its own."""
    started = []

    def start(*arguments, **how):
        started.append(Terminal([binary, *map(str, arguments)], environment(), **how))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def shipped():
    """Path of a model that ships, by name."""
    return lambda name: ROOT / "models" / f"{name}.gguf"


@pytest.fixture(scope="session")
def data():
    return ROOT / "models" / "data"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Small random models as files, by what is special about them (models.py)."""
    folder = tmp_path_factory.mktemp("models")
    return models.write_all(folder)
