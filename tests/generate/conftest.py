"""Fixtures of the generator's tests: running it, in this process or as a program, and opening what it made with the engine,
through tools/python and $DESCENT_LIBRARY (CTest sets it)."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools" / "generate_model.py"
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "python"), str(ROOT / "tests" / "support")]

import descent  # noqa: E402
import in_process  # noqa: E402
from descent_generate import cli  # noqa: E402


@pytest.fixture
def generate(capsys):
    """generate(SHAPE, OUT, options...) in this process: exit status and what was printed."""
    return lambda *arguments: in_process.run(cli.main, arguments, capsys)


@pytest.fixture
def made(generate, tmp_path):
    """Makes what can be made; returns the file."""
    def run(*arguments, name="out.gguf"):
        shape, *options = arguments
        result = generate(shape, tmp_path / name, *options)
        assert result.status == 0, result.err
        return tmp_path / name
    return run


@pytest.fixture
def opened(made):
    """Makes a model and opens it with the engine."""
    models = []

    def run(*arguments):
        models.append(descent.Model(str(made(*arguments, name=f"{len(models)}.gguf"))))
        return models[-1]

    yield run
    for model in models:
        model.close()
