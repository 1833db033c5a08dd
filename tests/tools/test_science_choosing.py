"""tools/descent_science: choosing and repeating. What the claims compute of what the product tells them, by inputs whose answers are
known by hand; the starts and pushes on golden models; and every claim once, on very little, through the program.
"""
import json
import types

import numpy as np
import pytest

from conftest import BINARY, ROOT
from descent_science import choose, guesses, measures, page, paths, quantization, rank, samples, served
from descent_science.context import Context, ScienceError
from descent_science.section import AGREES, DISAGREES, IN_PART, UNKNOWN, VERDICTS

MODELS = ROOT / "models"


@pytest.fixture
def ctx(tmp_path):
    return Context(BINARY, MODELS, tmp_path / "work", quick=True)


# ---- Ranks, divergence, intervals ---------------------------------------------------------------------------------------------

def test_equal_values_share_their_ranks():
    assert measures.ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0, 2.5, 1]
    assert measures.ranks([7, 7, 7]).tolist() == [1, 1, 1]


def test_rank_correlation():
    a = np.array([0.1, 5.0, 2.0, 3.0])
    assert measures.spearman(a, np.exp(a)) == pytest.approx(1) and measures.spearman(a, -a ** 3) == pytest.approx(-1)
    # Ranks 0, 1.5, 1.5, 3 and 0, 2, 1, 3: 4.5 / sqrt(4.5 * 5).
    assert measures.spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(4.5 / np.sqrt(22.5))
    assert np.isnan(measures.spearman([1, 2, 3], [4, 4, 4]))


def test_divergence_of_two_predictions():
    p, q = np.log([[0.5, 0.5]]) + 3, np.log([[0.25, 0.75]]) - 700  # logits are what they are up to a constant
    assert measures.divergence(p, q) == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))
    assert measures.divergence(p, p) == pytest.approx(0)


def test_means_and_their_intervals():
    told = measures.mean([1, 0, 1, 1])
    assert told["value"] == 0.75 and 0 <= told["low"] < 0.75 < told["high"] <= 1
    assert measures.mean([0.25] * 9) == {"value": 0.25, "low": 0.25, "high": 0.25}
    assert measures.mean([6, 2], [3, 1])["value"] == 2
    # A difference taken item by item has no part in what makes items hard: its interval is far narrower.
    hard = np.random.default_rng(0).random(50)
    paired = measures.mean((hard + 0.1) - hard)
    assert paired["low"] == pytest.approx(0.1) and paired["high"] == pytest.approx(0.1)


# ---- Choosing ---------------------------------------------------------------------------------------------------------------------

def text(said, energy=0.0, gap=0.0, logprob=-1.0, votes=1, end="stop"):
    """A candidate as descent.choose tells it."""
    return {"text": said, "finish_reason": end, "tokens": 3, "logprob": logprob, "energy": energy, "energy_gap": gap, "votes": votes}


def test_the_token_before_the_end_is_the_answer():
    assert served.answer_of(text("add_10,(,2,5,),=,7,")) == "7" and served.answer_of(text("7")) == "7"
    assert served.answer_of(text("7,", end="length")) is None


def test_each_rule_takes_its_own():
    four = [text("1,", -3.0, 1.0, -0.9), text("2,", -5.0, 2.0, -0.5), text("3,", -4.0, 9.0, -0.7), text("4,", -4.5, 3.0, -0.1)]
    assert [choose.chosen(rule, four) for rule in choose.RULES] == [1, 2, 3, 3]  # of votes all have one: the likeliest


def test_ties_go_to_the_earlier_and_null_comes_last():
    same = [text("1,"), text("1,")]
    assert [choose.chosen(rule, same) for rule in choose.RULES] == [0] * 4
    unknown = [text("", None, None, None, 1), text("2,", 50.0, -50.0, -50.0, 1)]
    assert [choose.chosen(rule, unknown) for rule in choose.RULES] == [1] * 4
    assert choose.chosen("vote", [text("1,", votes=1, logprob=-0.1), text("2,", votes=2, logprob=-9), text("2,", votes=2, logprob=-9)]) == 1
    assert choose.chosen("energy", [text("", None), text("", None)]) == 0


