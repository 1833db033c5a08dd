"""Fixtures of the converter's tests: running it, in this process or as a program, and making checkpoints to run it on."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(ROOT / "tools"))
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "tests" / "support")]

import in_process  # noqa: E402
from descent_convert import cli  # noqa: E402


@pytest.fixture
def convert(capsys):
    """convert(IN, OUT, options...) in this process: exit status and what was printed."""
    return lambda *arguments: in_process.run(cli.main, arguments, capsys)


@pytest.fixture
def good(convert, tmp_path):
    """Converts what must convert; returns the file written."""
    def run(source, *options):
        out = tmp_path / "out.gguf"
        result = convert(source, out, *options)
        assert result.status == 0, result.err
        assert result.out.count("\n") == 1 and str(out) in result.out
        return out
    return run


@pytest.fixture
def refused(convert, tmp_path):
    """Converts what must not convert: one line that holds every word, exit status 1, nothing left behind."""
    def run(source, *words, options=()):
        directory = tmp_path / "refused"
        directory.mkdir(exist_ok=True)
        result = convert(source, directory / "out.gguf", *options)
        assert result.status == 1, result.out
        assert result.out == ""
        assert result.err.startswith("convert.py: ") and result.err.count("\n") == 1 and result.err.endswith("\n")
        for word in words:
            assert word in result.err
        assert os.listdir(directory) == []
        return result.err
    return run


@pytest.fixture
def program():
    """The converter as users start it."""
    def run(*arguments, python=sys.executable, script=ROOT / "tools" / "convert.py", **options):
        done = subprocess.run([python, str(script), *map(str, arguments)], text=True, capture_output=True, timeout=120,
                              **options)
        return in_process.Result(done.returncode, done.stdout, done.stderr)
    return run
