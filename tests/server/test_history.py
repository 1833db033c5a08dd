"""descent.history and descent.prompt_steps over HTTP: what is counted and repeated, what is refused, the memory a token takes, and
the same text from a cold cache or a warm one, in any chunks, beside others, paused, and as a second turn."""
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import request
from safetensors.numpy import load
from serving import BINARY, ROOT

MODEL = "nrgpt-shakespeare"
PROMPT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n"  # two pages and a little
ASKED = {
    "latest": {"steps": 6, "history": "latest", "prompt_steps": 2},
    "last": {"steps": 3, "history": "last"},
    "last, a shallow prompt": {"steps": 5, "history": "last", "prompt_steps": 2},
    "last, a deep prompt": {"steps": 2, "history": "last", "prompt_steps": 5},
    "own, a deep prompt": {"steps": 2, "prompt_steps": 5},
    "as deep as the rest": {"steps": 3, "history": "latest", "prompt_steps": 4},
}


@pytest.fixture
def server(shakespeare):
    return shakespeare


@pytest.fixture(params=ASKED)
def how(request):
    return ASKED[request.param]


def complete(server, prompt, **fields):
    return server.json("/v1/completions", {"model": MODEL, "prompt": prompt, **fields})


def test_what_was_asked_is_said_and_its_steps_are_counted(server, how):
    answer = complete(server, "ROMEO:", max_tokens=12, seed=5, logprobs=0, echo=True, descent={**how, "draft_steps": 0})
    T, P = how["steps"], how.get("prompt_steps", how["steps"])
    assert answer["usage"]["descent_steps"] == 5 * P + 12 * T  # the prompt's last token takes T, the last one chosen none
    assert answer["choices"][0]["logprobs"]["descent_steps"] == [None] + 5 * [P] + 12 * [T]
    told = {name: how[name] for name in ("history", "prompt_steps") if how.get(name, how["steps"]) != how["steps"]}
    assert answer["descent"] == {"steps": T, "seed": 5, "deepened_tokens": 0, **told}


def test_defaults_are_not_repeated(server):
    for how in ({"history": "own"}, {"prompt_steps": 4}, {"history": "own", "prompt_steps": None}):
        answer = complete(server, "ROMEO:", max_tokens=2, seed=5, descent=how)
        assert answer["descent"] == {"steps": 4, "seed": 5, "deepened_tokens": 0}


@pytest.mark.parametrize("model, how, param, words", [
    (MODEL, {"prompt_steps": 3}, "prompt_steps", "is 3, fewer than descent.steps, 4, and descent.history is own"),
    (MODEL, {"steps": 9, "prompt_steps": 8, "history": "own"}, "prompt_steps", "expected at least 9, or the history latest or last"),
    (MODEL, {"prompt_steps": 257, "history": "last"}, "prompt_steps", "is 257: expected an integer from 1 to 256"),
    (MODEL, {"history": "first"}, "history", 'is "first": expected one of own, latest, last'),
    (MODEL, {"history": "last", "solver": {"method": "anderson"}}, "solver.method", "and descent.history is set"),
    ("pieces", {"history": "last"}, "history", "is last, which is for NRGPT; model pieces is cem: expected own"),
    ("pieces", {"prompt_steps": 1}, "prompt_steps", "is 1, which is for NRGPT; model pieces is cem: expected 2"),
    ("gpt", {"history": "latest"}, "history", "is latest, which is for NRGPT; model gpt is gpt: expected own"),
])
def test_what_is_no_history(several, model, how, param, words):
    prompt = [1, 2] if model == "gpt" else "ab"
    reply = request(several, "POST", "/v1/completions", {"model": model, "prompt": prompt, "descent": how})
    assert reply.status == 400 and reply.error["param"] == f"descent.{param}" and words in reply.error["message"], reply.body


# ---- Same seed, same text ------------------------------------------------------------------------------------------------


def text(server, prompt, how, **fields):
    asked = {"max_tokens": 40, "seed": 77, "temperature": 1.2, **fields}
    return complete(server, prompt, **asked, descent=how)["choices"][0]["text"]


def others(server, count):
    """Texts with the same prompt, of other depths and histories, to run beside, which leave pages behind."""
    settings = list(ASKED.values()) + [{"steps": 1 + i % 7} for i in range(count)]
    pool = ThreadPoolExecutor(count)
    running = [pool.submit(text, server, PROMPT[:len(PROMPT) - i % 40], settings[i % len(settings)], max_tokens=12, seed=i)
               for i in range(count)]
    return pool, running


def test_same_seed_same_text(server, serve, shipped, how):
    ways = [("--chunk", "1", "--threads", "1"), ("--chunk", "7", "--threads", "2", "--draft-steps", "1")]
    fresh = [serve([shipped(MODEL)], *flags) for flags in ways]
    texts = {text(server, PROMPT, how), text(server, PROMPT, how), *(text(of, PROMPT, how) for of in fresh)}
    pool, running = others(server, 24)
    texts.add(text(server, PROMPT, how))
    for each in running:
        each.result()
    pool.shutdown()
    assert len(texts) == 1