def test_a_majority_is_of_answers_and_ties_are_shared():
    assert choose.majority([text("7,"), text("add_10,=,7,"), text("8,")], "7") == 1  # by different texts
    assert choose.majority([text("7,"), text("8,")], "7") == 0.5
    assert choose.majority([text("7,", end="length"), text("8,")], "7") == 0
    assert choose.majority([text("7,", end="length")] * 3, "7") == 0


def test_what_each_way_is_worth_on_a_question():
    told = choose.marks([text("7,", -1.0, 1.0, -0.2), text("8,", -2.0, 0.5, -0.1), text("8,", -0.5, 0.1, -0.1), text("9,", 0.0)], "8")
    assert told == {"random": 0.5, "energy": 1, "energy_gap": 0, "logprob": 1, "vote": 1, "majority": 1, "any": 1}


def chosen_results(energy, logprob=0.0):
    """Results in which choosing by energy differs from a random choice by `energy` in each setting, surely."""
    def way(value):
        return {"value": 0.5 + value, "low": 0.4, "high": 0.6, "beside random": {"value": value, "low": value - 0.01, "high": value + 0.01}}

    rows = [{"steps": steps, "temperature": temperature, "n": n, "distinct": 2.0, "random": way(0),
             **{rule: way({"energy": energy, "logprob": logprob}.get(rule, 0.0)) for rule in choose.RULES + choose.OTHERS}}
            for temperature in choose.TEMPERATURES for steps in choose.DEPTHS for n in choose.COUNTS]
    return {"models": {"m": {"items": 9, "greedy": {str(steps): 0.5 for steps in choose.DEPTHS}, "rows": rows}}}


@pytest.mark.parametrize("energy, logprob, verdict", [(0.2, 0.1, AGREES), (0.2, 0.3, IN_PART), (-0.2, 0.1, DISAGREES), (0.0, 0.1, UNKNOWN)])
def test_the_verdict_on_choosing_follows_from_the_numbers(energy, logprob, verdict):
    results = chosen_results(energy, logprob)
    section = choose.section(results)
    assert section.verdict == verdict
    short = choose.in_depth_md(results)
    assert len(short.rows) == len(choose.DEPTHS) and short.rows[0][4] == f"{0.5 + energy:.3f} ({energy - 0.01:+.3f} to {energy + 0.01:+.3f})"


def test_a_table_in_another_document(tmp_path):
    path, table = tmp_path / "depth.md", choose.in_depth_md(chosen_results(0.2))
    path.write_text("Before\n\n<!-- science: choose -->\n| old |\n<!-- /science: choose -->\n\nAfter\n")
    for _ in range(2):  # it takes the place of what was there
        page.put(path, "choose", table)
        text = path.read_text()
        assert text.startswith("Before\n\n<!-- science: choose -->\n\n| model | T | n | random |") and "old" not in text
        assert text.endswith("|\n\n<!-- /science: choose -->\n\nAfter\n") and text.count("| m |") == len(choose.DEPTHS)
    path.write_text("<!-- /science: choose -->\n<!-- science: choose -->\n")
    with pytest.raises(ScienceError, match="depth.md has no lines <!-- science: choose --> and <!-- /science: choose -->, in that order"):
        page.put(path, "choose", table)


# ---- Votes at equal multiply-adds -----------------------------------------------------------------------------------------------

class Counting:
    """A model whose text takes 10 multiply-adds a token and step, and 1 a prediction."""

    def multiply_adds(self, tokens, predictions, steps):
        return {"weights": 9 * tokens * steps, "attention": tokens * steps, "head": predictions}


