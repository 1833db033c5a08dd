"""Whole answers of /v1/completions, their numbers against golden logits and against each other."""
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import events, open_stream, request
from safetensors.numpy import load_file
from serving import ROOT


@pytest.fixture
def server(several):
    return several


def complete(server, model, prompt, **fields):
    return server.json("/v1/completions", {"model": model, "prompt": prompt, **fields})


def text(server, model, prompt, **fields):
    return complete(server, model, prompt, **fields)["choices"][0]["text"]


def test_the_fields_of_an_answer(server):
    answer = complete(server, "nrgpt-shakespeare@6", "ROMEO:", max_tokens=12, seed=5, descent={"draft_steps": 0})
    assert re.fullmatch(r"cmpl-[0-9a-f]{16}", answer["id"]) and answer["object"] == "text_completion"
    assert answer["model"] == "nrgpt-shakespeare@6" and answer["system_fingerprint"].startswith("fp_")
    [choice] = answer["choices"]
    assert choice["index"] == 0 and choice["logprobs"] is None and choice["finish_reason"] == "length"
    assert len(choice["text"]) == 12
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (6, 12, 18)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert usage["descent_steps"] == 17 * 6  # the last token chosen does not descend
    assert answer["descent"] == {"steps": 6, "seed": 5, "deepened_tokens": 0}
    timings = answer["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (0, 6, 12)
    for part, count in (("prompt", 6), ("predicted", 12)):
        assert timings[f"{part}_ms"] > 0
        assert timings[f"{part}_per_token_ms"] == pytest.approx(timings[f"{part}_ms"] / count, rel=1e-6)
        assert timings[f"{part}_per_second"] == pytest.approx(count / timings[f"{part}_ms"] * 1e3, rel=1e-6)


def test_a_seed_that_was_not_given_is_told_and_gives_the_text_again(server):
    first = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=40)
    seed = first["descent"]["seed"]
    assert seed == int(float(seed))  # a client whose numbers are doubles keeps it
    again = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=40, seed=seed)
    assert again["choices"] == first["choices"]
    assert complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=40)["descent"]["seed"] != seed


@pytest.mark.parametrize("steps, said", [(3, {"attention": 3, "mlp": 3}), ({"mlp": 4}, {"attention": 2, "mlp": 4})])
def test_depths_of_two_kinds(server, steps, said):
    assert complete(server, "pieces", "ab", max_tokens=1, descent={"steps": steps})["descent"]["steps"] == said


def test_an_effort_above_the_limit_says_so(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare")], "--max-steps", "5")
    capped = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=1, reasoning_effort="xhigh")["descent"]
    assert capped["steps"] == 5 and capped["capped"] is True
    assert "capped" not in complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=1, reasoning_effort="low")["descent"]


def test_a_model_without_depth_says_null(server):
    assert complete(server, "gpt", [1, 2], max_tokens=1)["descent"]["steps"] is None


# ---- Logprobs ----------------------------------------------------------------------------------------------------------


