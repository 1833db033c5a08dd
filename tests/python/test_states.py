"""/v1/descent/states against the module's own sequences: what is exported, where tokens may start, how they are reached into. The
loops here step sequences of the module one token after another; nothing of the server is in them."""
import base64
import json
import sys

import numpy as np
import pytest
from conftest import ROOT, model_path, open_model
from safetensors.numpy import load, save

sys.path.insert(0, str(ROOT / "tests" / "support"))

from serving import Server  # noqa: E402

NRGPT, CEM = "nrgpt-ff2w-strict", "cem-shared-r8-silu"


@pytest.fixture(scope="module")
def server():
    with Server([model_path(NRGPT), model_path(CEM), model_path("gpt")]) as server:
        yield server


@pytest.fixture(scope="module")
def shakespeare():
    with Server([ROOT / "models" / "nrgpt-shakespeare.gguf"]) as server:
        yield server


@pytest.fixture
def tokens(ids):
    return [int(i) for i in ids][:7]


def states(server, model, prompt, **fields):
    """The answer's vectors by name, in its order, and its metadata."""
    status, headers, body = server.ask("/v1/descent/states", {"model": model, "prompt": prompt, **fields})
    assert status == 200 and headers.get_content_type() == "application/octet-stream", body
    length = int.from_bytes(body[:8], "little")
    header, vectors = json.loads(body[8:8 + length]), load(body)
    about = header.pop("__metadata__")
    return {key: vectors[key] for key in header}, about


def refused(server, **fields):
    status, _, body = server.ask("/v1/descent/states", {"model": NRGPT, "prompt": [1, 2, 3], **fields})
    assert status == 400, body
    return json.loads(body)["error"]


def as_start(vectors):
    return {"from": "state", "safetensors": base64.b64encode(save(vectors)).decode()}


@pytest.mark.parametrize("name, steps", [(NRGPT, 5), (CEM, (2, 3)), ("gpt", None)])
def test_every_state_is_the_modules(server, name, steps, tokens):
    with open_model(name) as model:
        run = model.run(tokens, steps=steps, observe=("state", "final"))
        info = model.info
    asked = {} if steps is None else {"descent": {"steps": steps if isinstance(steps, int) else dict(zip(info.kinds, steps))}}
    vectors, about = states(server, name, tokens, of="both", **asked)
    assert about["format"] == "descent.states" and about["model"] == name and about["start"] == "embedding"
    assert about["tokens"] == ",".join(map(str, tokens)) and "stop" not in about
    expected = {}
    for kind, trace in run.traces.items():
        shape = (1, ) if trace.states.ndim == 3 else ()
        for which, values in (("x", trace.states), ("g", trace.g)):
            values = values.reshape(shape + values.shape)
            for layer, t, i in np.ndindex(values.shape[:3]):
                expected[f"{which}.{i}.{layer}.{kind}.{t}"] = values[layer, t, i]
    assert vectors.keys() == expected.keys()
    assert all(np.array_equal(vectors[key], expected[key]) for key in expected)


def test_what_is_chosen(server, tokens):
    vectors, _ = states(server, CEM, tokens, of="g", positions=[3, 0], layers=[1], kinds=["mlp"], t=[0, 2],
                        descent={"steps": {"attention": 1, "mlp": 2}})
    assert list(vectors) == ["g.0.1.mlp.0", "g.0.1.mlp.2", "g.3.1.mlp.0", "g.3.1.mlp.2"]


@pytest.mark.parametrize("t", [0, 2, 4])
def test_exported_and_started_again_gives_the_same_bits(server, tokens, t):
    whole, _ = states(server, NRGPT, tokens, descent={"steps": 5})
    start = as_start({key: value for key, value in whole.items() if key.endswith(f".{t}")})
    again, about = states(server, NRGPT, tokens, descent={"steps": 5}, start=start)
    assert about["start"] == "state" and int(about["descent_steps"]) == len(tokens) * (5 - t)
    assert {key for key in whole if int(key.rsplit(".")[-1]) >= t} == again.keys()
    assert all(np.array_equal(again[key], whole[key]) for key in again)


@pytest.mark.parametrize("layer, kind", [(0, "attention"), (0, "mlp"), (1, "attention")])
def test_a_layered_model_starts_where_a_sub_layer_begins(server, tokens, layer, kind):
    depth = {"steps": {"attention": 2, "mlp": 2}}
    whole, _ = states(server, CEM, tokens, descent=depth)
    start = as_start({key: value for key, value in whole.items() if key.endswith(f".{layer}.{kind}.0")})
    again, _ = states(server, CEM, tokens, descent=depth, start=start)
    assert len(again) < len(whole) or (layer, kind) == (0, "attention")
    assert all(np.array_equal(again[key], whole[key]) for key in again)


