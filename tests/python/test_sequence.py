"""The lower level: sequences, interventions, files, batches, observers, and who closes what."""
import gc
import os
import threading
import weakref

import numpy as np
import pytest
from conftest import model_path, open_model

import descent


def test_token_by_token_is_the_whole_text(nrgpt, ids):
    with nrgpt.sequence(steps=4, sharing=False) as sequence:
        rows = []
        for token in ids:
            sequence.append([token])
            rows.append(sequence.logits([len(sequence) - 1])[0])
        assert np.array_equal(np.stack(rows), nrgpt.run(ids, steps=4).logits)
        assert len(sequence) == sequence.finished == len(ids)
        assert sequence.tokens.tolist() == ids and sequence.depth == {"block": 4}


def test_deepening_in_place(nrgpt, ids):
    with nrgpt.sequence(steps=2, sharing=False) as sequence:
        sequence.append(ids)
        sequence.finish()
        assert sequence.steps_run == 2 * len(ids)
        sequence.set_depth(6)
        assert sequence.finished == 0
        assert np.array_equal(sequence.logits(), nrgpt.run(ids, steps=6).logits)
        assert sequence.steps_run == 6 * len(ids)
        sequence.truncate(5)
        assert len(sequence) == 5 and sequence.state(4)[1] == 6
        assert np.array_equal(sequence.states(), nrgpt.run(ids, steps=6).final[:5])


@pytest.mark.parametrize("k", [1, 3, 5])
def test_restart_from_an_exported_state(nrgpt, ids, k):
    whole = nrgpt.run(ids, steps=6, observe="state")
    with nrgpt.sequence(steps=6, sharing=False) as sequence:
        sequence.append(ids)
        for position in range(len(ids)):
            sequence.start(position, k, whole.states[k, position])
        assert np.array_equal(sequence.logits(), whole.logits)
        assert np.array_equal(sequence.states(), whole.final)
        assert sequence.steps_run == (6 - k) * len(ids)


def test_restart_of_a_sublayer(cem, ids):
    whole = cem.run(ids, observe="state")
    with cem.sequence(sharing=False) as sequence:
        sequence.append(ids)
        for position in range(len(ids)):
            sequence.start(position, 0, whole.states["mlp"][1, 0, position], layer=1, kind="mlp")
        assert np.array_equal(sequence.logits(), whole.logits)


def test_interventions(nrgpt, ids):
    plain = nrgpt.run(ids, steps=4, observe="state")
    with nrgpt.sequence(steps=4, sharing=False) as sequence:
        sequence.append(ids)
        sequence.intervene(9, 2, plain.states[2, 9])  # what is there anyway
        sequence.intervene(9, 3, np.zeros(nrgpt.info.width), how="add_g")
        assert np.array_equal(sequence.logits(), plain.logits)
    with nrgpt.sequence(steps=4, sharing=False) as sequence:
        sequence.append(ids)
        sequence.intervene(9, 2, np.full(nrgpt.info.width, 0.5), how="add_x")
        sequence.intervene(9, 2, np.ones(nrgpt.info.width), how="set_g")
        seen = {}
        sequence.observe("state", lambda o: seen.__setitem__((o.step, o.position), o))
        logits = sequence.logits()
        assert np.array_equal(logits[:9], plain.logits[:9])
        assert not np.any(np.all(logits[9:] == plain.logits[9:], axis=1))
        assert np.array_equal(seen[2, 9].x, plain.states[2, 9] + np.float32(0.5))
        assert np.array_equal(seen[2, 9].g, np.ones(nrgpt.info.width))
        assert np.array_equal(seen[1, 9].x, plain.states[1, 9])


def test_observations(cem, ids):
    run = cem.run(ids, steps=(2, 1), observe=("energy", "convergence", "state", "final"))
    seen = []
    with cem.sequence(steps=(2, 1), sharing=False) as sequence:
        sequence.observe(("energy", "convergence", "state", "final"), seen.append)
        sequence.append(ids)
        sequence.finish()
    assert len(seen) == len(ids) * cem.info.layers * (3 + 2)
    for o in seen:
        trace = run.traces[o.kind]
        assert np.array_equal(o.x, trace.states[o.layer, o.step, o.position])
        assert o.energy == {o.kind: trace.energy[o.kind][o.layer, o.step, o.position]}
        assert o.final == (o.step == run.depth[o.kind])
        if not o.final:
            assert o.update_norm == trace.update_norm[o.layer, o.step, o.position]