def test_samples_share_a_prompt_and_nothing_else():
    # A prompt of 5: four of its tokens are run once. Texts of 3 and of 1 token: the prompt's last token and two more, or none.
    shared, each = samples.once_and_each(Counting(), 5, [3, 1], 2)
    assert shared == 10 * 4 * 2 and each == [10 * 3 * 2 + 3, 10 * 1 * 2 + 1]
    assert samples.once_and_each(Counting(), 1, [2], 4) == (0, [10 * 2 * 4 + 2])


def test_one_text_takes_no_more_than_the_votes_it_stands_beside():
    costs = {1: 100.0, 2: 200.0, 4: 400.0}
    assert [samples.matched(cost, costs) for cost in (99, 100, 399, 400, 9000)] == [None, 1, 2, 4, 4]


def test_the_first_n_texts_vote():
    three = [text("1,"), text("2,"), text("2,")]
    assert samples.votes(three, "2", (1, 2, 3)) == {1: 0, 2: 0.5, 3: 1}


# ---- Energy and loss ------------------------------------------------------------------------------------------------------------

def test_bins_hold_about_as_many_tokens():
    position = np.tile(np.arange(64), 5)
    upper = rank.edges(position, 8)
    which = np.searchsorted(upper, position)
    assert upper[-1] == 63 and set(np.bincount(which)) == {40}
    assert rank.edges(np.array([3, 3, 3]), 8).tolist() == [3]


def test_what_changes_with_position_alone_is_no_correlation():
    """Energy and loss both fall with position, and within a position they go against each other."""
    window, position = np.repeat(np.arange(10), 4), np.tile(np.arange(4), 10)
    energy, loss = -10.0 * position + window, -10.0 * position - window
    told = rank.correlated(window, position, energy, loss, bins=4, resamples=50)
    assert told["edges"] == [0, 1, 2, 3] and told["bins"] == pytest.approx([-1] * 4)
    assert told["value"] == pytest.approx(-1) and measures.spearman(energy, loss) > 0.5


def test_bins_without_a_correlation_have_none():
    by_bin, value = rank.within_bins(np.array([0, 0, 0, 1, 1, 2, 2, 2]), 4, np.array([1.0, 1, 1, 1, 2, 1, 2, 3]), np.arange(8.0))
    assert by_bin == [None, None, pytest.approx(1), None] and value == pytest.approx(1)


def test_energies_of_a_block_and_of_layers():
    block = types.SimpleNamespace(traces={"block": types.SimpleNamespace(energy={"a": 0}, total_energy=np.arange(6.0).reshape(3, 2))})
    assert rank.energies(block, None).tolist() == [[0, 1], [2, 3], [4, 5]]
    layers = np.arange(12.0).reshape(2, 3, 2)  # two layers, T = 2, two tokens: the ends are 4, 5 and 10, 11
    kind = types.SimpleNamespace(energy={"a": 0}, total_energy=layers)
    none = types.SimpleNamespace(energy={}, total_energy=None)
    assert rank.energies(types.SimpleNamespace(traces={"attention": kind, "mlp": kind}), None).tolist() == [[28, 32]]
    assert rank.energies(types.SimpleNamespace(traces={"attention": kind, "mlp": none}), None).tolist() == [[14, 16]]


# ---- Where descents end ---------------------------------------------------------------------------------------------------------

def test_noise_is_as_long_as_it_says():
    states = np.random.default_rng(1).standard_normal((3, 4096)).astype(np.float32)
    off = np.linalg.norm(paths.noisy(states, 0.5, 7) - states, axis=-1) / np.linalg.norm(states, axis=-1)
    assert off == pytest.approx([0.5] * 3, rel=0.05)
    assert (paths.noisy(states, 0.5, 7) == paths.noisy(states, 0.5, 7)).all() and (paths.noisy(states, 0, 7) == states).all()