@pytest.mark.parametrize("name, steps", [(NRGPT, 4), (CEM, 2)])
def test_the_previous_tokens_state_is_the_next_ones_start(server, name, steps, tokens):
    vectors, about = states(server, name, tokens, start="previous", descent={"steps": steps})
    assert about["start"] == "previous"
    with open_model(name) as model, model.cache() as cache, cache.sequence(steps=steps, sharing=False) as sequence:
        for i, token in enumerate(tokens):
            sequence.append([token])
            if i > 0:
                sequence.start(i, 0, previous)
            sequence.finish()
            previous, _ = sequence.state(i)
            last = (model.info.layers - 1, model.info.kinds[-1])
            assert np.array_equal(vectors[f"x.{i}.{last[0]}.{last[1]}.{steps}"], previous)


@pytest.mark.parametrize("name, steps", [(NRGPT, 4), (CEM, 2)])
def test_noise(server, name, steps, tokens):
    first = "attention" if name == CEM else "block"
    plain, _ = states(server, name, tokens, descent={"steps": steps})
    drawn = {}
    for sigma, seed in ((0.5, 1), (1.0, 1), (1.0, 2)):
        vectors, about = states(server, name, tokens, start={"from": "noise", "sigma": sigma, "seed": seed}, descent={"steps": steps})
        assert about["start"] == "noise"
        e = np.stack([plain[f"x.{i}.0.{first}.0"] for i in range(len(tokens))]).astype(float)
        x = np.stack([vectors[f"x.{i}.0.{first}.0"] for i in range(len(tokens))]).astype(float)
        size = np.linalg.norm(e, axis=1, keepdims=True) / np.sqrt(e.shape[1])
        drawn[sigma, seed] = (x - e) / (sigma * size)
        with open_model(name) as model, model.cache() as cache, cache.sequence(steps=steps, sharing=False) as sequence:
            sequence.append(tokens)
            for i in range(len(tokens)):
                sequence.start(i, 0, vectors[f"x.{i}.0.{first}.0"])
            sequence.finish()
            last = (model.info.layers - 1, model.info.kinds[-1])
            got = np.stack([vectors[f"x.{i}.{last[0]}.{last[1]}.{steps}"] for i in range(len(tokens))])
            assert np.array_equal(got, sequence.states())
    np.testing.assert_allclose(drawn[0.5, 1], drawn[1.0, 1], atol=2e-5)  # one draw of a seed, sigma times as large
    assert np.abs(drawn[1.0, 1] - drawn[1.0, 2]).max() > 1
    numbers = drawn[1.0, 1].ravel()
    assert abs(numbers.mean()) < 5 / np.sqrt(numbers.size) and 0.7 < numbers.std() < 1.3
    assert np.abs(drawn[1.0, 1][0] - drawn[1.0, 1][1]).max() > 0.5  # each position its own


def change(position, t, values, **more):
    return {"position": position, "t": t, "values": [float(v) for v in values], **more}


def test_adding_nothing_and_setting_what_is_there_change_nothing(server, tokens):
    whole, _ = states(server, NRGPT, tokens, of="both", descent={"steps": 4})
    width = len(whole["x.0.0.block.0"])
    for one in (change(3, 2, np.zeros(width), how="add", of="x"), change(3, 2, np.zeros(width), of="g"),
                change(3, 2, whole["x.3.0.block.2"], how="set", of="x"), change(3, 2, whole["g.3.0.block.2"], how="set", of="g")):
        again, _ = states(server, NRGPT, tokens, of="both", descent={"steps": 4}, intervene=[one])
        assert all(np.array_equal(again[key], whole[key]) for key in whole)


@pytest.mark.parametrize("name, where", [(NRGPT, {}), (CEM, {"layer": 1, "kind": "mlp"})])
def test_a_change_alters_nothing_before_it_and_what_the_module_alters(server, name, where, tokens):
    depth = {"steps": 3 if name == NRGPT else {"attention": 2, "mlp": 3}}
    whole, _ = states(server, name, tokens, descent=depth)
    values = np.random.default_rng(3).standard_normal(len(whole[next(iter(whole))])).astype(np.float32)
    for how, of in (("add", "x"), ("set", "x"), ("add", "g"), ("set", "g")):
        again, _ = states(server, name, tokens, descent=depth, intervene=[change(4, 1, values, how=how, of=of, **where)])
        before = [key for key in whole if int(key.split(".")[1]) < 4]
        assert before and all(np.array_equal(again[key], whole[key]) for key in before)
        assert any(not np.array_equal(again[key], whole[key]) for key in whole if key.split(".")[1] == "4")
        with open_model(name) as model, model.cache() as cache:
            steps = depth["steps"] if name == NRGPT else (2, 3)
            with cache.sequence(steps=steps, sharing=False) as sequence:
                sequence.append(tokens)
                sequence.intervene(4, 1, values, how=f"{how}_{of}", **where)
                sequence.finish()
                last = (model.info.layers - 1, model.info.kinds[-1])
                for i, state in enumerate(sequence.states()):
                    assert np.array_equal(again[f"x.{i}.{last[0]}.{last[1]}.3"], state)