def test_an_observers_error_comes_out(nrgpt, ids):
    with nrgpt.sequence(steps=3, sharing=False) as sequence:
        sequence.append(ids)
        calls = []

        def fail(observation):
            calls.append(observation)
            raise ZeroDivisionError("of mine")

        sequence.observe("energy", fail)
        with pytest.raises(ZeroDivisionError, match="of mine"):
            sequence.finish()
        assert len(calls) == 1
        sequence.observe(())
        assert np.array_equal(sequence.logits(), nrgpt.run(ids, steps=3).logits)


def test_an_observer_may_not_call_in(nrgpt, ids):
    with nrgpt.sequence(steps=3, sharing=False) as sequence:
        sequence.append(ids)
        for meddle in (lambda _: sequence.truncate(1), lambda _: sequence.close(), lambda _: nrgpt.close()):
            sequence.observe("energy", meddle)
            sequence.set_depth(sequence.depth["block"] + 1)
            with pytest.raises(descent.Error, match="observer"):
                sequence.finish()
        assert not sequence.closed and not nrgpt.closed


def test_a_sequence_that_dies_during_a_step_is_closed_after_it(nrgpt, ids):
    other = nrgpt.sequence(sharing=False)
    other.append(ids)
    other.finish()
    victims = [other]
    gone = weakref.ref(other)
    del other
    with nrgpt.sequence(steps=3, sharing=False) as sequence:
        before = sequence.cache.usage["bytes"]
        sequence.append(ids)
        sequence.observe("energy", lambda _: victims.clear())
        logits = sequence.logits()
        assert gone() is None
        assert np.array_equal(logits, nrgpt.run(ids, steps=3).logits)
        sequence.truncate(0)
        assert sequence.cache.usage["bytes"] < before


def test_save_and_restore(nrgpt, ids, tmp_path):
    path = tmp_path / "half"
    with nrgpt.sequence(steps=3, sharing=False) as sequence:
        sequence.append(ids)
        sequence.finish()
        sequence.save(path)
    with nrgpt.restore(path) as sequence:
        assert sequence.tokens.tolist() == ids and sequence.depth == {"block": 3}
        sequence.set_depth(5)
        assert np.array_equal(sequence.logits(), nrgpt.run(ids, steps=5).logits)
        assert sequence.steps_run <= 2 * len(ids) + 3 * len(ids)
    with open_model("nrgpt-ff1") as stranger, pytest.raises(descent.Error) as error:
        stranger.restore(path)
    assert error.value.code != descent.Code.OK


def test_sequences_of_a_batch_do_not_see_each_other(nrgpt, ids):
    with nrgpt.cache() as cache, cache.batch(max_rows=64) as batch:
        shallow, deep = cache.sequence(2, sharing=False), cache.sequence(5, sharing=False)
        shallow.append(ids)
        deep.append(ids[::-1])
        assert batch.add(deep, most=7) == 7 and batch.rows == 7
        assert batch.add(shallow) == len(ids)
        report = batch.step()
        assert report == {"rows": 7 + len(ids), "finished": 0, "diverged": 0}
        batch.remove(deep)
        assert batch.rows == len(ids)
        for sequence, text, steps in ((shallow, ids, 2), (deep, ids[::-1], 5)):
            batch.finish(sequence)
            assert np.array_equal(batch.logits(sequence, [3, 11]), nrgpt.run(text, steps=steps).logits[[3, 11]])


def test_prefixes_are_shared_where_allowed():
    with open_model("nrgpt-listops-bare") as model, model.cache() as cache:
        text = [i % 20 for i in range(model.info.context)]  # more than one page
        first = cache.sequence(4)
        first.append(text)
        expected = first.logits()
        again, alone, group = cache.sequence(4), cache.sequence(4, sharing=False), cache.sequence(4, share_group=9)
        for sequence in (again, alone, group):
            sequence.append(text)
        assert 0 < again.reused < len(text) and alone.reused == 0 and group.reused == 0
        assert np.array_equal(again.logits([len(text) - 1])[0], expected[-1])
        assert again.steps_run == 4 * (len(text) - again.reused)
        assert cache.usage["shared_hits"] > 0 and cache.usage["pages"] > 0


