"""The program as users start it: its exit status, its streams, where it finds its packages, what memory it takes."""

import os
import pty
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import checkpoints
import reading
import torch_writer
from checkpoints import nrgpt_state, training
from conftest import GOLDEN, ROOT
from peak import peak, watched


def test_summary(program, tmp_path):
    result = program(GOLDEN / "nrgpt-ff2w", tmp_path / "m.gguf", "--type", "q8_0", "--name", "my model")
    assert result.status == 0 and result.err == ""
    size = (tmp_path / "m.gguf").stat().st_size
    assert result.out == (f"{tmp_path}/m.gguf: nrgpt (ff2w causal layernorm matrix), 56066 parameters in 16 tensors, q8_0, "
                          f"{size} bytes, tokenizer: chars, 65 tokens\n")
    assert reading.fields(tmp_path / "m.gguf")["general.name"] == "my model"


def test_relative_paths(program, tmp_path):
    shutil.copytree(GOLDEN / "nrgpt-ff1", tmp_path / "in")
    assert program("ckpt.pt", "m.gguf", cwd=tmp_path / "in").status == 0
    fields = reading.fields(tmp_path / "in" / "m.gguf")
    assert fields["general.name"] == "m" and fields["tokenizer.ggml.model"] == "chars"
    assert program("in", "n.gguf", cwd=tmp_path).status == 0  # a GGUF file in the directory is no second checkpoint

@pytest.mark.parametrize("arguments", [
    [], ["in"], ["in", "out", "more"], ["in", "out", "--type", "q5_0"], ["in", "out", "--steps", "0"],
    ["in", "out", "--steps", "65536"], ["in", "out", "--steps", "-1"], ["in", "out", "--steps", "1000000000"],
    ["in", "out", "--steps", "2x"], ["in", "out", "--steps", "2x0"], ["in", "out", "--steps", "\u0664"],
    ["in", "out", "--mask", "none"], ["in", "out", "--variant", "ff3"], ["in", "out", "--fast"]])
def test_usage(arguments, convert):
    result = convert(*arguments)
    assert result.status == 2 and result.err.count("\n") == 1 and "--help" in result.err


def test_help(program):
    result = program("--help")
    assert result.status == 0
    for option in ("--type", "--steps", "--tokenizer", "--mask", "--variant", "--name"):
        assert option in result.out


def test_names_that_are_not_utf8(program, tmp_path):
    path = os.fsencode(tmp_path / "ckpt") + b"\xff.pt"
    with open(path, "wb") as file:
        file.write(torch_writer.saved(training(nrgpt_state())))
    out = os.fsencode(tmp_path / "out") + b"\xfe.gguf"
    result = program(os.fsdecode(path), os.fsdecode(out), env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert result.status == 0 and result.out.count("\n") == 1
    assert program(os.fsdecode(path) + "x", os.fsdecode(out)).status == 1


# -- Finding the packages

def repository(tmp_path, venv=None):
    """A copy of the tools, with a .venv whose python is the script `venv`."""
    root = tmp_path / "repository"
    shutil.copytree(ROOT / "tools" / "descent_convert", root / "tools" / "descent_convert")
    shutil.copy(ROOT / "tools" / "convert.py", root / "tools")
    if venv is not None:
        (root / ".venv" / "bin").mkdir(parents=True)
        (root / ".venv" / "bin" / "python").write_text(venv)
        (root / ".venv" / "bin" / "python").chmod(0o755)
    return root / "tools" / "convert.py"


@pytest.fixture
def bare_python(tmp_path):
    """A Python without any packages."""
    path = tmp_path / "bare"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
    path.chmod(0o755)
    return path


def test_venv_takes_over(bare_python, program, tmp_path):
    script = repository(tmp_path, f"#!/bin/sh\nexec {sys.executable} \"$@\"\n")
    result = program(GOLDEN / "nrgpt-ff1", tmp_path / "m.gguf", "--name", "two words", python=bare_python, script=script)
    assert result.status == 0 and reading.fields(tmp_path / "m.gguf")["general.name"] == "two words"


def test_no_venv(bare_python, program, tmp_path):
    result = program("in", "out", python=bare_python, script=repository(tmp_path))
    assert result.status == 1 and result.err.count("\n") == 1 and "tools/setup.sh --tests" in result.err


def test_venv_without_the_packages(program, tmp_path):
    """It takes over once, not for ever."""
    script = repository(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(script.parent.parent / ".venv")], check=True)
    result = program("in", "out", python=str(script.parent.parent / ".venv" / "bin" / "python"), script=script)
    assert result.status == 1 and result.err.count("\n") == 1 and "tools/setup.sh" in result.err


