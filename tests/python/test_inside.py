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
    with Server([model_path(name) for name in MODELS]) as server:
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


def test_a_slope_has_no_step_scale_in_it(server, ids):
    ids = [int(i) for i in ids]
    plain = trace(server, MODELS[0], ids)
    half = trace(server, MODELS[0], ids, descent={"step_scale": 0.5})
    for a, b in zip(plain, half):
        assert a["descents"][0]["slope"][0] == b["descents"][0]["slope"][0]
        assert a["descents"][0]["slope"][1] != b["descents"][0]["slope"][1]