def test_steps_are_scaled(nrgpt, ids):
    plain = nrgpt.run(ids, steps=1, observe="state")
    with nrgpt.sequence(steps=1, sharing=False, step_scale=0.5) as sequence:
        sequence.append(ids)
        sequence.finish()
        start = plain.states[0]
        np.testing.assert_allclose(sequence.states(), start + 0.5 * (plain.final - start), rtol=0, atol=1e-5)
    twice = nrgpt.run(ids, steps=2, observe="state")
    with nrgpt.sequence(steps=2, sharing=False, step_scale=[1, 0.5, 3]) as sequence:
        sequence.append(ids)
        sequence.finish()
        start = twice.states[1]
        np.testing.assert_allclose(sequence.states(), start + 0.5 * (twice.final - start), rtol=0, atol=1e-5)
    with pytest.raises(descent.Error, match="step_scale is 5 at step 0; expected more than 0, at most 4"):
        nrgpt.sequence(step_scale=5)
    with pytest.raises(descent.Error, match="step_scale is 0 at step 1;"):
        nrgpt.sequence(step_scale=[1, 0])
    with nrgpt.sequence(steps=2, sharing=False, momentum=0.5) as sequence:
        sequence.append(ids)
        sequence.finish()
        first = twice.states[1] - twice.states[0]
        np.testing.assert_allclose(sequence.states(), twice.final + 0.5 * first, rtol=0, atol=1e-5)
    with pytest.raises(descent.Error, match="momentum is 1; expected"):
        nrgpt.sequence(momentum=1)
    def moved(**how):
        with nrgpt.sequence(steps=3, sharing=False, **how) as sequence:
            sequence.append(ids)
            sequence.finish()
            return sequence.states()

    shaken = moved(noise=0.1)
    assert np.array_equal(shaken, moved(noise={"sigma": 0.1, "seed": 1, "schedule": "fixed"}))
    for other in ({"sigma": 0.1, "seed": 2}, {"sigma": 0.1, "schedule": "decay"}, {"sigma": 0.2}, 0):
        assert not np.array_equal(shaken, moved(noise=other))
    assert not np.array_equal(moved(), moved(step_rule="angular"))
    for wrong, words in (({"noise": {"sgma": 1}}, "noise has 'sgma'"), ({"noise": -1}, "noise sigma is -1"),
                         ({"noise": {"schedule": "slow"}}, "schedule"), ({"step_rule": "round"}, "step_rule")):
        with pytest.raises(descent.Error, match=words):
            moved(**wrong)
    with nrgpt.sequence(steps=40, sharing=False, step_scale=0.25, solver={"residual": 1e6, "nstep": 2}) as sequence:
        sequence.append(ids)
        sequence.finish()
        assert all(sequence.converged(i) and sequence.token_steps(i) == 1 for i in range(len(ids)))
    with nrgpt.sequence(steps=2, sharing=False, solver=1e-9) as sequence:
        sequence.append(ids)
        sequence.finish()
        assert not any(sequence.converged(i) for i in range(len(ids)))
    with pytest.raises(descent.Error, match="nstep is 17"):
        nrgpt.sequence(solver={"nstep": 17})
    with pytest.raises(descent.Error, match="solver has 'steps'"):
        nrgpt.sequence(solver={"steps": 2})


def test_histories(nrgpt):
    ids = np.arange(32) % nrgpt.info.vocab

    def logits(steps, **how):
        with nrgpt.cache(threads=1).sequence(steps, sharing=False, **how) as sequence:
            sequence.append(ids)
            return sequence.logits(), [sequence.token_steps(i) for i in range(32)], sequence.cache.usage["bytes"]

    (own, _, bytes_own), (last, _, bytes_last) = logits(6), logits(6, history="last")
    assert np.array_equal(own[0], last[0]) and not np.array_equal(own[1:], last[1:])
    assert np.array_equal(logits(6, history="latest")[0], own) and bytes_last < bytes_own / 3
    shallow, steps, _ = logits(6, history="latest", prompt_steps=2, prompt=22)
    assert steps == 22 * [2] + 10 * [6] and np.array_equal(shallow[:22], logits(2)[0][:22])
    assert not np.array_equal(shallow[22:], own[22:])
    deep, steps, _ = logits(6, prompt_steps=9, prompt=22)
    assert steps == 22 * [9] + 10 * [6] and np.array_equal(deep[22:], own[22:])
    for wrong, words in (({"history": "first"}, "history is 'first', expected one of own, latest, last"),
                         ({"prompt_steps": 2, "prompt": 3}, "prompt_steps is 2, steps 6"),
                         ({"prompt_steps": -1}, "prompt_steps is -1")):
        with pytest.raises(descent.Error, match=words):
            nrgpt.sequence(6, **wrong)
    for wrong in ([], [1] * 65):
        with pytest.raises(descent.Error, match="expected 1 to 64"):
            nrgpt.sequence(step_scale=wrong)