# -- Large checkpoints

def large_state():
    """25 million parameters, 100 MB; the largest tensor is a third of it."""
    C, H, V = 768, 10, 11000
    state = nrgpt_state("ff2w", V=8, C=8, H=H, F=8, context=64)
    shapes = {"token_embedding_table.weight": (V, C), "position_embedding_table.weight": (64, C), "lm_head.weight": (V, C),
              "lm_head.bias": (V,), "blocks.ffwd.net.0.weight": (2 * C, C), "blocks.ffwd.net.0.bias": (2 * C,),
              "blocks.ffwd.net.2.weight": (C, 2 * C), "blocks.proj.weight": (C, C)}
    for name, array in state.items():
        if name not in ("pos_idx", "blocks.scale_ff") and not name.endswith(".tril"):
            shape = shapes.get(name, (C, C) if array.ndim == 2 else (C,))
            state[name] = np.full(shape, 0.5, np.float32)
    state["blocks.proj.weight"] = torch_writer.View(state["blocks.proj.weight"], (C, C), (1, C))
    return state


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """As after training: with Adam's two moments of every parameter."""
    state = large_state()
    value = training({n: a for n, a in state.items()}, F_per_C=2)
    moments = [np.zeros(getattr(a, "array", a).shape, np.float32) for a in state.values() for _ in range(2)]
    value["optimizer"] = {"state": dict(enumerate(moments)), "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95)}]}
    path = tmp_path_factory.mktemp("large") / "ckpt.pt"
    checkpoints.write_pt(path, value)
    size = sum(getattr(a, "array", a).nbytes for a in state.values())
    assert path.stat().st_size > 2.9 * size and size > 95e6
    yield path, size
    path.unlink()


def peak_memory(program, *arguments):
    done = subprocess.run(watched(program, *arguments), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return peak(done.stdout)


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_memory(kind, large, tmp_path):
    """Far below the 1.5 times the model that is promised: tensors pass through in pieces, moments are never read."""
    path, size = large
    imports = tmp_path / "imports.py"
    imports.write_text(f"import sys\nsys.path.insert(0, {str(ROOT / 'tools')!r})\nimport descent_convert.cli\n")
    baseline = peak_memory(imports)
    whole = peak_memory(ROOT / "tools" / "convert.py", path, tmp_path / "m.gguf", "--type", kind)
    assert whole - baseline < 0.5 * size
    (tmp_path / "m.gguf").unlink()


def test_optimizer_is_not_read(good, tmp_path):
    """Its storages need not even be there."""
    state = nrgpt_state()
    writer = torch_writer.Writer()
    writer.storages = [*state.values(), np.array(1.5, np.float32)]
    value = training(state)
    value["best_val_loss"] = writer.storages[-1]
    complete = list(writer.storages)
    value["optimizer"] = {"state": {0: {"exp_avg": np.zeros((1000, 1000), np.float32)}}}
    good(checkpoints.write_pt(tmp_path / "ckpt.pt", complete, pickle=writer.pickle(value)))


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_stopped_while_writing(stop, tmp_path):
    """No file is left behind. The program is held where its file is complete and has yet to get its name."""
    checkpoints.write_pt(tmp_path / "ckpt.pt", training(nrgpt_state()))
    held = ("import os, signal, sys; sys.path.insert(0, sys.argv[1]); from descent_convert import cli\n"
            "os.fsync = lambda _: (print('here', flush=True), signal.pause())\n"
            "sys.exit(cli.main(sys.argv[2:]))")
    process = subprocess.Popen([sys.executable, "-c", held, ROOT / "tools", tmp_path / "ckpt.pt", tmp_path / "m.gguf"],
                               stdout=subprocess.PIPE)
    with process.stdout:
        assert process.stdout.readline() == b"here\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(stop)
        assert process.wait(60) == 128 + stop
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt.pt"]


def test_progress_on_a_terminal_only(large, program, tmp_path):
    result = program(large[0], tmp_path / "m.gguf")
    assert result.status == 0 and "%" not in result.err
    main, terminal = pty.openpty()
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "convert.py"), str(large[0]), str(tmp_path / "m.gguf")],
                          stderr=terminal, stdout=subprocess.PIPE, text=True, timeout=120)
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(main, 65536):
            shown += part
    except OSError:  # how a terminal says that the other end is gone
        pass
    os.close(main)
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    assert b"100% of" in shown and shown.count(b"\r") > 3