def log_softmax(logits):
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("name, key, steps", [
    *(("nrgpt-ff2w", f"logits.T{T}", T) for T in (1, 2, 5, 9)),
    ("cem-shared-r8-silu", "logits.Ta3.Tm1", {"attention": 3, "mlp": 1}),
    ("cem-shared-r8-silu", "logits.Ta2.Tm2", 2),
])
def test_logprobs_of_a_prompt_are_those_of_the_golden_logits(server, name, key, steps):
    golden = load_file(ROOT / "tests" / "golden" / name / "expected.safetensors")
    tokens = golden["tokens"].tolist()
    expected = log_softmax(golden[key])
    answer = complete(server, name, tokens, max_tokens=0, echo=True, logprobs=5, temperature=0, descent={"steps": steps})
    [choice] = answer["choices"]
    got = choice["logprobs"]
    assert {len(got[field]) for field in got} == {len(tokens)}
    assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None and got["descent_steps"][0] is None
    assert choice["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == 0
    names = {}
    for i in range(1, len(tokens)):
        assert got["token_logprobs"][i] == pytest.approx(expected[i - 1, tokens[i]], abs=5e-5)
        names[got["tokens"][i]] = tokens[i]
        top = got["top_logprobs"][i]
        likeliest = np.sort(expected[i - 1])[::-1][:5]
        assert np.allclose(sorted(top.values(), reverse=True)[:5], likeliest, atol=5e-5)
        assert top[got["tokens"][i]] == got["token_logprobs"][i]
        assert len(top) in (5, 6)
    for i in range(1, len(tokens)):  # names that are known stand for the token they are said of
        for token, value in got["top_logprobs"][i].items():
            if token in names:
                assert value == pytest.approx(expected[i - 1, names[token]], abs=5e-5)


def test_equal_logprobs_are_equal_texts(server):
    body = {"model": "nrgpt-shakespeare", "prompt": "The king ", "max_tokens": 30, "logprobs": 3, "echo": True, "temperature": 0}
    _, _, raw = server.ask("/v1/completions", body)
    got = json.loads(raw, parse_float=str)["choices"][0]["logprobs"]
    for token, value, top in list(zip(got["tokens"], got["token_logprobs"], got["top_logprobs"]))[1:]:
        assert top[token] == value
    for value, top in list(zip(got["token_logprobs"], got["top_logprobs"]))[9:]:
        assert value == max(top.values(), key=float)  # greedy: the likeliest, as lm-evaluation-harness asks


def test_echo_offsets_and_tokens_make_the_text(server):
    prompt = "Où est 小王?"
    [choice] = complete(server, "bytes", prompt, max_tokens=25, echo=True, logprobs=0, seed=3, temperature=3)["choices"]
    assert choice["text"].startswith(prompt)
    got = choice["logprobs"]
    spelled = b"".join(exact(token) for token in got["tokens"])
    assert spelled.decode(errors="replace") == choice["text"]
    assert any(token.startswith("bytes:\\x") for token in got["tokens"])
    for token, offset, top in zip(got["tokens"], got["text_offset"], got["top_logprobs"]):
        if not token.startswith("bytes:"):
            assert choice["text"][offset:offset + len(token)] == token
        assert top is None or list(top) == [token]


def exact(token):
    if not token.startswith("bytes:"):
        return token.encode()
    return bytes(int(pair, 16) for pair in re.findall(r"\\x(..)", token))


def test_without_echo_offsets_begin_with_the_text(server):
    [choice] = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=5, logprobs=0)["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4] and len(choice["text"]) == 5


def test_nothing_to_generate(server):
    [choice] = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=0)["choices"]
    assert (choice["text"], choice["logprobs"], choice["finish_reason"]) == ("", None, "length")
    assert text(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=0, echo=True) == "ROMEO:"
    [choice] = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=0, logprobs=1)["choices"]
    assert set(map(str, choice["logprobs"].values())) == {"[]"}


def test_the_end_of_a_text_is_among_its_logprobs_and_not_in_it(server):
    eos = server.json("/tokenizer_info?model=bytes")["eos_token"]
    spelled = {"model": "bytes", "prompt": eos, "parse_special": True, "add_special_tokens": False}
    [token] = server.json("/tokenize", spelled)["tokens"]
    [choice] = complete(server, "bytes", "abc", max_tokens=9, logprobs=1, logit_bias={str(token): 100})["choices"]
    assert choice["text"] == "" and choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"] == [eos]
    assert choice["logprobs"]["token_logprobs"][0] < -1  # of the raw logits, whatever the bias


def test_a_model_without_tokenizer_names_tokens_by_id(server):
    [choice] = complete(server, "mute", [5, 6], max_tokens=2, logprobs=1, echo=True)["choices"]
    assert choice["text"] == "" and choice["logprobs"]["tokens"][:2] == ["token_id:5", "token_id:6"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 0, 0]


def context(server):
    """Of nrgpt-shakespeare."""
    return request(server, "GET", "/v1/models/nrgpt-shakespeare").json["descent"]["context"]


def test_a_prompt_that_fills_the_context_still_yields_one_token(server):
    whole = context(server)
    answer = complete(server, "nrgpt-shakespeare", [5] * whole, max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1)
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == whole + 1
    assert answer["choices"][0]["finish_reason"] == "length"