def test_every_wrong_field_is_named(server):
    width = 24
    with open_model(NRGPT) as model:
        width = model.info.width
    x, zeros = np.zeros(width, np.float32), [0] * width
    for fields, param, words in (
            ({"of": "y"}, "of", "x, g or both"), ({"positions": [3]}, "positions", "0 to 2"), ({"positions": []}, "positions", "1 to"),
            ({"layers": [1]}, "layers", "0 to 0"), ({"kinds": ["mlp"]}, "kinds", "block"), ({"t": [9], "descent": {"steps": 3}}, "t", "0 to 3"),
            ({"start": "noise"}, "start", "object"), ({"start": "here"}, "start", "embedding"), ({"start": 3}, "start", "an object"),
            ({"start": {"from": "noise", "sigma": 0}}, "start.sigma", "above 0"),
            ({"start": {"from": "noise", "safetensors": "x"}}, "start.safetensors", "expected state"),
            ({"start": {"from": "previous", "seed": 1}}, "start.seed", "noise"), ({"start": {"form": 1}}, "start.form", "from"),
            ({"start": {"from": "state"}}, "start.safetensors", "missing"),
            ({"start": {"from": "state", "safetensors": "?"}}, "start.safetensors", "base64"),
            ({"start": {"from": "state", "safetensors": "AAAA"}}, "start.safetensors", "8 bytes"),
            ({"start": as_start({"x.0.0.block.0": x[:-1]})}, "start.safetensors", "size"),
            ({"start": as_start({"x.0.0.block.0": x.astype(np.float64)[:width // 2]})}, "start.safetensors", "F32"),
            ({"start": as_start({"x.0.0.blok.0": x})}, "start.safetensors", "no place"),
            ({"start": as_start({"x.00.0.block.0": x})}, "start.safetensors", "no place"),
            ({"start": as_start({"g.0.0.block.0": x})}, "start.safetensors", "of g"),
            ({"start": as_start({"x.3.0.block.0": x})}, "start.safetensors", "position"),
            ({"start": as_start({"x.0.0.block.3": x}), "descent": {"steps": 3}}, "start.safetensors", "below T"),
            ({"start": as_start({"x.0.0.block.0": x, "x.0.0.block.1": x})}, "start.safetensors", "another tensor"),
            ({"start": as_start({"x.0.0.block.0": x * np.nan})}, "start.safetensors", "\"x.0.0.block.0\" with a number that is not finite"),
            ({"model": CEM, "start": as_start({"x.0.0.mlp.1": np.zeros(24, np.float32)})}, "start.safetensors", ""),
            ({"intervene": [1]}, "intervene[0]", "object"), ({"intervene": [{"values": zeros}]}, "intervene[0].position", "missing"),
            ({"intervene": [change(3, 0, zeros)]}, "intervene[0].position", "0 to 2"),
            ({"intervene": [change(0, 0, zeros), change(0, 9, zeros)], "descent": {"steps": 9}}, "intervene[1].t", "0 to 8"),
            ({"intervene": [change(0, 0, zeros, layer=1)]}, "intervene[0].layer", "0 to 0"),
            ({"intervene": [change(0, 0, zeros, kind="mlp")]}, "intervene[0].kind", "block"),
            ({"intervene": [change(0, 0, zeros, how="multiply")]}, "intervene[0].how", "add or set"),
            ({"intervene": [change(0, 0, zeros, of="z")]}, "intervene[0].of", "x or g"),
            ({"intervene": [change(0, 0, zeros[1:])]}, "intervene[0].values", f"expected {width}"),
            ({"intervene": [change(0, 0, zeros[1:] + [1e39])]}, "intervene[0].values", "1e38"),
            ({"intervene": [change(0, 0, zeros, by=1)]}, "intervene[0].by", "position"),
            ({"descent": {"trace": True}}, "descent.trace", "trace"), ({"descent": {"choose": {"n": 2}}}, "descent.choose", "states"),
            ({"prompt": [[1], [2]]}, "prompt", "expected one")):
        error = refused(server, **fields)
        assert error["param"] == param and words in error["message"], error


def test_too_much_is_refused(shakespeare):
    error = refused(shakespeare, model="nrgpt-shakespeare", prompt=[1] * 256, of="both", descent={"steps": 256})
    assert error["code"] == "states_too_large" and str(1 << 24) in error["message"]
    vectors, _ = states(shakespeare, "nrgpt-shakespeare", [1] * 16, t=[256], descent={"steps": 256})
    assert len(vectors) == 16
