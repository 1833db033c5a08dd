"""tools/plot_eval.py draws what descent eval prints, and says so when it is given something else."""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "plot_eval.py"
SVG = "{http://www.w3.org/2000/svg}"


def plot(text, *options):
    return subprocess.run([sys.executable, TOOL, *options], input=text, capture_output=True, text=True, timeout=60)


def test_a_point_for_every_depth_lower_loss_lower_down():
    results = [{"steps": 1, "loss": 2.5}, {"steps": "2x1", "loss": 2.0}, {"steps": 8, "loss": 1.25}]
    done = plot(json.dumps({"results": results}), "--title", "a < b", "--trained", "2")
    assert done.returncode == 0, done.stderr
    root = ElementTree.fromstring(done.stdout)
    heights = [float(c.get("cy")) for c in root.iter(SVG + "circle")]
    assert len(heights) == 3 and heights == sorted(heights)
    texts = [t.text for t in root.iter(SVG + "text")]
    assert {"a < b", "1", "2x1", "8", "trained T", "loss (nats per token)"} <= set(texts)


def test_exact_match_is_drawn_too():
    done = plot(json.dumps({"results": [{"steps": 3, "exact_match": 0.5, "right": 1, "items": 2}]}))
    assert done.returncode == 0 and "exact match" in done.stdout


def test_other_input_is_one_clear_line():
    for text in ("", "[]", '{"results": []}', '{"results": [{"steps": 1}]}'):
        done = plot(text)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("plot_eval.py: ") and done.stderr.count("\n") == 1
