"""/v1/descent/trace against golden energies and the module's own observations of the same descents."""
import numpy as np
import pytest
from conftest import request
from safetensors.numpy import load_file
from serving import ROOT


@pytest.fixture
def server(several):
    return several


def trace(server, model, prompt, **fields):
    answer = server.json("/v1/descent/trace", {"model": model, "prompt": prompt, **fields})
    assert answer["object"] == "descent.trace"
    return answer


@pytest.mark.parametrize("T", [1, 5, 9])
def test_energies_are_the_golden_ones(server, T):
    golden = load_file(ROOT / "tests" / "golden" / "nrgpt-ff2w" / "expected.safetensors")
    tokens = golden["tokens"].tolist()
    [text] = trace(server, "nrgpt-ff2w", tokens, max_tokens=0, descent={"steps": T}, top=3, track=[7, 1])["traces"]
    assert [token["token"] for token in text["tokens"]] == tokens
    for term, key in (("attention", "attn"), ("feed_forward", "ff")):
        got = np.array([token["trace"]["descents"][0]["energy"][term] for token in text["tokens"]])
        expected = golden[f"energy.{key}.T{T}"].T
        assert got.shape == (len(tokens), T + 1)
        assert np.allclose(got[:, :T], expected, rtol=1e-4, atol=1e-4)
    logits = golden[f"logits.T{T}"].astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for i, token in enumerate(text["tokens"]):
        found = token["trace"]
        assert found["position"] == i and found["steps"] == T
        likeliest = np.argsort(-logprobs[i], kind="stable")[:3].tolist()
        assert [guess["token"] for guess in found["guesses"]] == likeliest
        for guess in found["guesses"]:
            assert guess["logprob"] == pytest.approx(logprobs[i, guess["token"]], abs=5e-5)
        for followed, wanted in zip(found["track"], (7, 1)):
            assert followed["token"] == wanted and followed["rank"] == 1 + int((logits[i] > logits[i, wanted]).sum())
            assert followed["logprob"] == pytest.approx(logprobs[i, wanted], abs=5e-5)
        if i > 0:
            assert token["logprob"] == pytest.approx(logprobs[i - 1, tokens[i]], abs=5e-5)
    assert text["tokens"][0]["logprob"] is None and text["text"] == ""


def test_what_is_read_on_the_way_is_what_an_end_there_says(server):
    """At every t of a model that deepens: golden logits are there of T = 1, 5 and 9."""
    golden = load_file(ROOT / "tests" / "golden" / "nrgpt-ff2w" / "expected.safetensors")
    tokens = golden["tokens"].tolist()
    answer = trace(server, "nrgpt-ff2w", tokens, max_tokens=0, descent={"steps": 9}, top=3, track=[7, 1])
    traces = [token["trace"] for token in answer["traces"][0]["tokens"]]
    assert answer["usage"]["descent_readings"] == len(tokens) * 10
    for found in traces:
        [descent] = found["descents"]
        assert len(descent["guesses"]) == len(descent["track"]) == 10 and len(descent["slope"]) == 9
        assert descent["guesses"][9] == found["guesses"] and descent["track"][9] == found["track"]
    for T in (1, 5, 9):
        logits = golden[f"logits.T{T}"].astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        for i, found in enumerate(traces):
            guesses, track = found["descents"][0]["guesses"][T], found["descents"][0]["track"][T]
            assert [guess["token"] for guess in guesses] == np.argsort(-logprobs[i], kind="stable")[:3].tolist()
            assert [guess["logprob"] for guess in guesses] == pytest.approx(np.sort(logprobs[i])[:-4:-1], abs=5e-5)
            for followed, wanted in zip(track, (7, 1)):
                assert (followed["token"], followed["rank"]) == (wanted, 1 + int((logits[i] > logits[i, wanted]).sum()))
                assert followed["logprob"] == pytest.approx(logprobs[i, wanted], abs=5e-5)


