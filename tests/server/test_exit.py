"""descent.exit: tokens that settle stop early. What a trace says of r_t, energies and guesses decides which steps each token must
have made."""
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import request

PROMPT = "It is the east, and Juliet is the sun.\nArise, fair sun"
STATE = {"criterion": "state", "threshold": 0.3}


@pytest.fixture
def server(several):
    return several


def trace(server, model, **descent):
    [text] = server.json("/v1/descent/trace", {"model": model, "prompt": PROMPT, "max_tokens": 12, "seed": 2,
                                               "descent": descent})["traces"]
    return [token["trace"] for token in text["tokens"] if token["trace"]]


def complete(server, model, descent, **fields):
    return server.json("/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 12, "seed": 2, "logprobs": 0,
                                           "descent": descent, **fields})


def stop(changes, threshold, least=1, every=1):
    """Steps of a descent whose r_t are these."""
    for t, change in enumerate(changes):
        if t + 1 >= least and (t + 1 - least) % every == 0 and change < threshold:
            return t + 1
    return len(changes)


@pytest.mark.parametrize("model, steps", [("nrgpt-shakespeare", 12), ("pieces", {"attention": 7, "mlp": 5})])
@pytest.mark.parametrize("least, every", [(1, 1), (2, 2)])
def test_each_descent_stops_where_its_r_says(server, model, steps, least, every):
    changes = [change for token in trace(server, model, steps=steps) for descent in token["descents"] for change in descent["r"]]
    exit = {"criterion": "state", "threshold": sorted(changes)[len(changes) // 2], "min_steps": least, "check_every": every}
    traces = trace(server, model, steps=steps, exit=exit)
    seen = set()
    for token in traces:
        for descent in token["descents"]:
            most = steps[descent["kind"]] if isinstance(steps, dict) else steps
            used = stop(descent["r"], exit["threshold"], least, every)
            assert len(descent["r"]) == descent["steps"] == used <= most
            assert used == most or descent["r"][-1] < exit["threshold"]
            assert all(len(series) == used + 1 for series in (*descent["energy"].values(), descent["cosine"]))
            assert descent["cosine"][-1] == pytest.approx(1)
            seen.add(used)
        assert token["steps"] == sum(descent["steps"] for descent in token["descents"])
    assert len(seen) > 1
    text = complete(server, model, {"steps": steps, "exit": exit})
    # The last of the prompt's tokens and all chosen ones but the last are what tokens were chosen from.
    assert text["choices"][0]["logprobs"]["descent_steps"] == [token["steps"] for token in traces[-12:]]
    echoed = complete(server, model, {"steps": steps, "exit": exit}, echo=True)
    assert echoed["usage"]["descent_steps"] == sum(token["steps"] for token in traces)


def said(descent):
    """[t][token] log p of the next token at every step, from a trace that tracks all 65 but one: the rest is its own."""
    tracked = [[each["logprob"] for each in step] for step in descent["track"]]
    return [[*logs, math.log(max(1 - sum(map(math.exp, logs)), 1e-9))] for logs in tracked]


def energies(descent):
    return [sum(terms) for terms in zip(*descent["energy"].values())]


def unchanged(descent):
    """At the check after each step, how often on end the likeliest token was that of the check before."""
    best, counts = [p.index(max(p)) for p in said(descent)][1:], [0]
    for before, after in zip(best, best[1:]):
        counts.append(counts[-1] + 1 if before == after else 0)
    return counts


# What each criterion compares with its threshold, behind each step.
VALUES = {
    "energy": lambda d: [abs(b - a) / max(1, abs(a)) for a, b in zip(energies(d), energies(d)[1:])],
    "entropy": lambda d: [-sum(math.exp(p) * p for p in now) for now in said(d)[1:]],
    "kl": lambda d: [sum(math.exp(p) * (p - q) for p, q in zip(now, before)) for before, now in zip(said(d), said(d)[1:])],
    "argmax": lambda d: [-count for count in unchanged(d)],
}


@pytest.mark.parametrize("criterion", VALUES)
def test_each_criterion_stops_where_its_values_say(server, criterion):
    def descents(**descent):
        asked = {"model": "nrgpt-shakespeare", "prompt": PROMPT, "max_tokens": 12, "seed": 2, "track": list(range(64)),
                 "descent": {"steps": 12, **descent}}
        [text] = server.json("/v1/descent/trace", asked)["traces"]
        return [token["trace"]["descents"][0] for token in text["tokens"] if token["trace"]]

    plain = sorted(value for each in descents() for value in VALUES[criterion](each))
    threshold = 3 if criterion == "argmax" else plain[len(plain) // 4]
    exit = {"criterion": criterion, "threshold": threshold}
    traces, seen = descents(exit=exit), set()
    limit = -threshold + 0.5 if criterion == "argmax" else threshold
    for each in traces:
        values = VALUES[criterion](each)
        assert len(values) == each["steps"]
        assert all(value > limit - 1e-4 * abs(limit) for value in values[:-1])
        assert each["steps"] == 12 or values[-1] < limit + 1e-4 * abs(limit)
        seen.add(each["steps"])
    assert len(seen) > 2
    text = complete(server, "nrgpt-shakespeare", {"steps": 12, "exit": exit})
    assert text["choices"][0]["logprobs"]["descent_steps"] == [each["steps"] for each in traces[-12:]]
    usage = complete(server, "nrgpt-shakespeare", {"steps": 12, "exit": exit}, echo=True)["usage"]
    steps = sum(each["steps"] for each in traces)
    assert usage["descent_steps"] == steps
    assert usage.get("descent_readings") == {"energy": None, "kl": 2 * steps}.get(criterion, steps)
    stopped = sum(each["steps"] < 12 for each in traces)
    assert usage.get("descent_energies") == (stopped if criterion == "energy" else None)


@pytest.mark.parametrize("criterion", ["state", "cosine", "energy"])
def test_energies_are_counted_of_layers_too(server, criterion):
    """Checked after every step of both sub-layers of each layer."""
    exit = {"criterion": criterion, "threshold": 0}
    usage = complete(server, "pieces", {"steps": 3, "exit": exit})["usage"]
    assert usage.get("descent_energies") == (usage["descent_steps"] if criterion == "energy" else None)
    usage = complete(server, "pieces", {"steps": 3, "exit": {**exit, "threshold": 1e6}})["usage"]
    assert usage.get("descent_energies") == (usage["descent_steps"] if criterion == "energy" else None)


@pytest.mark.parametrize("criterion", ["entropy", "kl", "argmax"])
def test_layers_say_nothing_on_the_way(server, criterion):
    reply = request(server, "POST", "/v1/completions",
                    {"model": "pieces", "prompt": "a", "descent": {"exit": {"criterion": criterion}}})
    assert reply.status == 400 and reply.error["param"] == "descent.exit.criterion"
    assert "only the end of the last says what follows: expected none, state, cosine or energy" in reply.error["message"]


def test_a_prompt_may_be_exempt(server):
    exempt = {**STATE, "in_prompt": False}
    traces = trace(server, "nrgpt-shakespeare", steps=12, exit=exempt)
    prompt, generated = traces[:len(PROMPT)], traces[len(PROMPT):]
    assert {token["steps"] for token in prompt} == {12} and max(token["steps"] for token in generated) < 12
    plain = trace(server, "nrgpt-shakespeare", steps=12)
    assert prompt == plain[:len(PROMPT)]


def test_a_threshold_of_nothing_changes_nothing(server):
    plain = complete(server, "nrgpt-shakespeare", {"steps": 8})
    for exit in ({"criterion": "state", "threshold": 0}, {"criterion": "none", "threshold": 5}, {}, None):
        assert complete(server, "nrgpt-shakespeare", {"steps": 8, "exit": exit})["choices"] == plain["choices"]


def test_what_is_generated_is_traced_as_with_its_prompt(server):
    """Tokens of the prompt stop in any order, and the last of it is the first that is followed."""
    descent = {"steps": 12, "exit": STATE, "trace": True}
    traces = trace(server, "nrgpt-shakespeare", steps=12, exit=STATE)
    taken = [token["steps"] for token in traces[:len(PROMPT)]]
    assert any(a > b for a, b in zip(taken, taken[1:]))
    [choice] = complete(server, "nrgpt-shakespeare", descent)["choices"]
    said = [[token["position"], token["steps"], *token["descents"]] for token in choice["descent"]["trace"]]
    assert said == [[token["position"], token["steps"], *[{name: each[name] for name in said[0][2]} for each in token["descents"]]]
                    for token in traces[-12:]]


def test_drafts_are_off_whatever_is_asked(server):
    plain = complete(server, "nrgpt-shakespeare", {"steps": 12, "exit": STATE})
    asked = complete(server, "nrgpt-shakespeare", {"steps": 12, "exit": STATE, "draft_steps": 2})
    traced = complete(server, "nrgpt-shakespeare", {"steps": 12, "exit": STATE, "draft_steps": 2, "trace": True})
    for answer in (asked, traced):
        assert answer["choices"][0]["text"] == plain["choices"][0]["text"]
        assert set(answer["usage"]["completion_tokens_details"].values()) == {0}


def test_under_load_as_alone(server):
    """Texts of several exits and depths at once, each as it is alone and whatever the cache holds."""
    asked = [{"steps": steps, "exit": exit} for steps in (6, 12)
             for exit in (STATE, {**STATE, "threshold": 0.5}, {**STATE, "in_prompt": False}, {"criterion": "none"},
                          {"criterion": "energy", "threshold": 0.02}, {"criterion": "argmax", "threshold": 2},
                          {"criterion": "kl", "threshold": 0.05}, {"criterion": "entropy", "threshold": 1},
                          {"criterion": "cosine", "threshold": 0.05})]
    alone = [complete(server, "nrgpt-shakespeare", descent)["choices"] for descent in asked]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda descent: complete(server, "nrgpt-shakespeare", descent)["choices"], asked * 2))
    assert together == alone * 2
    assert len({str(choices) for choices in alone}) > 4


@pytest.mark.parametrize("exit, field, words", [
    ({"criterion": "argmax", "threshold": 0}, "threshold", "is 0: expected an integer from 1 to 65535"),
    ({"criterion": "argmax", "threshold": 1.5}, "threshold", "is 1.5: expected an integer from 1 to 65535"),
    ({"criterion": "State"}, "criterion", 'is "State": expected one of none, state, cosine, energy, entropy, kl, argmax'),
    ({"threshold": -1}, "threshold", "is -1: expected a number from 0 to 1e+06"),
    ({"min_steps": 0}, "min_steps", "is 0: expected an integer from 1 to 65535"),
    ({"check_every": 1.5}, "check_every", "is 1.5: expected an integer from 1 to 65535"),
    ({"in_prompt": "no"}, "in_prompt", "is a string: expected true or false"),
    ({"patience": 1}, "patience", "is no field")])
def test_what_is_no_exit(server, exit, field, words):
    reply = request(server, "POST", "/v1/completions", {"model": "nrgpt-shakespeare", "prompt": "a", "descent": {"exit": exit}})
    assert reply.status == 400 and reply.error["param"] == f"descent.exit.{field}" and words in reply.error["message"]


def test_a_model_without_energy_has_no_exit(server):
    reply = request(server, "POST", "/v1/completions", {"model": "gpt", "prompt": [1], "descent": {"exit": STATE}})
    assert reply.status == 400 and reply.error["param"] == "descent.exit.criterion"
    assert "does not descend an energy" in reply.error["message"]
    assert server.json("/v1/completions", {"model": "gpt", "prompt": [1], "descent": {"exit": {"criterion": "none"}}})
