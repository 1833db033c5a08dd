"""Logits, states and energies that come through Python, against the golden numbers of a float64 reference; tolerances are
those of the C tests: logits 2e-5, states 2e-5 of the row's largest, energies 1e-4."""
import numpy as np
import pytest
from conftest import BARE, CEM, NRGPT, ROOT, open_model
from safetensors.numpy import load_file


def expected_of(name):
    return load_file(ROOT / "tests" / "golden" / name / "expected.safetensors")


def assert_near(got, expected, tolerance, scale=None):
    assert got.shape == expected.shape and got.dtype == np.float32
    allowed = tolerance * np.maximum(1, np.abs(expected) if scale is None else scale)
    assert np.all(np.abs(got - expected) <= allowed), f"off by {np.max(np.abs(got - expected) / allowed)} times the tolerance"


def assert_logits_and_states(run, expected, suffix):
    assert_near(run.logits, expected[f"logits.{suffix}"], 2e-5)
    if f"state.{suffix}" in expected:
        state = expected[f"state.{suffix}"]
        assert_near(run.final, state, 2e-5, np.abs(state).max(axis=1, keepdims=True))


@pytest.mark.parametrize("name", NRGPT + BARE)
def test_nrgpt(name):
    expected = expected_of(name)
    depths = sorted(int(key[len("logits.T"):]) for key in expected if key.startswith("logits.T"))
    assert len(depths) >= 3
    with open_model(name) as model:
        tokens = expected["tokens"]
        for T in depths:
            run = model.run(tokens, steps=T, observe=("energy", "convergence", "state", "final"))
            assert_logits_and_states(run, expected, f"T{T}")
            assert list(run.energy) == ["attention", "feed_forward"]
            L, C = tokens.size, model.info.width
            assert run.states.shape == run.g.shape == (T + 1, L, C)
            assert np.array_equal(run.states[T], run.final)
            assert run.energy["attention"].shape == (T + 1, L)
            for term, key in (("attention", "energy.attn"), ("feed_forward", "energy.ff")):
                if name not in BARE:
                    assert_near(run.energy[term][:T], expected[f"{key}.T{T}"], 1e-4)


def depths_of_cem(expected):
    suffixes = [key[len("logits."):] for key in expected if key.startswith("logits.")]
    return [(s, tuple(int(part[2:]) for part in s.split("."))) for s in suffixes]


@pytest.mark.parametrize("name", CEM)
def test_cem(name):
    expected = expected_of(name)
    with open_model(name) as model:
        tokens, layers, C = expected["tokens"], model.info.layers, model.info.width
        assert len(depths_of_cem(expected)) >= 3
        for suffix, (Ta, Tm) in depths_of_cem(expected):
            run = model.run(tokens, steps=(Ta, Tm), observe=("energy", "convergence", "state", "final"))
            assert_logits_and_states(run, expected, suffix)
            assert run.depth == {"attention": Ta, "mlp": Tm}
            for kind, key, T in (("attention", "energy.attn", Ta), ("mlp", "energy.mlp", Tm)):
                assert_near(run.energy[kind][:, :T], expected[f"{key}.{suffix}"], 1e-4)
                assert run.states[kind].shape == (layers, T + 1, tokens.size, C)
                assert run.update_norm[kind].shape == (layers, T, tokens.size)
            # A sub-layer begins where the one before it ended.
            assert np.array_equal(run.states["mlp"][:, 0], run.states["attention"][:, -1])
            assert np.array_equal(run.states["attention"][1:, 0], run.states["mlp"][:-1, -1])
            assert np.array_equal(run.states["mlp"][-1, -1], run.final)
