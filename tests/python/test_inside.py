"""What the server says of descents is what the module sees of them: /v1/descent/trace against Model.run and sequences."""
import sys

import numpy as np
import pytest
from conftest import ROOT, model_path, open_model

sys.path.insert(0, str(ROOT / "tests" / "support"))

from serving import Server  # noqa: E402

MODELS = ["nrgpt-ff2w-strict", "nrgpt-ff1-rms-diag-alpha", "cem-shared-r8-silu"]


@pytest.fixture(scope="module")
def server():
    with Server([model_path(name) for name in MODELS + ["gpt"]]) as server:
        yield server


def trace(server, model, ids, **fields):
    answer = server.json("/v1/descent/trace", {"model": model, "prompt": ids, "max_tokens": 0, "top": 0, **fields})
    return [token["trace"] for token in answer["traces"][0]["tokens"]]


@pytest.mark.parametrize("name", MODELS)
def test_slopes(server, name, ids):
    ids = [int(i) for i in ids]
    with open_model(name) as model:
        run = model.run(ids, observe=("slope", "convergence", "energy", "final"))
    traces = trace(server, name, ids)
    kinds = list(run.traces)
    for i, found in enumerate(traces):
        for descent in found["descents"]:
            own = run.traces[descent["kind"]]
            expected = (own.slope if len(kinds) == 1 else own.slope[descent["layer"]])[:, i]
            assert np.array_equal(np.float32(descent["slope"]), expected) and np.isfinite(expected).all()


@pytest.mark.parametrize("name", MODELS)
def test_what_attention_owes_to_the_number_of_keys(name):
    """By the file's constants: models.md section 4."""
    import gguf

    reader = gguf.GGUFReader(model_path(name))
    value = {key: field.contents() for key, field in reader.fields.items()}
    if "nrgpt.attention.beta" in value:
        alphas = [tensor.data for tensor in reader.tensors if tensor.name == "blk.0.attn_alpha.weight"]
        scale = (alphas[0].sum() if alphas else value["nrgpt.attention.head_count"]) / value["nrgpt.attention.beta"]
        keys = 0 if value["nrgpt.attention.mask"] == "strict" else 1
    else:
        heads = value["cem.attention.head_count"]
        scale = value["cem.block_count"] * np.sqrt(value["cem.embedding_length"] / heads) * heads
        keys = 1
    with open_model(name) as model:
        for position in (1, 2, 7, 100):
            assert model.history_term(position) == pytest.approx(scale * np.log(position + keys))


@pytest.mark.parametrize("name", MODELS + ["gpt"])
def test_multiply_adds_are_those_of_a_measured_text(server, name, ids, tmp_path):
    """`descent scale` counts a text of 12 tokens; of the last nothing is run."""
    steps = None if name == "gpt" else 3
    asked = {"model": name, "texts": [[int(i) for i in ids[:12]]]}
    with open_model(name) as model:
        counted = model.multiply_adds(11, 11, steps)
        more = model.multiply_adds(11, 1, steps)
    [row] = server.json("/v1/descent/scaling", asked if name == "gpt" else {**asked, "steps": [3]})["rows"]
    assert counted == {part: row["multiply_adds_by"][part] for part in counted}
    assert sum(counted.values()) == row["multiply_adds"]
    assert more == {**counted, "head": counted["head"] // 11}


def test_a_slope_has_no_step_scale_in_it(server, ids):
    ids = [int(i) for i in ids]
    plain = trace(server, MODELS[0], ids)
    half = trace(server, MODELS[0], ids, descent={"step_scale": 0.5})
    for a, b in zip(plain, half):
        assert a["descents"][0]["slope"][0] == b["descents"][0]["slope"][0]
        assert a["descents"][0]["slope"][1] != b["descents"][0]["slope"][1]


def test_rates_beside_the_norms_weight(ids):
    """Against the tensors as the file has them; CEM's P is formed here from its parts."""
    import gguf

    def tensors(name):
        return {tensor.name: np.array(tensor.data, np.float64) for tensor in gguf.GGUFReader(model_path(name)).tensors}

    found = tensors("nrgpt-ff1-rms-diag-alpha")
    with open_model("nrgpt-ff1-rms-diag-alpha") as model:
        beside = found["blk.0.rate.weight"].ravel() / found["blk.0.norm.weight"].ravel()
        assert model.rate() == {"low": beside.min(), "high": beside.max(), "off_diagonal": 0}
        assert model.rate(layer=1) is None
    found = tensors("nrgpt-ff2w")
    with open_model("nrgpt-ff2w") as model:
        rate = found["blk.0.rate.weight"]
        off = 1 - (np.diag(rate) ** 2).sum() / (rate ** 2).sum()
        assert model.rate()["off_diagonal"] == pytest.approx(off)
        assert model.rate()["low"] == (np.diag(rate) / found["blk.0.norm.weight"].ravel()).min()
    found = tensors("cem-shared-r8-silu")
    with open_model("cem-shared-r8-silu") as model:
        for layer, kind, step in ((0, 0, 0), (1, 1, 2)):
            part = f"blk.{layer}.{('attn', 'mlp')[kind]}"
            u, v = found[f"{part}_precond_u.weight"], found[f"{part}_precond_v.weight"]
            p = np.diag(np.log1p(np.exp(found[f"{part}_precond_d.weight"].ravel()))) + u @ v.T + v @ u.T
            eta = found[f"{part}_eta.weight"].ravel()
            p *= eta[min(step, len(eta) - 1)]
            beside, got = np.diag(p) / found[f"{part}_norm.weight"].ravel(), model.rate(layer, kind, step)
            assert (got["low"], got["high"]) == (pytest.approx(beside.min()), pytest.approx(beside.max()))
            assert got["off_diagonal"] == pytest.approx(1 - (np.diag(p) ** 2).sum() / (p ** 2).sum())
    with open_model("gpt") as model:
        assert model.rate() is None
