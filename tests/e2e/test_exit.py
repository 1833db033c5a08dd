"""--exit of descent eval and run: losses and steps against a float64 loop in which a token that has settled moves no more."""
import json

import numpy as np
import pytest

from models import ALPHABET, CONTEXT, encode

PREDICTIONS = 3 * CONTEXT + 7


def random_text(seed):
    return "".join(np.random.default_rng(seed).choice(list(ALPHABET), PREDICTIONS + 1))


def descend(model, ids, steps, threshold, least, every):
    """Final x [L][C], the steps each token made [L], and how near to the threshold a decision came."""
    x = model.tokens[ids] + model.positions[:len(ids)]
    used = np.full(len(ids), steps)
    closest = np.inf
    g = model._normal(x) + model.norm_bias
    for t in range(steps):
        goes_on = used > t
        _, _, gradient = model._energies(g, g)
        x = np.where(goes_on[:, None], x - gradient @ model.rate.T, x)
        after = model._normal(x) + model.norm_bias
        change = np.linalg.norm(after - g, axis=-1) / np.linalg.norm(g, axis=-1)
        if t + 1 >= least and (t + 1 - least) % every == 0:
            closest = min(closest, np.abs(change[goes_on] / threshold - 1).min(initial=np.inf))
            used[goes_on & (change < threshold)] = t + 1
        g = after
    return x, used, closest


def measure(model, ids, *how):
    """Summed nats and steps over the windows."""
    nats = steps = 0
    for start in range(0, len(ids) - 1, CONTEXT):
        inputs = ids[start:min(start + CONTEXT, len(ids) - 1)]
        x, used, closest = descend(model, inputs, *how)
        assert closest > 1e-4  # or rounding may decide otherwise
        logits = (model._normal(x) * model.norm_f + model.norm_f_bias) @ model.head.T + model.head_bias
        nats -= (logits - np.logaddexp.reduce(logits, -1)[:, None])[np.arange(len(inputs)), ids[start + 1:][:len(inputs)]].sum()
        steps += used.sum()
    return nats, steps


@pytest.mark.parametrize("exit, how", [("state:0.1", (0.1, 1, 1)), ("state:0.3", (0.3, 1, 1)), ("state", (0.03, 1, 1)),
                                       ("state:0.35:3", (0.35, 3, 1)), ("state:0.25:2:3", (0.25, 2, 3)), ("state:1e9", (1e9, 1, 1))])
def test_loss_and_steps_are_the_reference_s(descent, made, tmp_path, exit, how):
    model, text = made["chars"], random_text(1)
    file = tmp_path / "text"
    file.write_text(text)
    done = descent("eval", model.path, "--file", file, "-T", "2,5,14", "--exit", exit, "--json")
    assert done.code == 0, done.err
    for result, steps in zip(json.loads(done.text)["results"], (2, 5, 14), strict=True):
        nats, used = measure(model, encode(text), steps, *how)
        assert result["loss"] == pytest.approx(nats / PREDICTIONS, rel=2e-5) and result["token_steps"] == used
    table = descent("eval", model.path, "--file", file, "-T", "14", "--exit", exit).text.splitlines()
    assert table[0].split()[-1] == "steps/token" and table[1].split()[-1] == f"{used / PREDICTIONS:.3f}"


def test_answers_count_their_steps(descent, shipped, data, tmp_path):
    file = tmp_path / "questions"
    lines = (data / "nrgpt-listops.eval.tsv").read_text().splitlines()[:12]
    file.write_text("\n".join(lines) + "\n")
    counted = {}
    for exit in ("none", "state:0", "state:1e9", "state:1e9:2"):
        done = descent("eval", shipped("nrgpt-listops"), "--match", file, "-T", "4", "--exit", exit, "--json")
        [result] = json.loads(done.text)["results"]
        counted[exit] = result["token_steps"] / result["tokens"]
    assert counted == {"none": 4, "state:0": 4, "state:1e9": 1, "state:1e9:2": 2}


def test_a_text_of_settled_tokens_is_that_of_fewer_steps(descent, shipped):
    def run(*arguments):
        done = descent("run", shipped("cem-kjv"), "And God said", "-n", "8", "--seed", "3", "--json", *arguments)
        assert done.code == 0, done.err
        return json.loads(done.text)

    early, short = run("-T", "5x4", "--exit", "state:1e9", "--trace"), run("-T", "1x1", "--trace")
    assert early["text"] == short["text"] and early["trace"] == short["trace"]
    assert run("-T", "5x4")["text"] != early["text"]


@pytest.mark.parametrize("exit", ["state:", "state:-1", "state:inf", "state:1e39", "state:0.1:0", "state:0.1:1:65536",
                                  "state:0.1:1:1:1", "kl:0.1", "", "State"])
def test_what_is_no_exit(descent, shipped, exit):
    for command in (["run", shipped("nrgpt-listops"), "a"], ["eval", shipped("nrgpt-listops"), "--file", "/dev/null"]):
        result = descent(*command, "--exit", exit)
        assert result.code == 2 and "--exit must be none or state:THRESHOLD" in result.err and result.out == b""
