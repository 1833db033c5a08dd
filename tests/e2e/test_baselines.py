"""The commands on models without energy: the authors' baselines, converted from their golden checkpoints, against the golden
logits. GPT has no T at all, the one block of GPT_Rec_parallel is applied T times."""
import json
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from safetensors.numpy import load_file

CONVERTED = Path(os.environ.get("DESCENT_GOLDEN_DIR", ROOT / "build" / "tests" / "golden"))
NAMES = ["gpt", "gpt-rec-parallel"]
SUFFIX = {"gpt": "T2", "gpt-rec-parallel": "T4"}  # of the depth they were trained at


def model(name):
    return CONVERTED / f"{name}.gguf"


def golden(name):
    return load_file(ROOT / "tests" / "golden" / name / "expected.safetensors")


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def ask(descent, *arguments):
    result = descent(*arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.text)


@pytest.fixture
def text(descent, tmp_path):
    """The golden tokens as a file of text, by the model's own characters."""
    def write(name):
        import gguf
        characters = gguf.GGUFReader(model(name)).fields["tokenizer.ggml.tokens"].contents()
        path = tmp_path / "text"
        path.write_text("".join(characters[t] for t in golden(name)["tokens"]))
        return path
    return write


@pytest.mark.parametrize("name", NAMES)
def test_eval(descent, text, name):
    expected, path = golden(name), text(name)
    targets = expected["tokens"][1:]
    depths = ["--steps", "1,4,6"] if name != "gpt" else []
    results = ask(descent, "eval", model(name), "--file", path, *depths)["results"]
    assert [r["steps"] for r in results] == (["none"] if name == "gpt" else [1, 4, 6])
    for result in results:
        suffix = "T2" if name == "gpt" else f"T{result['steps']}"
        loss = -log_softmax(expected[f"logits.{suffix}"])[np.arange(len(targets)), targets].mean()
        assert result["predictions"] == len(targets) and abs(result["loss"] - loss) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_run(descent, name):
    expected = golden(name)
    prompt = ",".join(map(str, expected["tokens"][:20]))
    done = ask(descent, "run", model(name), "--tokens", prompt, "-n", "1", "--temperature", "0", "--trace")
    assert done["tokens"] == [int(expected[f"logits.{SUFFIX[name]}"][19].argmax())]
    assert done["steps"] == ("none" if name == "gpt" else 4)
    steps = done["trace"][0]["steps"]
    assert all(s["energy"] == {} and s["own_change"] is None and s["history_change"] is None for s in steps)
    assert all((s["update_norm"] is None) == s["final"] for s in steps)
    if name == "gpt":
        assert [(s["layer"], s["kind"], s["t"]) for s in steps] == [
            (l, kind, t) for l in range(2) for kind in ("attention", "feed_forward") for t in range(2)]
    else:
        assert [s["t"] for s in steps] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", NAMES)
def test_trace_as_text_has_no_column_of_energies(descent, name):
    err = descent("run", model(name), "--tokens", "1,2,3", "-n", "1", "--trace").err
    assert "no energy" in err and "r_t" in err and "|dx|" in err
    assert "dE_own" not in err and " E " not in err and "nan" not in err


def test_a_gpt_has_no_depth(descent):
    for command in (["run", model("gpt"), "--tokens", "1", "-n", "1"], ["info", model("gpt")],
                    ["eval", model("gpt"), "--file", __file__]):
        result = descent(*command, "--steps", "4")
        assert result.code == 2 and "no sub-layer of this model has a T" in result.err
    assert descent("info", model("gpt"), "--steps", "none").code == 0


def test_info(descent):
    shown = ask(descent, "info", model("gpt"))
    assert (shown["family"], shown["layers"], shown["trained_steps"]) == ("gpt", 2, {"attention": 0, "feed_forward": 0})
    text = descent("info", model("gpt")).text
    assert "none (attention once, feed_forward once)" in text and "at other depths" not in text
    # Keys and values of a token in one layer are 2 C numbers each page slot; a plane a block, whatever T.
    assert shown["memory"]["history_bytes"] >= 2 * 2 * 64 * 4 * 32
    shown = ask(descent, "info", model("gpt-rec-parallel"), "--steps", "8")
    other = ask(descent, "info", model("gpt-rec-parallel"), "--steps", "4")
    assert shown["deepens"] and shown["trained_steps"] == {"block": 4}
    assert shown["memory"]["history_bytes"] - other["memory"]["history_bytes"] == 4 * 2 * 64 * 4 * 32
