"""A minute of training for every kind of model, and the way to the engine: what train.py saves converts as it is, and the
engine measures on it the loss that the trainer does."""
import json
import os
import pathlib
import subprocess

import pytest
import torch

import train
from descent_train import depth, finished

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = ROOT / "models" / "data" / "nrgpt-shakespeare.val.txt"
BINARY = pathlib.Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build")) / "descent"
PYTHON = os.environ.get("DESCENT_PYTHON", "python3")
MODELS = {
    "nrgpt": (["--random-steps", "1", "4", "--steps", "3"], "1,3,5"),
    "nrgpt --mask strict --rate 0.05": (["--steps", "3"], "2,3"),
    "nrgpt --feed-forward ff1 --norm rmsnorm --rate diag": (["--steps", "3"], "2,3"),
    "gpt --layers 2": ([], "none"),
    "gpt-rec-parallel": (["--steps", "3"], "2,3"),
    "cem --layers 2 --vocab bpe:500": (["--steps", "2"], "1x1,2x2,2x1"),
    "llama --layers 2": ([], "none"),
    "cem-swiglu --layers 2": (["--steps", "2"], "1,2"),
    "llama-cem --layers 2 --vocab unigram:500": (["--steps", "2"], "1,2"),
}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_engine_measures_the_trainer_s_loss(tmp_path, model):
    assert BINARY.is_file(), f"{BINARY} is missing: build first, or set DESCENT_BUILD_DIR"
    (tmp_path / "verse.txt").write_text(TEXT.read_text())
    kind, *rest = model.split()
    options, depths = MODELS[model]
    train.main([str(tmp_path / "run"), "--text", str(tmp_path / "verse.txt"), "--model", kind, *rest, *options, "--width", "64", "--heads", "2",
                "--block", "64", "--batch", "16", "--iterations", "150", "--warmup", "20", "--validate-every", "150", "--seed", "3"])
    trained = finished.Finished(str(tmp_path / "run"))
    (tmp_path / "val.txt").write_text(trained.data.val_text)
    run(PYTHON, ROOT / "tools" / "convert.py", tmp_path / "run" / "model", tmp_path / "model.gguf")
    steps = [] if depths == "none" else ["--steps", depths]
    out = json.loads(run(BINARY, "eval", tmp_path / "model.gguf", "--file", tmp_path / "val.txt", *steps, "--json"))
    asked = depth.several(depths, trained.options)
    assert len(out["results"]) == len(asked)
    with torch.no_grad():
        for T, found in trained.losses(asked).items():
            engine = out["results"][asked.index(T)]
            assert engine["predictions"] == int(found.predictions.sum())
            assert abs(engine["loss"] - found.mean) < 1e-3, (depth.label(T), engine["loss"], found.mean)
    assert min(r["loss"] for r in out["results"]) < 2.9 or "vocab" in model  # it did learn something