def test_ends_differ_in_direction_alone():
    x = np.array([[[9.0, 9], [1, 0], [1, 0]]])  # one depth, three tokens; the first is left out
    y = np.array([[[0.0, 1], [5, 0], [0, 3]]])
    p = np.log(np.full((1, 3, 2), 0.5))
    q = np.log(np.array([[[0.1, 0.9], [0.5, 0.5], [0.25, 0.75]]]))
    told = paths.apart((x, p), (y, q), centred=False)
    assert told["distance"] == pytest.approx(np.array([[0, np.sqrt(2)]]))
    assert told["kl"] == pytest.approx(np.array([[0, 0.5 * np.log(2) + 0.5 * np.log(2 / 3)]]))
    assert told["same token"].tolist() == [[1, 0]]
    assert paths.directions(np.array([[1.0, 2, 3]]), centred=True) == pytest.approx(np.array([[-1, 0, 1]]) / np.sqrt(2))


@pytest.fixture
def native(ctx, golden):
    """A golden model in the Python module, by name."""
    opened = []

    def open_model(name):
        opened.append(ctx.open(golden(name)))
        return opened[-1]

    yield open_model
    for model in opened:
        model.close()


def test_a_start_from_the_embedding_is_no_start(native):
    model, ids = native("nrgpt-ff2w"), [3, 1, 4, 1, 5]
    embedding = model.run(ids, steps=1, observe=("state",)).states[0]
    states, logits = paths.started(model, ids, (1, 4))
    again = paths.started(model, ids, (1, 4), embedding)
    assert (again[0] == states).all() and (again[1] == logits).all()
    assert (logits == model.logits(ids, steps=[1, 4])).all()
    elsewhere = paths.started(model, ids, (1, 4), paths.noisy(embedding, 1, 1))[0]
    assert (elsewhere != states).any(axis=(1, 2)).all()


def test_a_start_from_the_token_before(native):
    """By hand: token 1 of two starts where token 0 ended, at each T."""
    model, ids = native("nrgpt-ff2w"), [3, 1]
    states, logits = paths.from_previous(model, ids, (1, 3))
    for k, steps in enumerate((1, 3)):
        first = model.run(ids[:1], steps=steps).final[0]
        assert (states[k, 0] == first).all()
        expected = paths.started(model, ids, (steps,), [model.run(ids, steps=1, observe=("state",)).states[0, 0], first])
        assert (states[k] == expected[0][0]).all() and (logits[k] == expected[1][0]).all()


def test_layers_are_pushed_behind_their_first_step(native):
    model, ids = native("cem-shared-r8-silu"), [3, 1, 4]
    states, logits = paths.pushed(model, ids, (2, 4), 0, 0)
    assert (logits == model.logits(ids, steps=[2, 4])).all()
    near, far = (np.linalg.norm(paths.pushed(model, ids, (2, 4), sigma, 1)[0] - states, axis=-1) for sigma in (0.01, 0.5))
    assert (near > 0).all() and (near < far).all()


def path_results(last):
    """A model whose ends are 0.5 apart at its trained T = 4 and `last` at T = 8, where other tokens' are 1 apart."""
    def rows(*distances):
        return [{"steps": steps, "distance": {"value": d, "low": d, "high": d}, "kl": {"value": d, "low": d, "high": d},
                 "same token": {"value": 1 - d / 2}} for steps, d in zip((1, 4, 8), distances)]

    starts = {start: rows(0.9, 0.5, last) for start in paths.NOISES}
    return {"models": {"m": {"trained": 4, "deepens": True, "tokens": 9, "starts": {**starts, paths.OTHER: rows(1.0, 1.0, 1.0)}}}}


@pytest.mark.parametrize("last, verdict", [(0.05, AGREES), (0.2, IN_PART), (0.5, DISAGREES), (0.9, DISAGREES)])
def test_the_verdict_on_paths_follows_from_the_numbers(last, verdict):
    assert paths.section(path_results(last)).verdict == verdict


