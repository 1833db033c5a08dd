"""The commands on layers of every pair of sub-layers, converted from safetensors directories with a character vocabulary, against
float64 numpy (tests/python/layers.py). CEM's sub-layers have a T and an energy; Llama's run once and have neither."""
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from models import ALPHABET, encode

sys.path.append(str(ROOT / "tests" / "python"))
from layers import KINDS, Layered  # noqa: E402

TEXT = "the quick brown fox jumps over the lazy dog.\nand the cat sat on a mat.\n" * 2


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def layered(request, tmp_path_factory):
    """(reference, model file, which of attention and MLP have a T)."""
    folder = tmp_path_factory.mktemp("layers")
    reference = Layered(*request.param, seed=11, V=len(ALPHABET))
    source = reference.write(folder / "checkpoint")
    (source / "tokenizer.chars.json").write_text(json.dumps({"type": "chars", "tokens": list(ALPHABET)}))
    file = folder / "model.gguf"
    subprocess.run([sys.executable, ROOT / "tools" / "convert.py", source, file], check=True, capture_output=True)
    return reference, file, [kind == "cem" for kind in request.param]


def ask(descent, *arguments):
    result = descent(*arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.text)


def spelled(steps, has):
    """The depth as the program writes it, and as JSON has it."""
    given = [T for T, there in zip(steps, has) if there]
    if not given:
        return "none", "none"
    return ("x".join(map(str, given)) if len(set(given)) > 1 else str(given[0]),
            given[0] if len(set(given)) == 1 else "x".join(map(str, given)))


def test_info(descent, layered):
    _, file, has = layered
    shown, text = ask(descent, "info", file), descent("info", file).text
    assert shown["family"] == "cem" and not shown["deepens"]
    assert shown["trained_steps"] == {"attention": 2 * has[0], "mlp": 3 * has[1]}
    assert ("attention once" in text, "mlp once" in text) == (not has[0], not has[1])
    assert ("at other depths" in text) == any(has)
    assert ("llama attention" in shown["variant"], "swiglu mlp" in shown["variant"]) == (not has[0], not has[1])


def test_eval(descent, layered, tmp_path):
    reference, file, has = layered
    (tmp_path / "text").write_text(TEXT)
    depths = [(2, 3), (1, 2), (4, 1)] if any(has) else [(0, 0)]
    asked = ["--steps", ",".join(spelled(steps, has)[0] for steps in depths)] if any(has) else []
    results = ask(descent, "eval", file, "--file", tmp_path / "text", *asked)["results"]
    assert [r["steps"] for r in results] == [spelled(steps, has)[1] for steps in depths]
    for result, steps in zip(results, depths):
        assert result["loss"] == pytest.approx(reference.loss(encode(TEXT), steps), rel=2e-5)
        assert result["predictions"] == len(TEXT) - 1


def test_run_and_trace(descent, layered):
    reference, file, has = layered
    prompt, steps = "the cat ", (3, 2)
    asked = ["--steps", spelled(steps, has)[0]] if any(has) else []
    done = ask(descent, "run", file, prompt, "--temperature", "0", "-n", "6", "--trace", *asked)
    ids = list(encode(prompt))
    for token in done["tokens"]:
        assert token == reference.run(np.array(ids), steps)[0][-1].argmax()
        ids.append(token)
    assert done["steps"] == spelled(steps, has)[1]
    energies = reference.run(np.array(ids), steps)[2]
    counts = dict(zip(("attention", "mlp"), ((T if there else 1) for T, there in zip(steps, has))))
    for token in done["trace"]:
        assert [(s["layer"], s["kind"], s["t"], s["final"]) for s in token["steps"]] == [
            (layer, kind, t, t == T) for layer in range(2) for kind, T in counts.items() for t in range(T + 1)]
        for step in token["steps"]:
            kind, i = step["kind"], token["position"]
            if kind in energies:
                wanted = energies[kind][step["layer"], step["t"], i]
                assert step["energy"] == {kind: pytest.approx(wanted, abs=1e-4 * max(1, abs(wanted)))}
            else:
                assert step["energy"] == {} and step["own_change"] is step["history_change"] is None
            assert (step["update_norm"] is None) == step["final"]


def test_trace_as_text(descent, layered):
    _, file, has = layered
    err = descent("run", file, "the cat", "-n", "1", "--trace").err
    heads = [line for line in err.splitlines() if "layer" in line]
    assert len(heads) == 4 and "nan" not in err
    for line in heads:
        assert ("no energy" in line) == (not has["mlp" in line]), line


def test_depths_that_are_not_there(descent, layered):
    _, file, has = layered
    two = descent("run", file, "the", "-n", "1", "--steps", "3x2")
    one = descent("run", file, "the", "-n", "1", "--steps", "3")
    assert (two.code, one.code) == (0 if all(has) else 2, 0 if any(has) else 2)
    if not any(has):
        assert "no sub-layer of this model has a T" in one.err and "no sub-layer of this model has a T" in two.err
        assert descent("run", file, "the", "-n", "1", "--steps", "none").code == 0
    elif not all(has):
        assert f"{'mlp' if has[0] else 'attention'} has no T in this model" in two.err


def test_however_it_is_run(descent, layered):
    """Narrow chunks, one thread and little memory give the same text."""
    _, file, _ = layered
    plain = descent("run", file, "over the lazy", "-n", "20", "--temperature", "0")
    for how in (["--chunk", "3"], ["--threads", "1"], ["--cache-bytes", "1M"]):
        assert descent("run", file, "over the lazy", "-n", "20", "--temperature", "0", *how).out == plain.out