def test_nothing_is_read_unasked(server):
    answer = trace(server, "nrgpt-ff2w", [1, 2, 3], max_tokens=0, descent={"steps": 4}, top=0)
    for token in answer["traces"][0]["tokens"]:
        [descent] = token["trace"]["descents"]
        assert "guesses" not in descent and "track" not in descent and token["trace"]["guesses"] == []
    assert "descent_readings" not in answer["usage"]


def test_a_token_that_stops_early_is_read_to_there(server):
    [text] = trace(server, "nrgpt-shakespeare", "To be", descent={"steps": 9, "exit": {"threshold": 0.3, "criterion": "state"}},
                   top=1)["traces"]
    used = [token["trace"]["descents"][0] for token in text["tokens"]]
    assert len({one["steps"] for one in used}) > 1
    for token, one in zip(text["tokens"], used):
        assert len(one["guesses"]) == one["steps"] + 1 and one["guesses"][-1] == token["trace"]["guesses"]


def test_what_is_said_of_a_descent_is_consistent(server):
    [text] = trace(server, "nrgpt-shakespeare", "To be", max_tokens=3, seed=2, descent={"steps": 6})["traces"]
    *traced, last = text["tokens"]
    assert last["trace"] is None and len(traced) == 7  # the last token chosen does not descend
    for token in traced:
        [descent] = token["trace"]["descents"]
        assert (descent["layer"], descent["kind"], descent["steps"]) == (0, "block", 6)
        energy = np.sum([descent["energy"][term] for term in descent["energy"]], axis=0)
        change = np.array(descent["own_change"]) + np.array(descent["history_change"])
        assert energy.shape == (7,) and np.allclose(np.diff(energy), change, atol=1e-2, rtol=1e-3)
        assert len(descent["r"]) == len(descent["update_norm"]) == 6 and min(descent["update_norm"]) > 0
        assert len(descent["cosine"]) == 7 and descent["cosine"][-1] == pytest.approx(1) and max(descent["cosine"]) <= 1.0001


def test_each_layer_and_kind_has_its_own(server):
    answer = trace(server, "pieces", "ab cd", max_tokens=2, seed=1, descent={"steps": {"attention": 3, "mlp": 1}})
    [text] = answer["traces"]
    assert answer["descent"]["steps"] == {"attention": 3, "mlp": 1}
    for token in text["tokens"][:-1]:
        descents = token["trace"]["descents"]
        assert [(d["layer"], d["kind"], d["steps"]) for d in descents] == [
            (0, "attention", 3), (0, "mlp", 1), (1, "attention", 3), (1, "mlp", 1)]
        assert token["trace"]["steps"] == 8
        for d in descents:
            assert [len(values) for values in d["energy"].values()] == [d["steps"] + 1]
            assert np.isfinite(list(d["energy"].values())).all() and np.isfinite(d["slope"]).all()
            assert len(d["guesses"]) == 1 and len(d["guesses"][0]) == 5  # where the sub-layer ends
        assert descents[-1]["guesses"][0] == token["trace"]["guesses"] != descents[0]["guesses"][0]


def test_a_trace_does_not_stream_and_has_a_limit(server):
    reply = request(server, "POST", "/v1/descent/trace", {"model": "slow", "prompt": "a" * 3000, "max_tokens": 1000})
    assert reply.status == 400 and reply.error["code"] == "trace_too_large"


def test_tracing_changes_no_text(server):
    plain = {"model": "nrgpt-shakespeare", "prompt": "To be", "max_tokens": 20, "seed": 4}
    expected = server.json("/v1/completions", plain)["choices"][0]["text"]
    traced = server.json("/v1/completions", {**plain, "descent": {"trace": True}})["choices"][0]
    assert traced["text"] == expected and len(traced["descent"]["trace"]) == 20
    assert trace(server, "nrgpt-shakespeare", "To be", max_tokens=20, seed=4)["traces"][0]["text"] == expected
