"""tools/peers/plain_nrgpt.py, which benchmarks run for comparison, computes NRGPT: the golden logits at every T."""
import importlib.util
import pathlib
import subprocess
import sys

import pytest
import torch

import golden

PEER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "peers" / "plain_nrgpt.py"
spec = importlib.util.spec_from_file_location("plain_nrgpt", PEER)
plain_nrgpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain_nrgpt)


@pytest.mark.parametrize("name", ["nrgpt-ff2w", "nrgpt-ff2w-strict"])
def test_logits_are_the_golden_ones(name):
    config, tensors = golden.checkpoint(name)
    model = plain_nrgpt.PlainNRGPT(tensors, config["n_head"], strict=bool(config["tril_plus_one"]))
    tokens, logits = golden.expected(name)
    assert logits
    for steps, wanted in logits.items():
        with torch.no_grad():
            got = model.logits(model.states(tokens[0], steps)).double()
        assert ((got - wanted).abs() / wanted.abs().clamp(min=1)).max() < 2e-5, steps


def test_it_is_timed(monkeypatch):
    small = {"width": 32, "heads": 2, "hidden": 64, "vocab": 50, "context": 20, "steps": 3}
    monkeypatch.setitem(plain_nrgpt.SHAPES, "small", small)
    seconds = plain_nrgpt.measure("small", 20, 3)
    assert len(seconds) == 3 and 0 < seconds[0] <= seconds[1] <= seconds[2]


def test_what_is_wrong_is_said():
    done = subprocess.run([sys.executable, PEER, "--model", "none"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "nrgpt-90m" in done.stderr and done.stdout == ""
