"""Logits, states and energies that come through Python, against the golden numbers of a float64 reference; tolerances are
those of the C tests: logits 2e-5, states 2e-5 of the row's largest, energies 1e-4."""
import descent
import numpy as np
import pytest
from conftest import BARE, CEM, NRGPT, RECURRENT, ROOT, open_model
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


@pytest.mark.parametrize("name", RECURRENT)
def test_one_block_without_energy(name):
    expected = expected_of(name)
    depths = sorted(int(key[len("logits.T"):]) for key in expected if key.startswith("logits.T"))
    assert len(depths) >= 3
    with open_model(name) as model:
        tokens = expected["tokens"]
        assert (model.info.family, model.info.kinds, model.info.terms) == ("gpt-rec-parallel", ("block",), ((),))
        for logits, T in zip(model.logits(tokens, steps=depths), depths):
            run = model.run(tokens, steps=T, observe=("energy", "convergence", "state", "final"))
            assert_logits_and_states(run, expected, f"T{T}")
            assert np.array_equal(logits, run.logits)
            assert run.energy == {} and run.own_change is None
            assert np.array_equal(run.states[T], run.final)
            assert np.all(np.isfinite(run.relative_change)) and run.update_norm.shape == (T, tokens.size)


def test_gpt(gpt, tmp_path):
    """No T: steps is left away, or zero for each kind, or "none"."""
    expected = expected_of("gpt")
    tokens, info = expected["tokens"], gpt.info
    assert (info.kinds, info.trained, info.terms, info.deepens) == (("attention", "feed_forward"), (0, 0), ((), ()), False)
    for steps in (None, (0, 0), "none"):
        run = gpt.run(tokens, steps=steps, observe=("energy", "convergence", "state", "final"))
        assert_logits_and_states(run, expected, "T2")
        assert run.depth == {"attention": 0, "feed_forward": 0} and run.energy == {}
        assert run.own_change == {"attention": None, "feed_forward": None}
        for kind in info.kinds:
            assert run.states[kind].shape == (2, 2, tokens.size, info.width)
        assert np.array_equal(run.states["feed_forward"][:, 0], run.states["attention"][:, 1])
        assert np.array_equal(run.states["feed_forward"][-1, 1], run.final)
    for steps in (1, 4, "1", (1, 0), (2, 2)):
        with pytest.raises(descent.Error) as refused:
            gpt.run(tokens, steps=steps)
        assert refused.value.code == descent.Code.BAD_ARGUMENT and "T" in str(refused.value)
    with gpt.sequence() as sequence:
        sequence.append(tokens)
        sequence.finish()
        sequence.save(tmp_path / "saved")
    with gpt.restore(tmp_path / "saved") as again:
        assert np.array_equal(again.logits([tokens.size - 1])[0], run.logits[-1])


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