def test_tokens_stop_early(nrgpt, ids):
    with nrgpt.sequence(steps=6, sharing=False, exit={"threshold": 1e6, "min_steps": 2, "first": 1}) as sequence:
        sequence.append(ids)
        sequence.finish()
        assert [sequence.token_steps(i) for i in range(len(ids))] == [6] + [2] * (len(ids) - 1)
        assert sequence.steps_run == 6 + 2 * (len(ids) - 1)
    with nrgpt.sequence(steps=6, sharing=False, exit=0) as sequence:
        sequence.append(ids)
        sequence.finish()
        np.testing.assert_array_equal(sequence.states(), nrgpt.run(ids, steps=6).final)
    with pytest.raises(descent.Error, match="exit threshold is -1"):
        nrgpt.sequence(exit=-1)
    with pytest.raises(descent.Error, match="min_steps is 65536"):
        nrgpt.sequence(exit={"min_steps": 65536})
    with pytest.raises(descent.Error, match="exit has 'patience'"):
        nrgpt.sequence(exit={"patience": 1})
    with pytest.raises(descent.Error, match="exit criterion is 'State', expected one of none, state, cosine, energy, entropy, kl"):
        nrgpt.sequence(exit={"criterion": "State"})


@pytest.mark.parametrize("criterion, steps, cost", [
    ("cosine", 2, (0, 0)), ("energy", 2, (0, 1)), ("entropy", 2, (1, 0)), ("kl", 2, (2, 0)), ("argmax", None, None)])
def test_each_criterion_stops_tokens(nrgpt, ids, criterion, steps, cost):
    for threshold, stopped in ((None, False), (1 if criterion == "argmax" else 1e6, True)):
        exit = {"criterion": criterion, "min_steps": 2, **({"threshold": threshold} if stopped else {})}
        with nrgpt.sequence(steps=9, sharing=False, exit=exit) as sequence:
            sequence.append(ids)
            sequence.finish()
            taken = [sequence.token_steps(i) for i in range(len(ids))]
            if stopped and steps:
                assert taken == [steps] * len(ids)
                assert tuple(sequence.exit_cost.values()) == tuple(len(ids) * each for each in cost)
            elif stopped: # one reading of logits a check, from the second step on
                assert max(taken) < 9 and sequence.exit_cost == {"readings": sum(taken) - len(ids), "energies": 0}
            assert all(2 <= each <= 9 for each in taken)


def test_f16_pages(nrgpt, ids):
    with nrgpt.cache(page_type="f16") as cache, cache.sequence(steps=4) as sequence:
        sequence.append(ids)
        got, exact = sequence.logits(), nrgpt.run(ids, steps=4).logits
        assert not np.array_equal(got, exact)
        np.testing.assert_allclose(got, exact, atol=0.05)


# ---- Closing


def test_closing_closes_what_was_made_from_it(ids):
    model = open_model("nrgpt-ff1")
    cache = model.cache()
    sequence, batch = cache.sequence(), cache.batch()
    model.close()
    assert model.closed and cache.closed and sequence.closed and batch.closed
    for call in (lambda: sequence.append(ids), lambda: len(sequence), batch.step, lambda: cache.usage,
                 lambda: model.run(ids), lambda: model.tensors):
        with pytest.raises(descent.Error, match="closed"):
            call()
    model.close()
    sequence.close()


def test_nothing_outlives_its_last_reference(ids):
    """Without the cycle collector: a model, its caches and its files go as soon as nobody refers to them."""
    gc.collect()
    gc.disable()
    try:
        def maps():
            with open("/proc/self/maps") as file:
                return sum("nrgpt-ff2.gguf" in line for line in file)

        assert maps() == 0
        model = open_model("nrgpt-ff2")
        model.run(ids)
        sequence = model.sequence()
        del model
        assert maps() > 0
        sequence.append(ids)
        assert sequence.logits().shape == (len(ids), 65)  # a sequence keeps what it needs
        del sequence
        assert maps() == 0
    finally:
        gc.enable()


