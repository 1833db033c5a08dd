"""--step-scale, --step-rule, --momentum, --noise and --solver of descent eval and run: losses against a float64 loop, what is no
option, and the picture that tools/plot_motion.py draws of them."""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from test_exit import look, random_text, say
from models import CONTEXT, encode

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "plot_motion.py"
SVG = "{http://www.w3.org/2000/svg}"


def losses(model, ids, steps, scales=(1,), momentum=0.0, angular=False):
    nats = 0.0
    for first in range(0, len(ids) - 1, CONTEXT):
        window, target = ids[first:-1][:CONTEXT], ids[first + 1:][:CONTEXT]
        x = start = model.tokens[window] + model.positions[:len(window)]
        d = np.zeros_like(x)
        for t in range(steps):
            d = momentum * d + scales[min(t, len(scales) - 1)] * (look(model, x)[1] @ model.rate.T)
            move = -d
            if angular:
                y, y0, move = (v - v.mean(-1, keepdims=True) for v in (x, start, move))
                move = move - y * (y * move).sum(-1, keepdims=True) / (y * y).sum(-1, keepdims=True)
                move = move * np.linalg.norm(y, axis=-1, keepdims=True) / np.linalg.norm(y0, axis=-1, keepdims=True)
            x = x + move
        nats -= say(model, x)[np.arange(len(target)), target].sum()
    return nats / (len(ids) - 1)


@pytest.mark.parametrize("options, how", [
    (["--step-scale", "0.5"], {"scales": [0.5]}),
    (["--step-scale", "1,0.5,0.25"], {"scales": [1, 0.5, 0.25]}),
    (["--momentum", "0.5"], {"momentum": 0.5}),
    (["--momentum", "0.25", "--step-scale", "0.5,1"], {"momentum": 0.25, "scales": [0.5, 1]}),
    (["--step-rule", "angular", "--step-scale", "0.5"], {"angular": True, "scales": [0.5]}),
])
def test_losses_are_those_of_the_loop(descent, made, tmp_path, options, how):
    model, text = made["chars"], random_text(7)
    file = tmp_path / "text"
    file.write_text(text)
    done = descent("eval", model.path, "--file", file, "-T", "1,2,4", "--json", *options)
    assert done.code == 0, done.err
    for result in json.loads(done.text)["results"]:
        assert result["loss"] == pytest.approx(losses(model, encode(text), result["steps"], **how), rel=2e-5)


def test_noise_is_the_same_each_time_and_of_its_seed(descent, shipped):
    def run(*arguments):
        done = descent("run", shipped("nrgpt-listops"), "add_10,(,median_10,(,2,9,),5,0,)", "-n", "4", "--seed", "3", "--trace", "--json", *arguments)
        assert done.code == 0, done.err
        return json.loads(done.text)["trace"]

    first = run("--noise", "0.2:7:decay")
    assert first == run("--noise", "0.2:7:decay")
    assert len({json.dumps(run("--noise", how)) for how in ("0.2:7:decay", "0.2:8:decay", "0.2:7", "0.1:7:decay", "0")}) == 5


def test_a_solver_says_what_converged(descent, shipped, tmp_path):
    file = tmp_path / "text"
    file.write_text("add_10,(,median_10,(,2,9,),5,0,)")
    model = shipped("nrgpt-listops")
    shares = {}
    for solver in ("anderson:5:1e9", "anderson:5:0"):
        done = descent("eval", model, "--file", file, "-T", "6", "--solver", solver, "--json")
        assert done.code == 0, done.err
        [result] = json.loads(done.text)["results"]
        shares[solver] = (result["unconverged"] / result["predictions"], result["token_steps"] / result["predictions"])
    assert shares == {"anderson:5:1e9": (0, 1), "anderson:5:0": (1, 6)}
    assert "converged" in descent("eval", model, "--file", file, "-T", "6", "--solver", "anderson").text.splitlines()[0]


@pytest.mark.parametrize("option", ["--step-scale=0", "--step-scale=5", "--step-scale=1,", "--step-scale=" + ",".join("1" * 65),
                                    "--momentum=1", "--momentum=-0.5", "--step-rule=round", "--noise=-1", "--noise=0.1:1:slow",
                                    "--noise=0.1:x", "--noise=1:1:decay:1", "--solver=newton", "--solver=anderson:17",
                                    "--solver=anderson:5:-1", "--solver=anderson:5:1:1"])
def test_what_is_no_option(descent, shipped, option):
    for command in (["run", shipped("nrgpt-listops"), "1"], ["eval", shipped("nrgpt-listops"), "--file", "/dev/null"]):
        done = descent(*command, option)
        assert done.code == 2 and option.split("=")[0][2:] in done.err


def test_what_a_model_has_not_is_told(descent, shipped):
    for option in ("--step-rule=angular", "--solver=anderson"):
        done = descent("run", shipped("cem-kjv"), "And", "-n", "1", option)
        assert done.code == 1 and "is for NRGPT" in done.err


def test_the_picture_has_a_line_for_each(tmp_path):
    for name, low in (("a", 1.0), ("b", 2.0)):
        (tmp_path / name).write_text(json.dumps({"results": [{"steps": t, "loss": low + t / 10} for t in (1, 2, 8)]}))
    done = subprocess.run([sys.executable, TOOL, "--trained", "2", "--most", "2.5", f"a < b={tmp_path}/a", f"b={tmp_path}/b"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    root = ElementTree.fromstring(done.stdout)
    assert len(list(root.iter(SVG + "polyline"))) == 2 and len(list(root.iter(SVG + "circle"))) == 5
    assert {"a < b", "b", "1", "2", "8", "trained T"} <= {t.text for t in root.iter(SVG + "text")}
    wrong = subprocess.run([sys.executable, TOOL, f"a={tmp_path}/none"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 1 and wrong.stderr.startswith("plot_motion.py: ") and wrong.stderr.count("\n") == 1