def test_forced_preemption_changes_no_text(server, serve, shipped, how):
    """A cache for one or two of the six texts that grow side by side, at the planes of their deepest pages."""
    prompts = [PROMPT[:40 + i] for i in range(6)]
    asked = {"max_tokens": 100, "seed": 3, "ignore_eos": True, "descent": how}
    planes = 1 if how.get("history") == "last" else max(how["steps"], how.get("prompt_steps", 0))
    small = serve([shipped(MODEL)], "--cache-bytes", int(1.5 * 5 * 34e3 * (1 + planes)))  # of 5 pages each
    got, expected = (complete(of, prompts, **asked)["choices"] for of in (small, server))
    assert got == expected
    assert small.metric("descent_preemptions_total") > 0


def test_a_second_turn_is_the_text_of_a_fresh_server(serve, shipped, how):
    """What was generated becomes part of a prompt, whose tokens may take another T."""
    warm = serve([shipped(MODEL)])
    first = PROMPT + text(warm, PROMPT, how, max_tokens=90, ignore_eos=True)
    second = first + text(warm, first, how, seed=4) + "\n\nROMEO:\n"
    got = complete(warm, second, max_tokens=30, seed=5, logprobs=2, descent=how)
    fresh = complete(serve([shipped(MODEL)]), second, max_tokens=30, seed=5, logprobs=2, descent=how)
    assert got["choices"] == fresh["choices"]
    cached = got["usage"]["prompt_tokens_details"]["cached_tokens"] + got["descent"]["deepened_tokens"]
    assert cached >= 64, "the first prompt's whole pages, at least, are there"


def test_an_exact_request_after_others_is_as_on_a_fresh_server(serve, shipped):
    warm = serve([shipped(MODEL)])
    for how in ASKED.values():
        text(warm, PROMPT, how)
    exact = {"max_tokens": 20, "seed": 4, "logprobs": 3}
    assert complete(warm, PROMPT, **exact)["choices"] == complete(serve([shipped(MODEL)]), PROMPT, **exact)["choices"]


def test_choices_share_their_prompt(serve, shipped):
    """As many choices, each what it is alone; their prompt is run once but for its last, unfinished page."""
    server = serve([shipped(MODEL)])
    for how in (ASKED["latest"], ASKED["last"]):
        asked = {"max_tokens": 5, "seed": 9, "descent": how}
        alone = complete(server, PROMPT + "x", **asked)["usage"]["descent_steps"]
        together = complete(server, PROMPT + "y", n=4, **asked)
        assert len({choice["text"] for choice in together["choices"]}) > 1
        assert together["choices"][0]["text"] == complete(server, PROMPT + "y", **asked)["choices"][0]["text"]
        assert together["usage"]["descent_steps"] < 4 * alone


# ---- Memory --------------------------------------------------------------------------------------------------------------


def test_last_states_take_the_memory_of_one_step(serve, shipped):
    """A text at a T whose own history has no room, in a cache of which its last states take a fraction."""
    server = serve([shipped(MODEL)], "--cache-bytes", "1m")
    asked = {"model": MODEL, "prompt": "a" * 200, "max_tokens": 1, "seed": 1}
    reply = request(server, "POST", "/v1/completions", {**asked, "descent": {"steps": 40}})
    assert reply.status == 400 and "bytes" in reply.error["message"]
    answer = server.json("/v1/completions", {**asked, "descent": {"steps": 40, "history": "last"}})
    assert answer["usage"]["descent_steps"] == 40 * 200
    width = 256
    assert server.metric("descent_cache_bytes") < 200 * 2.3 * 4 * width  # x and one plane


# ---- Looking inside, and measuring ---------------------------------------------------------------------------------------


def test_a_trace_has_each_token_s_own_steps(server, how):
    answer = server.json("/v1/descent/trace", {"model": MODEL, "prompt": "To be or", "max_tokens": 3, "seed": 2, "top": 1, "descent": how})
    [traced] = answer["traces"]
    T, P = how["steps"], how.get("prompt_steps", how["steps"])
    descents = [token["trace"]["descents"][0] for token in traced["tokens"][:-1]]
    assert [descent["steps"] for descent in descents] == 7 * [P] + 3 * [T]
    for descent, token in zip(descents, traced["tokens"]):
        assert len(descent["cosine"]) == len(descent["guesses"]) == descent["steps"] + 1 == len(descent["energy"]["attention"])
        assert descent["guesses"][-1] == token["trace"]["guesses"] and descent["cosine"][-1] == pytest.approx(1)
    plain = complete(server, "To be or", max_tokens=3, seed=2, descent=how)
    assert traced["text"] == plain["choices"][0]["text"] and answer["descent"].get("history") == plain["descent"].get("history")