def test_threads_wait_for_each_other(nrgpt, ids):
    """One cache, four threads: each comes to its own right numbers."""
    expected = nrgpt.run(ids, steps=6).logits
    wrong = []

    def work(n):
        for _ in range(5):
            if not np.array_equal(nrgpt.logits(ids[:5 + n], steps=6), expected[:5 + n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- Errors


def code_of(function, *arguments, **named):
    with pytest.raises(descent.Error) as error:
        function(*arguments, **named)
    assert error.value.message and "\n" not in error.value.message
    assert str(error.value).endswith(f"({error.value.code.name})")
    return error.value.code


def test_codes(nrgpt, cem, ids, tmp_path):
    Code = descent.Code
    assert code_of(descent.Model, tmp_path / "missing.gguf") == Code.IO
    (tmp_path / "short.gguf").write_bytes(model_path("nrgpt-ff1").read_bytes()[:1000])
    assert code_of(descent.Model, os.fspath(tmp_path / "short.gguf")) == Code.BAD_FILE
    assert code_of(nrgpt.run, [65]) == Code.BAD_ARGUMENT
    assert code_of(nrgpt.run, list(range(65)) * 9) == Code.BAD_ARGUMENT
    assert code_of(cem.encode, "text") == Code.UNSUPPORTED
    assert code_of(nrgpt.encode, "\u2603") == Code.BAD_ARGUMENT
    with nrgpt.cache(byte_limit=4000) as cache, cache.sequence(steps=60000) as sequence:
        sequence.append(ids)
        assert code_of(sequence.finish) == Code.LIMIT
    with nrgpt.sequence(sharing=False) as sequence:
        sequence.append(ids)
        sequence.check()
        for how in ("set_x", "add_x"):
            sequence.intervene(9, 1, np.full(nrgpt.info.width, 3e38), how)
        assert code_of(sequence.logits) == Code.DIVERGED
        with pytest.raises(descent.Error, match="token 9, step 1"):
            sequence.check()


@pytest.mark.parametrize("steps", [0, -1, 65536, 10**9, 2.5, (1, 2), "", "0", "x", "1x2", "99999"])
def test_bad_depths(nrgpt, ids, steps):
    assert code_of(nrgpt.run, ids, steps=steps) == descent.Code.BAD_ARGUMENT
    with nrgpt.sequence() as sequence:
        assert code_of(sequence.set_depth, steps) == descent.Code.BAD_ARGUMENT


@pytest.mark.parametrize("bad", [[-1], [2**32], [0.5], ["a"], [[1, 2]], 3])
def test_bad_ids(nrgpt, bad):
    assert code_of(nrgpt.run, bad) == descent.Code.BAD_ARGUMENT


def test_bad_arguments(nrgpt, cem, ids):
    zeros = np.zeros(nrgpt.info.width)
    with nrgpt.sequence(steps=3) as sequence, nrgpt.cache() as other, other.batch() as batch:
        sequence.append(ids)
        for bad in (lambda: sequence.state(len(ids)), lambda: sequence.state(-1), lambda: sequence.truncate(len(ids) + 1),
                    lambda: sequence.truncate(-1), lambda: sequence.logits([-1]), lambda: sequence.logits([len(ids)]),
                    lambda: sequence.intervene(0, 0, zeros[1:]), lambda: sequence.intervene(0, 3, zeros),
                    lambda: sequence.intervene(0, -1, zeros), lambda: sequence.intervene(0, 0, zeros, how="set"),
                    lambda: sequence.intervene(0, 0, zeros, kind="mlp"), lambda: sequence.intervene(0, 0, zeros, layer=1),
                    lambda: sequence.intervene(0, 0, zeros * np.nan), lambda: sequence.start(0, 9, zeros),
                    lambda: sequence.observe("energies", print), lambda: batch.add(sequence), lambda: batch.finish(sequence),
                    lambda: batch.logits(sequence), lambda: nrgpt.run(ids, observe=["x"]),
                    lambda: nrgpt.cache(page_type="q4"), lambda: nrgpt.cache(byte_limit=-1), lambda: other.batch(max_rows=-1),
                    lambda: other.batch(threads=2**32), lambda: nrgpt.bytes_needed(10, page_type="f8")):
            assert code_of(bad) == descent.Code.BAD_ARGUMENT
        sequence.finish()
        assert code_of(sequence.intervene, 0, 2, zeros) == descent.Code.BAD_ARGUMENT
    with pytest.raises(TypeError):
        descent.Sequence()
