"""--history and --prompt-steps of descent eval, trace, scale and run: losses and traces against a float64 loop, a token after the
other, and what is no option. tools/history_table.py, which measures what they cost."""
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from models import CONTEXT, encode
from test_exit import random_text, say

ROOT = pathlib.Path(__file__).resolve().parents[2]


def descend(model, ids, steps, history, prompt_steps=None):
    """x(T) [L][C] of each token, and the energies of each at t = 0..T, of its own T."""
    depth = [prompt_steps or steps] * (len(ids) - 1) + [steps]
    start = model.tokens[ids] + model.positions[:len(ids)]

    def g(x):
        return model._normal(x) + model.norm_bias

    path = []  # of each token its x(0) .. x(T)
    for i, T in enumerate(depth):
        states, energies = [start[i]], []
        for t in range(T + 1):
            earlier = [path[j][0][-1 if history == "last" else min(t, depth[j])] for j in range(i)]
            seen = g(np.array([*earlier, states[t]]))
            attention, feed_forward, gradient = model._energies(seen, seen)
            energies.append(attention[-1] + feed_forward[-1])
            states.append(states[t] - model.rate @ gradient[-1])
        path.append((states[:T + 1], energies))
    return np.array([states[-1] for states, _ in path]), [energies for _, energies in path]


def loss(model, ids, steps, history):
    nats = 0.0
    for first in range(0, len(ids) - 1, CONTEXT):
        window, target = ids[first:-1][:CONTEXT], ids[first + 1:][:CONTEXT]
        x, _ = descend(model, window, steps, history)
        nats -= say(model, x)[np.arange(len(target)), target].sum()
    return nats / (len(ids) - 1)


@pytest.mark.parametrize("history", ["own", "latest", "last"])
def test_losses_are_those_of_the_loop(descent, made, tmp_path, history):
    model, text = made["chars"], random_text(8)
    file = tmp_path / "text"
    file.write_text(text)
    done = descent("eval", model.path, "--file", file, "-T", "4,1,2", "--json", "--history", history)
    assert done.code == 0, done.err
    results = json.loads(done.text)["results"]
    assert [result["steps"] for result in results] == [4, 1, 2]
    for result in results:
        assert result["loss"] == pytest.approx(loss(model, encode(text), result["steps"], history), rel=2e-5)
        assert result["token_steps"] == result["steps"] * result["predictions"]
    done = descent("scale", model.path, "--text", file, "-T", "1,2,4", "--json", "--history", history)
    assert done.code == 0, done.err
    for row, result in zip(json.loads(done.text)["rows"], sorted(results, key=lambda result: result["steps"])):
        assert row["loss"] == pytest.approx(result["loss"], rel=1e-9)


@pytest.mark.parametrize("history, steps, prompt_steps", [("own", 2, 5), ("latest", 5, 2), ("latest", 2, 5), ("last", 3, None),
                                                          ("last", 5, 2), ("last", 2, 5)])
def test_traces_are_those_of_the_loop(descent, made, history, steps, prompt_steps):
    model, text = made["chars"], random_text(9)[:CONTEXT - 2]
    ids = encode(text)
    asked = ["-T", str(steps), "--history", history, *(["--prompt-steps", str(prompt_steps)] if prompt_steps else [])]
    done = descent("trace", model.path, text, "--json", *asked)
    assert done.code == 0, done.err
    x, energies = descend(model, ids, steps, history, prompt_steps)
    log_p = say(model, x)
    tokens = json.loads(done.text)["tokens"]
    assert len(tokens) == len(ids)
    for i, token in enumerate(tokens):
        [seen] = token["trace"]["descents"]
        assert seen["steps"] == len(energies[i]) - 1
        assert np.allclose(np.sum(list(seen["energy"].values()), axis=0), energies[i], rtol=1e-4, atol=1e-4)
        if i > 0:
            assert token["logprob"] == pytest.approx(log_p[i - 1, ids[i]], abs=1e-4)
    for shown in (descent("trace", model.path, text, *asked), descent("trace", model.path, text, "--csv", "-", *asked)):
        assert shown.code == 0, shown.err
    lines = shown.text.splitlines()
    assert len(lines) == 1 + sum(map(len, energies)), "a line for each token and step"