def test_a_history_that_stands_still_adds_nothing_to_energies(server):
    """Where last states are read what changes between steps is the token itself: all of dE_history is its own key."""
    asked = {"model": MODEL, "prompt": "To be or", "max_tokens": 0}
    moved = {}
    for history in ("own", "last"):
        [traced] = server.json("/v1/descent/trace", {**asked, "descent": {"steps": 3, "history": history}})["traces"]
        first = traced["tokens"][0]["trace"]["descents"][0]["history_change"]
        rest = [token["trace"]["descents"][0]["history_change"] for token in traced["tokens"][1:]]
        moved[history] = first, max(abs(change) for changes in rest for change in changes)
    assert moved["last"][0] == moved["own"][0]  # the first token has no other to read
    assert moved["last"][1] != moved["own"][1]


def test_states_of_a_prompt_of_its_own_depth(server):
    body = {"model": MODEL, "prompt": "To be", "of": "x", "positions": [0, 4],
            "descent": {"steps": 2, "history": "latest", "prompt_steps": 5}}
    reply_to_all = request(server, "POST", "/v1/descent/states", body)
    assert reply_to_all.status == 200, reply_to_all.body
    assert load(reply_to_all.body).keys() == {f"x.0.0.block.{t}" for t in range(6)} | {f"x.4.0.block.{t}" for t in range(3)}
    zeros = [0] * 256
    for position, t, words in ((0, 5, "is 5: expected an integer from 0 to 4"), (4, 2, "is 2: expected an integer from 0 to 1")):
        change = {"position": position, "t": t, "values": zeros}
        reply = request(server, "POST", "/v1/descent/states", {**body, "intervene": [change]})
        assert reply.status == 400 and reply.error["param"] == "intervene[0].t" and words in reply.error["message"]
    added = request(server, "POST", "/v1/descent/states", {**body, "intervene": [{"position": 0, "t": 4, "values": zeros}]})
    plain, unchanged = load(reply_to_all.body), load(added.body)
    assert plain.keys() == unchanged.keys() and all(np.array_equal(plain[name], unchanged[name]) for name in plain)


def test_an_experiment_computes_each_depth_by_itself(server):
    prompt, answer = "First Citizen:\nWe are accounted poor", [" citizens, the", " oranges"]
    record = {"prompt": prompt, "choices": answer, "answer": 0}
    asked = {"model": MODEL, "records": [record], "intervals": {"resamples": 10}}

    def rows(steps, **how):
        answered = server.json("/v1/descent/scaling", {**asked, "steps": steps, "descent": how})
        told = {name: answered["descent"][name] for name in how if name in answered["descent"]}
        assert told == {name: value for name, value in how.items() if value != "own"}
        return [{name: row[name] for name in ("loss", "energy", "token_steps")} for row in answered["rows"]]

    last = rows([2, 4, 3], history="last")
    assert last == [row for steps in (2, 4, 3) for row in rows([steps], history="last")]
    assert rows([2, 4], history="latest") == rows([2, 4])
    shallow = rows([4], history="latest", prompt_steps=2)
    tokens = 2 * (len(prompt) - 1)
    assert shallow[0]["token_steps"] == rows([4])[0]["token_steps"] - 2 * tokens and shallow[0]["loss"] != rows([4])[0]["loss"]
    for fields, words in (({"steps": [2, 4], "descent": {"prompt_steps": 3}}, "is 3, fewer than descent.steps, 4"),
                          ({"records": None, "texts": ["To be"], "descent": {"prompt_steps": 9}}, "texts have no prompts")):
        reply = request(server, "POST", "/v1/descent/scaling", {**asked, **fields})
        assert reply.status == 400 and reply.error["param"] == "descent.prompt_steps" and words in reply.error["message"], reply.body


def test_texts_at_several_depths_are_those_of_eval(server, shipped, descent_eval):
    text = (ROOT / "models" / "data" / f"{MODEL}.val.txt").read_text()[:300]
    rows = server.json("/v1/descent/scaling", {"model": MODEL, "texts": [text], "steps": [1, 4], "descent": {"history": "last"}})["rows"]
    results = descent_eval(shipped(MODEL), text, "--steps", "1,4", "--history", "last")
    for row, result in zip(rows, results):
        assert row["loss"] == pytest.approx(result["loss"], rel=1e-8) and row["token_steps"] == result["token_steps"]


@pytest.fixture
def descent_eval(tmp_path):
    def evaluate(path, text, *flags):
        (tmp_path / "text").write_text(text)
        done = subprocess.run([BINARY, "eval", path, "--file", tmp_path / "text", "--json", *flags], check=True, capture_output=True)
        return json.loads(done.stdout)["results"]

    return evaluate