def test_reaching_the_end_of_the_context(server):
    answer = complete(server, "nrgpt-shakespeare", [5] * (context(server) - 8), max_tokens=100, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == 9


# ---- Several texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompts", [["ROMEO:", "JULIET:"], [[30, 27, 25], [5]]])
def test_choices_of_prompts_are_in_order_and_each_its_own(server, prompts):
    answer = complete(server, "nrgpt-shakespeare", prompts, n=3, max_tokens=10, seed=8, echo=True)
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    texts = [choice["text"] for choice in answer["choices"]]
    starts = [text(server, "nrgpt-shakespeare", prompt, max_tokens=0, echo=True) for prompt in prompts]
    for i, got in enumerate(texts):
        assert got.startswith(starts[i // 3])
    assert len(set(texts)) == 6
    assert texts[0] == text(server, "nrgpt-shakespeare", prompts[0], max_tokens=10, seed=8, echo=True)
    count = sum(map(len, starts))
    assert answer["usage"]["prompt_tokens"] == count and answer["usage"]["completion_tokens"] == 60


def test_best_of_ranks_by_mean_logprob(server):
    fields = {"max_tokens": 12, "seed": 21, "logprobs": 0, "temperature": 1.5}
    every = complete(server, "nrgpt-shakespeare", ["ROMEO:", "To be"], n=5, **fields)["choices"]
    best = complete(server, "nrgpt-shakespeare", ["ROMEO:", "To be"], n=2, best_of=5, **fields)
    for p in range(2):
        ranked = sorted(every[5 * p:5 * p + 5], key=lambda choice: -np.mean(choice["logprobs"]["token_logprobs"]))
        got = best["choices"][2 * p:2 * p + 2]
        assert [choice["text"] for choice in got] == [choice["text"] for choice in ranked[:2]]
        assert [choice["index"] for choice in got] == [2 * p, 2 * p + 1]
    assert best["usage"]["completion_tokens"] == 120  # what was generated, the worse ones too
    quiet = complete(server, "nrgpt-shakespeare", ["ROMEO:", "To be"], n=2, best_of=5, **{**fields, "logprobs": None})
    assert [c["text"] for c in quiet["choices"]] == [c["text"] for c in best["choices"]]


def test_stop_strings_end_a_text_before_them(server):
    whole = text(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=60, seed=2)
    stop = whole[20:23]
    [choice] = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=60, seed=2, stop=["\x00never", stop], logprobs=0)["choices"]
    assert choice["finish_reason"] == "stop" and choice["text"] == whole[:whole.index(stop)]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


# ---- Same seed, same text -----------------------------------------------------------------------------------------------


PROMPT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n"


def others(server, count, seed):
    """Texts of other depths and models to run beside."""
    def one(i):
        model = ["nrgpt-shakespeare", "pieces"][i % 2]
        return complete(server, model, PROMPT[:10 + i % 40], max_tokens=12, seed=seed + i, descent={"steps": 1 + i % 7})

    pool = ThreadPoolExecutor(count)
    return pool, [pool.submit(one, i) for i in range(count)]


@pytest.mark.parametrize("model", ["nrgpt-shakespeare", "pieces"])
def test_same_seed_same_text(server, serve, made, shipped, model):
    def ask(of):
        return text(of, model, PROMPT, max_tokens=40, seed=77, temperature=1.2)

    files = [shipped("nrgpt-shakespeare"), made["pieces"]]
    fresh = [serve(files, *flags) for flags in (("--chunk", "1", "--threads", "1"), ("--chunk", "7", "--threads", "2"))]
    texts = {ask(server), ask(server), *map(ask, fresh)}  # cold, warm; other chunks and threads
    for count in (7, 63):
        pool, running = others(server, count, count)
        texts.add(ask(server))
        for each in running:
            each.result()
        pool.shutdown()
    assert len(texts) == 1


def test_forced_preemption_changes_no_text(server, serve, shipped):
    """A cache for less than two of the four texts that grow side by side."""
    def ask(of):
        prompts = [PROMPT[:20 + i] for i in range(4)]
        answer = complete(of, "nrgpt-shakespeare", prompts, max_tokens=60, seed=3, ignore_eos=True)
        return [choice["text"] for choice in answer["choices"]]

    small = serve([shipped("nrgpt-shakespeare")], "--cache-bytes", "1m")
    assert ask(small) == ask(server)
    assert small.metric("descent_preemptions_total") > 0


def test_an_exact_request_after_an_approximate_one_is_as_on_a_fresh_server(server, serve, shipped):
    exact_one = {"max_tokens": 20, "seed": 4, "logprobs": 3}
    scaled = complete(server, "nrgpt-shakespeare", PROMPT, **exact_one, descent={"step_scale": 0.5})
    assert scaled["descent"]["step_scale"] == 0.5
    heavy = complete(server, "nrgpt-shakespeare", PROMPT, **exact_one, descent={"momentum": 0.5})
    assert heavy["descent"]["momentum"] == 0.5 and heavy["choices"] != scaled["choices"]
    turned = complete(server, "nrgpt-shakespeare", PROMPT, **exact_one, descent={"step_rule": "angular"})
    assert turned["descent"]["step_rule"] == "angular" and "noise" not in turned["descent"]
    noise = {"sigma": 0.25, "seed": 9, "schedule": "decay"}
    shaken = [complete(server, "nrgpt-shakespeare", PROMPT, **exact_one, descent={"noise": noise}) for _ in range(2)]
    assert shaken[0]["descent"]["noise"] == noise and shaken[0]["choices"] == shaken[1]["choices"]
    assert shaken[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    solver = {"method": "anderson", "nstep": 4, "residual": 1000.0}
    solved = complete(server, "nrgpt-shakespeare@40", PROMPT, **exact_one, descent={"solver": solver, "step_scale": 0.25})
    assert solved["descent"]["solver"] == solver and solved["descent"]["unconverged_tokens"] == 0
    assert 0 < solved["usage"]["descent_steps"] < 40 * (len(PROMPT) + 19)
    solved = complete(server, "nrgpt-shakespeare", PROMPT, **exact_one, descent={"solver": {"method": "anderson"}})
    assert solved["descent"]["unconverged_tokens"] == 20
    listed = complete(server, "nrgpt-shakespeare", PROMPT, **exact_one, descent={"step_scale": [0.5, 0.5, 0.25]})
    assert listed["descent"]["step_scale"] == [0.5, 0.5, 0.25]
    got = complete(server, "nrgpt-shakespeare", PROMPT, **exact_one)
    fresh = complete(serve([shipped("nrgpt-shakespeare")]), "nrgpt-shakespeare", PROMPT, **exact_one)
    assert got["choices"] == fresh["choices"] and got["choices"] != scaled["choices"]


def test_what_was_cached_and_deepened_is_counted(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare")])
    first = complete(server, "nrgpt-shakespeare", PROMPT, max_tokens=1)
    again = complete(server, "nrgpt-shakespeare", PROMPT, max_tokens=1)
    deeper = complete(server, "nrgpt-shakespeare", PROMPT, max_tokens=1, descent={"steps": 9})
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 and cached > 0
    assert again["timings"]["cache_n"] == cached and again["timings"]["prompt_n"] == len(PROMPT) - cached
    assert deeper["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert deeper["descent"]["deepened_tokens"] == cached
    assert deeper["usage"]["descent_steps"] == 9 * len(PROMPT) - 4 * cached


SAMPLINGS = [{"temperature": 0}, {"seed": 11}, {"seed": 11, "n": 2, "top_p": 0.8, "frequency_penalty": 0.7},
             {"seed": 3, "temperature": 1.3, "repetition_penalty": 1.2, "stop": "th", "logprobs": 3}]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_text_is_the_same_whatever_is_drafted(server, sampling):
    def ask(draft_steps):
        answer = complete(server, "nrgpt-shakespeare", "ROMEO:", max_tokens=60, **sampling, descent={"draft_steps": draft_steps})
        details = answer["usage"]["completion_tokens_details"]
        return answer, details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]

    plain, *none = ask(0)
    assert none == [0, 0]
    for draft_steps in (1, 2, 3, None):
        answer, accepted, rejected = ask(draft_steps)
        assert answer["choices"] == plain["choices"]
        assert accepted > 0 or draft_steps is None
        assert accepted <= answer["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
        assert rejected > 0 or answer["usage"]["descent_steps"] <= plain["usage"]["descent_steps"]


def test_a_server_may_be_told_to_draft_nothing(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare")], "--draft-steps", "0")
    fields = {"max_tokens": 40, "temperature": 0}
    quiet = complete(server, "nrgpt-shakespeare", "ROMEO:", **fields)
    asked = complete(server, "nrgpt-shakespeare", "ROMEO:", **fields, descent={"draft_steps": 1})
    assert quiet["choices"] == asked["choices"]
    assert quiet["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
    counts = asked["usage"]["completion_tokens_details"]
    accepted, drafted = counts["accepted_prediction_tokens"], sum(counts.values())
    assert 0 < accepted <= drafted
    assert (server.metric("descent_accepted_tokens_total"), server.metric("descent_drafted_tokens_total")) == (accepted, drafted)


def test_what_cannot_be_drafted_is_refused(server):
    for model, draft_steps, said in (("nrgpt-shakespeare", 4, "is 4 and steps is 4"), ("nrgpt-shakespeare@2", 3, "3 and steps is 2"),
                                     ("pieces", 1, "NRGPT")):
        reply = request(server, "POST", "/v1/completions",
                        {"model": model, "prompt": "ab", "max_tokens": 2, "descent": {"draft_steps": draft_steps}})
        assert reply.status == 400 and reply.error["param"] == "descent.draft_steps" and said in reply.error["message"], reply.error


# ---- Limits and failure ----------------------------------------------------------------------------------------------------


def test_a_request_is_admitted_whole_or_not_at_all(serve, made):
    server = serve([made["slow"]], "--max-queue", "4")
    body = {"model": "slow", "prompt": "ab", "max_tokens": 4000, "ignore_eos": True}
    reply = request(server, "POST", "/v1/completions", {**body, "n": 5})
    assert reply.status == 400 and re.search(r"\b5 sequences.*\b4\b", reply.error["message"]), reply.error
    leaving = [open_stream(server, "/v1/completions", body)[0] for _ in range(3)]
    server.running(3)
    reply = request(server, "POST", "/v1/completions", {**body, "n": 2})
    assert reply.status == 429 and reply.error["type"] == "rate_limit_error"
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert complete(server, "slow", "ab", max_tokens=1)["usage"]["completion_tokens"] == 1  # one has room
    for connection in leaving:
        connection.close()
    server.until(lambda: sum('"finish":"cancelled"' in line for line in server.log) == 3, "their ends are not logged")
    assert complete(server, "slow", "ab", max_tokens=1, n=4)["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
def test_time_that_ran_out_ends_a_text_normally(serve, made, stream):
    server = serve([made["slow"]], "--request-time", "3")
    body = {"model": "slow", "prompt": "ab", "max_tokens": 4000, "ignore_eos": True, "stream": stream}
    reply = request(server, "POST", "/v1/completions", body)
    assert reply.status == 200
    if stream:
        *_, last, done = events(reply)
        assert done == "[DONE]"
    else:
        last = reply.json
        assert 0 < last["usage"]["completion_tokens"] < 4000
    assert last["choices"][0]["finish_reason"] == "length" and last["descent"]["stop"] == "time"
    server.idle()


def test_a_text_that_diverges(server):
    reply = request(server, "POST", "/v1/completions", {"model": "broken", "prompt": "abz", "max_tokens": 3})
    assert reply.status == 400 and reply.error["code"] == "descent_diverged"
    assert re.search(r"token 2\b.*step", reply.error["message"]), reply.error
    assert complete(server, "broken", "aby", max_tokens=1)["choices"][0]["text"]


def test_a_whole_request_fails_with_one_of_its_texts(server):
    reply = request(server, "POST", "/v1/completions", {"model": "broken", "prompt": ["ab", "z", "cd"], "max_tokens": 30})
    assert reply.status == 400 and reply.error["code"] == "descent_diverged"
    server.idle()


def test_a_generation_larger_than_the_whole_cache(serve, made):
    server = serve([made["slow"]], "--cache-bytes", "1m")
    reply = request(server, "POST", "/v1/completions", {"model": "slow", "prompt": "ab", "max_tokens": 4000})
    assert reply.status == 400
    needed, limit = (int(number) for number in re.findall(r"\d{6,}", reply.error["message"]))
    assert needed > limit
    server.idle()


def test_traces_have_a_limit(server):
    reply = request(server, "POST", "/v1/completions",
                    {"model": "slow", "prompt": "ab", "max_tokens": 4000, "n": 8, "descent": {"trace": True}})
    assert reply.status == 400 and reply.error["code"] == "trace_too_large" and len(re.findall(r"\d{6,}", reply.error["message"])) == 2


def test_numbers_are_finite(server):
    """Extreme sampling, and every answer is still JSON with finite numbers."""
    _, _, raw = server.ask("/v1/completions", {"model": "pieces", "prompt": "ab", "max_tokens": 20, "logprobs": 20,
                                               "temperature": 2, "logit_bias": {"5": -100, "7": 100}})

    def refuse(text):
        raise AssertionError(text)

    got = json.loads(raw, parse_constant=refuse)["choices"][0]["logprobs"]
    assert all(math.isfinite(value) and value <= 0 for value in got["token_logprobs"])