def test_generated_tokens_are_those_of_the_loop(descent, made):
    model, prompt = made["chars"], "abcd"
    for history, steps, prompt_steps in (("last", 3, None), ("latest", 6, 1), ("last", 2, 4)):
        ids, count = list(encode(prompt)), len(prompt)
        for _ in range(6):
            depth = [prompt_steps or steps] * (count - 1)
            x = walk(model, ids, steps, depth, history)
            ids.append(int(say(model, x[-1:])[0].argmax()))
        asked = ["-T", str(steps), "--history", history, *(["--prompt-steps", str(prompt_steps)] if prompt_steps else [])]
        done = descent("run", model.path, prompt, "-n", "6", "--temperature", "0", "--ignore-eos", "--json", *asked)
        assert done.code == 0, done.err
        assert json.loads(done.text)["tokens"] == ids[count:]


def walk(model, ids, steps, depth, history):
    """x(T) of all tokens, the first ones of their own T."""
    x, path = [], []
    for i, token in enumerate(ids):
        states = [model.tokens[token] + model.positions[i]]
        for t in range(depth[i] if i < len(depth) else steps):
            earlier = [one[-1 if history == "last" else min(t, len(one) - 1)] for one in path]
            seen = model._normal(np.array([*earlier, states[t]])) + model.norm_bias
            states.append(states[t] - model.rate @ model._energies(seen, seen)[2][-1])
        path.append(states)
        x.append(states[-1])
    return np.array(x)


def test_questions_have_prompts(descent, shipped, tmp_path):
    lines = (ROOT / "models" / "data" / "nrgpt-listops.eval.tsv").read_text().splitlines()[:8]
    file = tmp_path / "questions.tsv"
    file.write_text("\n".join(lines) + "\n")

    def answered(*asked):
        done = descent("eval", shipped("nrgpt-listops"), "--match", file, "-T", "5", "--json", *asked)
        assert done.code == 0, done.err
        return json.loads(done.text)["results"][0]

    plain, shallow = answered(), answered("--history", "latest", "--prompt-steps", "2")
    assert plain["token_steps"] == 5 * plain["tokens"]
    assert 2 * shallow["tokens"] < shallow["token_steps"] < 5 * shallow["tokens"]
    assert answered("--history", "latest") == plain


@pytest.mark.parametrize("arguments, words", [
    (["--history", "first"], "own or latest or last"),
    (["--prompt-steps", "0"], "--prompt-steps"),
    (["--prompt-steps", "9"], "--prompt-steps is about prompts, and the text of --file has none"),
])
def test_what_is_no_history(descent, made, tmp_path, arguments, words):
    (tmp_path / "text").write_text("abc")
    done = descent("eval", made["chars"].path, "--file", tmp_path / "text", *arguments)
    assert done.code == 2 and words in done.err


def test_what_the_library_refuses(descent, made, shipped, tmp_path):
    (tmp_path / "text").write_text("abc abc")
    for model, arguments, words in ((made["chars"].path, ["-T", "4", "--prompt-steps", "3"], "prompt_steps is 3, steps 4 and history own"),
                                    (shipped("cem-kjv"), ["--history", "last"], "which is for NRGPT; cem-kjv is cem")):
        done = descent("trace", model, "abc", *arguments)
        assert done.code == 1 and words in done.err
    done = descent("scale", made["chars"].path, "--text", tmp_path / "text", "--prompt-steps", "9")
    assert done.code == 2 and "texts have none" in done.err


def test_the_table(tmp_path, binary):
    """Every row is there, and what is told of memory is what one plane and x take."""
    script = ROOT / "tools" / "history_table.py"
    done = subprocess.run([sys.executable, script, "--descent", binary, "--print", "--windows", "1", "--questions", "2", "--repeats", "1",
                           "--models", "nrgpt-listops"], capture_output=True, text=True, check=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == ["`own`", "`last`", "`latest`", "`last`"] * 2
    width = 88
    for history, T, prompt, _, size, *_ in rows:
        planes = 1 if history == "`last`" else int(T)
        per_token = 4 * width * (1 + planes)
        if history == "`latest`":
            assert int(size.replace(",", "")) < per_token
        else:
            assert per_token <= int(size.replace(",", "")) < per_token + 64
    missing = subprocess.run([sys.executable, script, "--descent", tmp_path / "none"], capture_output=True, text=True)
    assert missing.returncode == 2 and f"{tmp_path / 'none'} is not there" in missing.stderr
