"""What the client tests share: the models they ask, servers of their own, and the engine to compare with. Nothing here skips:
a client that is not installed is a failure of the suite."""
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools"), str(ROOT / "tools" / "python")]

from serving import BINARY, Server  # noqa: E402

os.environ.setdefault("DESCENT_LIBRARY", str(BINARY.parent / "libdescent.so"))

import descent  # noqa: E402
from descent_generate import cli as generate  # noqa: E402

# One model of each chat template; both tokenizer kinds and both families among them.
CHAT = {
    "plain": ("nrgpt", "--steps", "3"),
    "chatml": ("nrgpt", "--steps", "3", "--seed", "3"),
    "llama2": ("cem", "--steps", "2x2", "--tokenizer", "sentencepiece"),
    "llama3": ("nrgpt", "--steps", "3", "--variant", "ff1"),
}
SMALL = ("--width", "32", "--heads", "2", "--hidden", "64", "--vocab", "600", "--context", "2048")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than 20 s on two cores")


@pytest.fixture(scope="session")
def chat_models(tmp_path_factory):
    """Path of a model for each chat template, by the template's name."""
    folder = tmp_path_factory.mktemp("chat")
    for template, (shape, *flags) in CHAT.items():
        assert generate.main([shape, str(folder / f"{template}.gguf"), *SMALL, "--chat-template", template, *flags]) == 0
    return {template: folder / f"{template}.gguf" for template in CHAT}


@pytest.fixture(scope="session")
def model_paths(chat_models):
    """Every model that the servers here serve, by its name: those of the chat templates and three that ship."""
    shipped = {name: ROOT / "models" / f"{name}.gguf" for name in ("nrgpt-listops", "nrgpt-shakespeare", "cem-kjv")}
    return {**chat_models, **shipped}


@pytest.fixture(scope="module")
def server(model_paths):
    """A server of all models for the tests of one file."""
    with Server(model_paths.values()) as server:
        yield server


@pytest.fixture
def serve():
    """serve(models, *flags): one more server, for what needs other flags."""
    started = []

    def start(models, *flags):
        started.append(Server(models, *flags))
        return started[-1].__enter__()

    yield start
    for one in started:
        one.__exit__(None, None, None)


@pytest.fixture(scope="session")
def engine(model_paths):
    """engine(name): the model opened with libdescent itself."""
    opened = {}

    def open_model(name):
        if name not in opened:
            opened[name] = descent.Model(str(model_paths[name]))
        return opened[name]

    yield open_model
    for model in opened.values():
        model.close()