# ---- Guesses along a descent ----------------------------------------------------------------------------------------------------

def guessed(*kls, trained):
    return {"trained": trained, "rows": [{"t": t, "kl": {"value": kl, "low": 0.8 * kl, "high": 1.2 * kl}} for t, kl in enumerate(kls, 1)]}


def test_guesses_come_nearer_where_their_intervals_are_apart():
    assert guesses._falls(guessed(3.0, 2.0, 1.0, 0.0, 5.0, trained=4))
    assert not guesses._falls(guessed(3.0, 1.0, 2.0, 0.0, trained=4))
    assert not guesses._falls(guessed(3.0, 1.0, 0.9, 0.0, trained=4))  # by less than chance


# ---- Quantized weights ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("last, verdict", [(0.4, AGREES), (0.05, DISAGREES)])
def test_growth_is_from_the_trained_depth(last, verdict):
    def rows(*kls):
        return [{"steps": steps, "kl": {"value": kl, "low": kl, "high": kl}, "same token": 0.9} for steps, kl in zip((1, 4, 8), kls)]

    found = {"trained": 4, "deepens": True, "bytes": 100, "tokens": 9,
             "types": {label: {"bytes": 50, "rows": rows(0.3, 0.1, last)} for label in quantization.TYPES}}
    assert quantization.growth(found)["Q8_0"] == pytest.approx(last / 0.1)
    assert quantization.section({"models": {"m": found}}).verdict == verdict


# ---- Every claim, once ----------------------------------------------------------------------------------------------------------

LITTLE = {
    choose: {"MODELS": ("nrgpt-listops-30k",), "DEPTHS": (2, 5), "COUNTS": (2,), "TEMPERATURES": (1.0, 0.5)},
    samples: {"MODELS": ("nrgpt-listops-30k",), "VOTED": (2, 5), "COUNTS": (1, 2), "ALONE": (1, 3)},
    rank: {"MODELS": {"nrgpt-listops-30k": (1, 5), "cem-kjv": (1, 2)}, "RESAMPLES": 20,
           "WINDOWS": {"nrgpt-listops-30k": 300, "cem-kjv": 24}},
    paths: {"DEPTHS": {"nrgpt-listops-30k": (1, 5), "cem-kjv": (2, 3)}},
    quantization: {"DEPTHS": {"nrgpt-listops-30k": (1, 5, 10)}, "WINDOWS": {"nrgpt-listops-30k": 2}},
    guesses: {"MODELS": {"nrgpt-shakespeare": (1, 2, 4, 8), "nrgpt-listops": (1, 2, 5)}},
}


@pytest.mark.parametrize("claim", LITTLE, ids=lambda claim: claim.__name__.rpartition(".")[2])
def test_a_claim_on_very_little(claim, ctx, monkeypatch):
    for name, value in LITTLE[claim].items():
        monkeypatch.setattr(claim, name, value)
    monkeypatch.setattr(ctx, "pick", lambda full, quick: 6 if isinstance(quick, int) and quick > 6 else quick)
    results = json.loads(json.dumps(claim.measure(ctx), allow_nan=False))
    section = claim.section(results)
    assert section.verdict in VERDICTS and section.tables[0].rows and section.draw().axes
    if claim is choose:
        [found] = results["models"].values()
        assert found["items"] == 6 and len(found["rows"]) == 4
        assert all(row["any"]["value"] >= row[rule]["value"] for row in found["rows"] for rule in choose.RULES)
    if claim is guesses:
        # A model that is right in 99 of 100 answers predicts its worked chains, whose questions it has seen, nearly without loss.
        assert results["models"]["nrgpt-listops"]["rows"][-1]["loss"]["value"] < 0.1
    if claim is samples:
        [found] = results["models"].values()
        assert all(pair["deep_cost"] <= pair["vote_cost"] for pair in found["pairs"]) and found["pairs"]
