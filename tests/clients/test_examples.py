"""tools/examples, as their user runs them: the stock clients and three lines get the curve that `descent scale` gets."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serving import BINARY

ROOT = Path(__file__).parents[2]
EXAMPLES, MODELS = ROOT / "tools" / "examples", ROOT / "models"
SHAKESPEARE = MODELS / "nrgpt-shakespeare.gguf"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text((MODELS / "data" / "nrgpt-shakespeare.val.txt").read_text(encoding="utf-8")[:1500], encoding="utf-8")
    return path


def run(command, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines_of(output):
    """(T, loss, low, high, above the trained T) of each line."""
    found = re.findall(r"^T +(\d+)  loss ([\d.]+) \(([\d.]+) to ([\d.]+)\)  ([+-][\d.]+)$", output, re.M)
    assert len(found) == len(output.splitlines())
    return [[float(number) for number in line] for line in found]


@pytest.fixture(scope="module")
def expected(text):
    """What the command line measures, from the same text, by itself."""
    rows = json.loads(run([BINARY, "scale", SHAKESPEARE, "--text", text, "-T", "1,4,8", "--json"]))["rows"]
    return [[row["steps"], row["loss"], *row["intervals"]["loss"], row["difference"]["loss"]["value"]] for row in rows]


def assert_same(got, expected):
    assert len(got) == len(expected)
    for line, row in zip(got, expected):
        assert line == pytest.approx(row, abs=6e-6)


def test_the_curve_from_python(server, text, expected, tmp_path):
    svg = tmp_path / "curve.svg"
    output = run([sys.executable, EXAMPLES / "curve.py", "nrgpt-shakespeare", text, "--steps", "1", "4", "8", "--url",
                  server.url + "/v1", "--svg", svg])
    assert_same(lines_of(output), expected)
    assert svg.read_text().count("<circle") == 3


def test_the_curve_from_node(server, text, expected, tmp_path):
    """A module finds its packages beside itself: as in a directory where `npm install openai` was run."""
    (tmp_path / "curve.mjs").write_bytes((EXAMPLES / "curve.mjs").read_bytes())
    (tmp_path / "node_modules").symlink_to(Path(__file__).parent / "node_modules")
    output = run(["node", tmp_path / "curve.mjs", "nrgpt-shakespeare", text, "1,4,8", server.url + "/v1"])
    assert_same(lines_of(output), expected)


def test_the_figures(serve, tmp_path):
    names = ("nrgpt-shakespeare", "nrgpt-listops", "nrgpt-listops-30k", "cem-kjv")
    url = serve([MODELS / f"{name}.gguf" for name in names]).url + "/v1"
    run([sys.executable, EXAMPLES / "figures.py", MODELS / "data", tmp_path], OPENAI_BASE_URL=url, CHARACTERS="600",
        MPLBACKEND="Agg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["energy.svg", "figures.json", "grid.svg", "loss.svg", "match.svg"]
    numbers = json.loads((tmp_path / "figures.json").read_text())
    assert [row["steps"] for row in numbers["loss"]] == [1, 2, 3, 4, 6, 8, 12, 16] and len(numbers["grid"]) == 9
    assert all(0 <= row["accuracy"] <= 1 and row["items"] == 6 for rows in numbers["match"].values() for row in rows)
    assert all(len(course) == 13 for course in numbers["energy"])
