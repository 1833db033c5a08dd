"""What stops a run: signals, a full disk, files that are not what they were. Each leaves a run that goes on, and says so."""
import errno
import os
import signal

import pytest
import torch

import golden
import train
from descent_train import build, loop
from test_loop import SMALL, log, text  # noqa: F401 (the fixture)


def options(tmp_path, name, *more):
    return [str(tmp_path / name), "--text", str(tmp_path / "verse.txt"), *SMALL, "--dtype", "float32", *more]


def stop_at(monkeypatch, step, act):
    advance = loop.Run.advance

    def until(run):
        found = advance(run)
        if run.step == step:
            act()
        return found
    monkeypatch.setattr(loop.Run, "advance", until)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_at_a_checkpoint(tmp_path, text, monkeypatch, number):  # noqa: F811
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        stop_at(patched, 5, lambda: os.kill(os.getpid(), number))
        with pytest.raises(SystemExit, match=f"{number.name}: stopped at step 5 of 12, saved; the same command again goes on"):
            train.main(options(tmp_path, "stopped"))
    assert signal.getsignal(number) == before and loop.read_state(tmp_path / "stopped", "cpu")["step"] == 5
    train.main(options(tmp_path, "stopped"))
    train.main(options(tmp_path, "whole"))
    stopped, whole = log(tmp_path / "stopped"), log(tmp_path / "whole")
    assert [line["validation"] for line in stopped if "validation" in line] == [
        line["validation"] for line in whole if "validation" in line]
    saved = [golden.safetensors(tmp_path / n / "model" / "model.safetensors") for n in ("whole", "stopped")]
    assert all(torch.equal(saved[0][n], saved[1][n]) for n in saved[0])


def test_a_second_signal_ends_it_at_once():
    with loop.Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.caught == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 1)


def test_a_full_disk_is_said_and_the_checkpoint_before_stays(tmp_path, text, monkeypatch):  # noqa: F811
    with monkeypatch.context() as patched:
        stop_at(patched, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit):
            train.main(options(tmp_path, "run"))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        patched.setattr(loop.os, "fsync", full)
        with pytest.raises(SystemExit, match="state.pt: No space left on device; the one before stays"):
            train.main(options(tmp_path, "run"))
    assert loop.read_state(tmp_path / "run", "cpu")["step"] == 5
    train.main(options(tmp_path, "run"))
    assert loop.read_state(tmp_path / "run", "cpu")["step"] == 12


@pytest.mark.parametrize("name, data, complaint", [
    ("state.pt", b"", "state.pt: no checkpoint: .*without this file the run begins anew"),
    ("state.pt", b"PK\x03\x04 cut off", "state.pt: no checkpoint"),
    ("settings.json", b'{"width": ', "settings.json: expected the settings of a run, as JSON"),
])
def test_a_file_that_is_broken_is_named(tmp_path, text, name, data, complaint):  # noqa: F811
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_bytes(data)
    with pytest.raises(SystemExit, match=complaint):
        train.main(options(tmp_path, "run"))


def test_a_run_does_not_go_on_with_another_text(tmp_path, text):  # noqa: F811
    train.main(options(tmp_path, "run"))
    text.write_text(text.read_text().upper())
    with pytest.raises(SystemExit, match="verse.txt: not the text that the run in .*run was started with"):
        train.main(options(tmp_path, "run"))


@pytest.mark.parametrize("features, wanted", [
    ("flags : avx512f avx512_bf16", torch.bfloat16), ("flags : avx512f amx_bf16 x", torch.bfloat16),
    ("Features : asimd bf16", torch.bfloat16), ("flags : avx512f avx512_bf16x", torch.float32), (None, torch.float32)])
def test_products_are_bfloat16_where_the_processor_multiplies_it(tmp_path, monkeypatch, features, wanted):
    if features is not None:
        (tmp_path / "cpuinfo").write_text(features)
    monkeypatch.setattr(build, "CPU", str(tmp_path / "cpuinfo"))
    assert build.products_type("auto", "cpu") == wanted
