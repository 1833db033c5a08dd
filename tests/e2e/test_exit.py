"""--exit of descent eval and run, by every criterion: losses and steps against a float64 loop in which a token that has settled
moves no more."""
import json

import numpy as np
import pytest

from models import ALPHABET, CONTEXT, encode

PREDICTIONS = 3 * CONTEXT + 7


def random_text(seed):
    return "".join(np.random.default_rng(seed).choice(list(ALPHABET), PREDICTIONS + 1))


def say(model, x):
    """log p of the next token [L][V]."""
    logits = (model._normal(x) * model.norm_f + model.norm_f_bias) @ model.head.T + model.head_bias
    return logits - np.logaddexp.reduce(logits, -1)[:, None]


def change(criterion, before, after):
    """What is compared with the threshold [L], of (g, energy, log p) at t and t + 1."""
    (g, energy, log_q), (next_g, next_energy, log_p) = before, after
    length, next_length = np.linalg.norm(g, axis=-1), np.linalg.norm(next_g, axis=-1)
    return {"state": np.linalg.norm(next_g - g, axis=-1) / length,
            "cosine": 1 - (g * next_g).sum(-1) / length / next_length,
            "energy": np.abs(next_energy - energy) / np.maximum(1, np.abs(energy)),
            "entropy": -(np.exp(log_p) * log_p).sum(-1),
            "kl": (np.exp(log_p) * (log_p - log_q)).sum(-1)}[criterion]


def look(model, x):
    g = model._normal(x) + model.norm_bias
    attention, feed_forward, gradient = model._energies(g, g)
    return (g, attention + feed_forward, say(model, x)), gradient


def descend(model, ids, steps, criterion, threshold, least, every):
    """Final x [L][C], the steps each token made [L], and how near to the threshold a decision came."""
    x = model.tokens[ids] + model.positions[:len(ids)]
    used = np.full(len(ids), steps)
    closest, best, unchanged = np.inf, None, np.zeros(len(ids))
    before, gradient = look(model, x)
    for t in range(steps):
        goes_on = used > t
        x = np.where(goes_on[:, None], x - gradient @ model.rate.T, x)
        after, gradient = look(model, x)
        if t + 1 >= least and (t + 1 - least) % every == 0:
            if criterion == "argmax":
                ordered = np.sort(after[2], -1)
                closest = min(closest, (ordered[:, -1] - ordered[:, -2])[goes_on].min(initial=np.inf))
                unchanged = np.where(after[2].argmax(-1) == best, unchanged + 1, 0) if best is not None else unchanged
                best, stops = after[2].argmax(-1), unchanged >= threshold
            else:
                value = change(criterion, before, after)
                closest = min(closest, np.abs(value[goes_on] / threshold - 1).min(initial=np.inf))
                stops = value < threshold
            used[goes_on & stops] = t + 1
        before = after
    return x, used, closest


def measure(model, ids, *how):
    """Summed nats and steps over the windows."""
    nats = steps = 0
    for start in range(0, len(ids) - 1, CONTEXT):
        inputs = ids[start:min(start + CONTEXT, len(ids) - 1)]
        x, used, closest = descend(model, inputs, *how)
        assert closest > 1e-4  # or rounding may decide otherwise
        nats -= say(model, x)[np.arange(len(inputs)), ids[start + 1:][:len(inputs)]].sum()
        steps += used.sum()
    return nats, steps


@pytest.mark.parametrize("exit, how", [
    ("state:0.1", (0.1, 1, 1)), ("state:0.3", (0.3, 1, 1)), ("state", (0.03, 1, 1)), ("state:0.35:3", (0.35, 3, 1)),
    ("state:0.25:2:3", (0.25, 2, 3)), ("state:1e9", (1e9, 1, 1)), ("cosine:0.03", (0.03, 1, 1)), ("energy:0.02", (0.02, 1, 1)),
    ("energy:0.05:3:2", (0.05, 3, 2)), ("entropy:3.5", (3.5, 1, 1)), ("kl:0.01", (0.01, 1, 1)), ("kl:0.02:2:3", (0.02, 2, 3)),
    ("argmax:2", (2, 1, 1)), ("argmax:1:3:2", (1, 3, 2)), ("argmax", (5, 1, 1))])
def test_loss_and_steps_are_the_reference_s(descent, made, tmp_path, exit, how):
    model, text = made["chars"], random_text(1)
    file = tmp_path / "text"
    file.write_text(text)
    done = descent("eval", model.path, "--file", file, "-T", "2,5,14", "--exit", exit, "--json")
    assert done.code == 0, done.err
    for result, steps in zip(json.loads(done.text)["results"], (2, 5, 14), strict=True):
        nats, used = measure(model, encode(text), steps, exit.split(":")[0], *how)
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
                                  "state:0.1:1:1:1", "kl:-1", "argmax:0", "argmax:1.5", "patience", "", "State"])
def test_what_is_no_exit(descent, shipped, exit):
    for command in (["run", shipped("nrgpt-listops"), "a"], ["eval", shipped("nrgpt-listops"), "--file", "/dev/null"]):
        result = descent(*command, "--exit", exit)
        assert result.code == 2 and "--exit must be none or CRITERION:THRESHOLD" in result.err and result.out == b""
