"""Model.run and Model.logits: what the arrays mean, checked against each other and against formulas written out here."""
import numpy as np
import pytest

import descent

EVERYTHING = ("energy", "convergence", "state", "slope", "final")


def test_convergence_is_that_of_the_states(nrgpt, ids):
    run = nrgpt.run(ids, steps=5, observe=EVERYTHING)
    x, g = run.states.astype(float), run.g.astype(float)
    np.testing.assert_allclose(run.update_norm, np.linalg.norm(x[1:] - x[:-1], axis=-1), rtol=1e-4)
    np.testing.assert_allclose(run.relative_change,
                               np.linalg.norm(g[1:] - g[:-1], axis=-1) / np.linalg.norm(g[:-1], axis=-1), rtol=1e-3)


@pytest.mark.parametrize("fixture, steps", [("nrgpt", 5), ("cem", (3, 4))])
def test_the_change_of_energy_is_its_two_parts(request, ids, fixture, steps):
    run = request.getfixturevalue(fixture).run(ids, steps=steps, observe=EVERYTHING)
    for trace in run.traces.values():
        total = trace.total_energy.astype(float)
        change = np.diff(total, axis=-2)
        assert trace.own_change.shape == trace.history_change.shape == change.shape
        parts = trace.own_change.astype(float) + trace.history_change
        np.testing.assert_allclose(parts, change, rtol=0, atol=2e-5 * np.abs(total).max())
        if fixture == "cem":  # the history of a sub-layer is frozen
            assert np.all(np.abs(trace.history_change) <= 2e-5 * np.abs(total).max())
        else:
            assert np.abs(trace.history_change).max() > 0.01 * np.abs(change).max()


@pytest.mark.parametrize("fixture", ["nrgpt", "cem"])
def test_a_small_step_changes_the_energy_by_its_slope(request, ids, fixture):
    """The first step's energy change for each unit of step_scale comes to -slope as step_scale becomes small."""
    model, seen = request.getfixturevalue(fixture), {}
    for scale in (1 / 32, 1 / 64):
        def observer(o, scale=scale):
            if o.step == 0 and o.layer == 0 and o.kind == model.info.kinds[0] and not o.final:
                seen.setdefault(scale, {})[o.position] = (o.own_change / scale, o.slope)
        with model.cache().sequence(sharing=False, step_scale=scale) as sequence:
            sequence.observe(("energy", "slope"), observer)
            sequence.append(ids)
            sequence.finish()
    far, near = (np.array([seen[scale][i] for i in range(1, len(ids))]) for scale in (1 / 32, 1 / 64))
    assert np.array_equal(far[:, 1], near[:, 1])  # step_scale is no part of it
    wrong = [np.median(np.abs(change + slope)) / np.abs(slope).max() for change, slope in (far.T, near.T)]
    assert wrong[1] < 0.6 * wrong[0] and wrong[1] < 0.1


def test_without_final_the_last_history_change_is_unknown(nrgpt, ids):
    with_final = nrgpt.run(ids, steps=4, observe=("energy", "final"))
    without = nrgpt.run(ids, steps=4, observe="energy")
    assert without.energy["attention"].shape == (4, len(ids))
    assert np.all(np.isnan(without.history_change[-1]))
    assert np.array_equal(without.history_change[:-1], with_final.history_change[:-1])
    assert np.array_equal(without.own_change, with_final.own_change)


def test_only_what_was_asked_for(nrgpt, ids):
    nothing = nrgpt.run(ids, steps=3)
    assert nothing.energy == {} and nothing.states is None and nothing.own_change is None and nothing.update_norm is None
    states = nrgpt.run(ids, steps=3, observe=("state",))
    assert states.states.shape[0] == 3 and states.energy == {} and states.update_norm is None
    converging = nrgpt.run(ids, steps=3, observe="convergence")
    assert np.all(converging.update_norm > 0) and converging.states is None and converging.energy == {}
    slopes = nrgpt.run(ids, steps=3, observe="slope")
    assert slopes.slope.shape == (3, len(ids)) and np.all(np.isfinite(slopes.slope)) and slopes.update_norm is None
    assert converging.slope is None


def test_observing_changes_no_bit(nrgpt, cem, ids):
    for model in (nrgpt, cem):
        plain, seen = model.run(ids), model.run(ids, observe=EVERYTHING)
        assert np.array_equal(plain.logits, seen.logits) and np.array_equal(plain.final, seen.final)


def test_a_sweep_is_its_runs_bit_for_bit(nrgpt, cem, ids):
    for model, depths in ((nrgpt, [4, 1, 7, 4]), (cem, ["1x3", (2, 2), 3])):
        swept = model.logits(ids, steps=depths)
        assert swept.shape == (len(depths), len(ids), model.info.vocab)
        for logits, depth in zip(swept, depths):
            assert np.array_equal(logits, model.run(ids, steps=depth).logits)
            assert np.array_equal(logits, model.logits(ids, steps=depth))
        assert not np.array_equal(swept[0], swept[1])


def test_depths_are_said_in_three_ways(nrgpt, cem, ids):
    assert nrgpt.run(ids).depth == {"block": nrgpt.info.trained[0]}
    assert cem.run(ids, steps=3).depth == {"attention": 3, "mlp": 3}
    assert cem.run(ids, steps="3x1").depth == cem.run(ids, steps=(3, 1)).depth == {"attention": 3, "mlp": 1}


def test_info(nrgpt, cem):
    info = nrgpt.info
    assert (info.family, info.kinds, info.terms) == ("nrgpt", ("block",), (("attention", "feed_forward"),))
    assert (info.width, info.vocab, info.layers, info.deepens) == (64, 65, 1, True)
    assert (cem.info.family, cem.info.kinds, cem.info.trained) == ("cem", ("attention", "mlp"), (2, 2))
    assert (cem.info.layers, cem.info.deepens) == (2, False)
    assert nrgpt.info.fingerprint != cem.info.fingerprint
    assert nrgpt.metadata["general.architecture"] == "nrgpt"
    assert nrgpt.metadata["nrgpt.embedding_length"] == "64"
    tensors = {tensor.name: tensor for tensor in nrgpt.tensors}
    assert tensors["token_embd.weight"].dims == (64, 65) and tensors["token_embd.weight"].bytes == 4 * 64 * 65
    assert sum(np.prod(tensor.dims) for tensor in nrgpt.tensors) == info.parameters
    assert nrgpt.bytes_needed(100, steps=8) > nrgpt.bytes_needed(100, steps=4) > nrgpt.bytes_needed(10, steps=4) > 0
    assert descent.isa() in ("avx512-vbmi", "avx512-vnni", "avx512", "avx2", "portable") and descent.__version__.count(".") == 2


def test_long_runs_grow_in_chunks_of_the_batch(nrgpt):
    ids = [i % 65 for i in range(nrgpt.info.context)]
    with nrgpt.cache(max_rows=5, threads=1) as cache, cache.sequence(steps=3) as sequence:
        sequence.append(ids)
        assert np.array_equal(sequence.logits(), nrgpt.run(ids, steps=3).logits)
        assert sequence.steps_run == 3 * len(ids)
