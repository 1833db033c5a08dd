"""descent trace: its numbers against a float64 reference, its four forms against each other, and the check of the theory."""
import csv
import io
import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from safetensors.numpy import load_file

from models import ALPHABET, Nrgpt, characters, encode

TEXT = "to be or not"
SVG = "{http://www.w3.org/2000/svg}"


def traced(descent, model, *arguments):
    result = descent("trace", model, *arguments, "--json")
    assert result.code == 0 and result.err == ""
    return json.loads(result.text)


def series(answer, name):
    """[L][T or T + 1] of the only descent of each token."""
    return np.array([token["trace"]["descents"][0][name] for token in answer["tokens"]], float)


def test_numbers_are_the_references(descent, made):
    model, ids = made["chars"], encode(TEXT)
    answer = traced(descent, model.path, TEXT, "-T", "4", "--top", "2", "--track", "5,9")
    assert [token["token"] for token in answer["tokens"]] == list(ids) and answer["steps"] == "4"
    assert answer["row_steps"] == 4 * len(ids) and answer["logits_read"] == 5 * len(ids)
    _, seen = model.descend(ids, 4)
    for k, term in enumerate(("attention", "feed_forward")):
        got = np.array([token["trace"]["descents"][0]["energy"][term] for token in answer["tokens"]])
        np.testing.assert_allclose(got.T, [step[k] for step in seen], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(series(answer, "update_norm").T, [step[2] for step in seen[:4]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(series(answer, "slope").T, model.slopes(ids, 4), rtol=1e-3, atol=1e-4)
    for t in range(1, 5):
        logits = model.logits(ids, t)
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for i, token in enumerate(answer["tokens"]):
            [descended] = token["trace"]["descents"]
            assert [guess["token"] for guess in descended["guesses"][t]] == np.argsort(-logprobs[i])[:2].tolist()
            for followed, wanted in zip(descended["track"][t], (5, 9), strict=True):
                assert followed["rank"] == 1 + int((logprobs[i] > logprobs[i, wanted]).sum())
                assert followed["logprob"] == pytest.approx(logprobs[i, wanted], abs=1e-4)
            if t == 4 and i > 0:
                assert token["logprob"] == pytest.approx(logprobs[i - 1, ids[i]], abs=1e-4)


def test_lines_say_what_json_says(descent, made):
    answer = traced(descent, made["chars"].path, TEXT, "-T", "3", "--top", "1", "--track", "4")
    lines = list(csv.DictReader(io.StringIO(
        descent("trace", made["chars"].path, TEXT, "-T", "3", "--top", "1", "--track", "4", "--csv", "-").text)))
    assert len(lines) == 4 * len(TEXT)
    for line in lines:
        [seen] = answer["tokens"][int(line["position"])]["trace"]["descents"]
        t = int(line["t"])
        assert line["text"] == TEXT[int(line["position"])] and line["kind"] == "block" and line["layer"] == "0"
        energies = [seen["energy"][term][t] for term in ("attention", "feed_forward")]
        assert [float(line[f"energy_{term}"]) for term in ("attention", "feed_forward")] == energies
        assert float(line["energy"]) == pytest.approx(sum(energies), rel=1e-6)
        for column in ("own_change", "history_change", "slope", "r", "update_norm"):
            assert (float(line[column]) if line[column] else None) == (seen[column][t] if t < 3 else None)
        assert float(line["cosine"]) == seen["cosine"][t]
        assert int(line["guess_1"]) == seen["guesses"][t][0]["token"]
        assert int(line["rank_4"]) == seen["track"][t][0]["rank"]


def test_the_drawing_holds_every_token_and_step(descent, made, tmp_path):
    out = tmp_path / "map.svg"
    assert descent("trace", made["chars"].path, TEXT.replace("o", "\n"), "-T", "3", "--map", "--svg", out).code == 0
    drawing = ElementTree.parse(out).getroot()
    titles = [cell.find(SVG + "title").text for cell in drawing.iter(SVG + "rect") if cell.find(SVG + "title") is not None]
    assert len(titles) == 4 * len(TEXT) and titles[0].startswith('token 0 "t", t = 0: E = ')
    words = " ".join(text.text for text in drawing.iter(SVG + "text"))
    for wanted in ("step t of the descent", "token, by position", "energy E, model units", "T = 3", '1 "\\n"'):
        assert wanted in words


def test_a_layered_model(descent, shipped):
    result = descent("trace", shipped("cem-kjv"), "In the beginning", "-T", "2x1", "--top", "1")
    assert result.code == 0 and "layer 3 mlp" in result.text and result.err == ""
    answer = traced(descent, shipped("cem-kjv"), "In the beginning", "-T", "2x1", "--top", "1")
    [first, *_] = answer["tokens"]
    assert [(d["layer"], d["kind"], d["steps"]) for d in first["trace"]["descents"][:3]] == [
        (0, "attention", 2), (0, "mlp", 1), (1, "attention", 2)]
    out = descent("trace", shipped("cem-kjv"), "In the beginning", "--svg", "-")
    assert out.code == 0 and len(list(ElementTree.fromstring(out.text).iter(SVG + "title"))) > 24
    assert descent("trace", shipped("cem-kjv"), "In the beginning", "--csv", "-").text.count("\n") == 1 + 4 * 4 * 6


def test_the_table_on_a_terminal_is_in_colour(descent, made, terminal):
    plain = descent("trace", made["chars"].path, TEXT, "-T", "3")
    assert plain.code == 0 and "\033" not in plain.text and plain.err == ""
    assert "dE_own" in plain.text and "slope" in plain.text and plain.text.count("\n0 ") == 1 and "█" in plain.text
    shown = terminal("trace", made["chars"].path, TEXT, "-T", "3", "--map")
    shown.expect(rb"\x1b\[48;5;\d+m")
    assert shown.finish() == 0


def test_states_out(descent, made, tmp_path):
    model, ids, out = made["chars"], encode(TEXT), tmp_path / "states.safetensors"
    assert descent("trace", model.path, TEXT, "-T", "3", "--map", "--states-out", out).code == 0
    vectors = load_file(out)
    assert len(vectors) == 2 * 4 * len(ids)
    for t in range(4):
        x = np.stack([vectors[f"x.{i}.0.block.{t}"] for i in range(len(ids))])
        expected, _ = model.descend(ids, t)
        np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-4)
        g = np.stack([vectors[f"g.{i}.0.block.{t}"] for i in range(len(ids))])
        np.testing.assert_allclose(g, model._normal(expected) + model.norm_bias, rtol=1e-4, atol=1e-4)


def make(tmp_path, rate, seed):
    model = Nrgpt(len(ALPHABET), seed=seed)
    model.rate = np.asarray(rate, np.float32).astype(float)
    return model.write(tmp_path / "rate.gguf", "rate", characters)


@pytest.mark.parametrize("rate", [[0.25], [0.25] * 12])
def test_the_theory_where_it_holds(descent, tmp_path, rate):
    """R = c diag(gamma), gamma being 1 here: no slope is negative, and short steps lower every energy."""
    model = make(tmp_path, rate, seed=5)
    answer = traced(descent, model.path, TEXT, "-T", "6", "--theory", "--halvings", "6")
    theory = answer["theory"]
    assert theory["rates"]["block"] == {"low": 0.25, "high": 0.25, "off_diagonal": 0.0, "sites": 1, "proven": 1}
    assert [scale["step_scale"] for scale in theory["scales"]] == [2.0 ** -k for k in range(7)]
    for scale in theory["scales"]:
        assert scale["steps"] == 6 * len(TEXT) and scale["negative_slopes"] == 0 and scale["lowest_slope"] is None
    assert theory["scales"][-1]["risen_past_rounding"] == 0
    apart = [scale["beside_slope"] for scale in theory["scales"]]
    assert apart[-1] < 0.1 * apart[0] and apart[-1] < 0.05
    said = descent("trace", model.path, TEXT, "-T", "6", "--map", "--theory").text
    assert "the theorem applies" in said and "0 of 72 steps are negative" in said


def test_the_theory_where_it_does_not(descent, tmp_path):
    """A rate that goes uphill: every step is found, and where the worst is."""
    model, ids = make(tmp_path, [-0.25], seed=6), encode(TEXT)
    theory = traced(descent, model.path, TEXT, "-T", "3", "--theory", "--halvings", "4")["theory"]
    assert theory["rates"]["block"]["proven"] == 0 and theory["rates"]["block"]["high"] == -0.25
    slopes = model.slopes(ids, 3)
    whole = theory["scales"][0]
    assert whole["negative_slopes"] == int((slopes < 0).sum()) == 3 * len(TEXT)
    t, position = np.unravel_index(slopes.argmin(), slopes.shape)
    assert (whole["lowest_slope"]["t"], whole["lowest_slope"]["position"]) == (t, position)
    assert whole["lowest_slope"]["value"] == pytest.approx(slopes.min(), rel=1e-3)
    assert theory["scales"][-1]["risen_past_rounding"] == 3 * len(TEXT)
    assert "the theorem promises nothing" in descent("trace", model.path, TEXT, "--map", "--theory").text


def test_what_cannot_be_traced_is_said(descent, made, shipped):
    model = made["chars"].path
    for arguments, words in ((("--top", "21"), "--top"), (("--track", "99", "ab"), "99"), (("--tokens", "1,2", "ab"), "use one"),
                             (("--halvings", "17", "ab"), "--halvings")):
        result = descent("trace", model, *arguments)
        assert result.code == 2 and words in result.err and result.out == b""
    for arguments, words in ((("",), "no token"), (("a" * 17,), "17 tokens"), (("~",), "~"),
                             (("ab", "--csv", "/nowhere/at/all"), "/nowhere/at/all")):
        result = descent("trace", model, *arguments)
        assert result.code == 1 and words in result.err
    assert descent("trace", "--help").text.count("--theory") >= 2
