"""Whole answers of /v1/chat/completions, and conversations that go on."""
import re

import pytest
from conftest import request

CONVERSATION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why é?"}]


@pytest.fixture
def server(several):
    return several


def chat(server, model="bytes", messages=CONVERSATION, **fields):
    return server.json("/v1/chat/completions", {"model": model, "messages": messages, **fields})


@pytest.mark.parametrize("model", ["bytes", "pieces"])
def test_the_fields_of_an_answer(server, model):
    answer = chat(server, model, max_completion_tokens=7, seed=3, n=2)
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{16}", answer["id"]) and answer["object"] == "chat.completion"
    for i, choice in enumerate(answer["choices"]):
        assert choice["index"] == i and choice["logprobs"] is None and choice["finish_reason"] in ("length", "stop")
        assert choice["message"]["role"] == "assistant" and choice["message"]["refusal"] is None
        assert isinstance(choice["message"]["content"], str)
    assert answer["usage"]["prompt_tokens"] > len("Be brief.Why é?") / 4
    assert answer["usage"]["completion_tokens"] <= 14 and answer["descent"]["seed"] == 3


def test_the_bytes_of_tokens_are_exact(server):
    [choice] = chat(server, max_tokens=40, seed=11, temperature=3, logprobs=True, top_logprobs=4, ignore_eos=True)["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == 40 and len(choice["logprobs"]["descent_steps"]) == 40
    assert set(choice["logprobs"]["descent_steps"]) == {3}
    spelled = b"".join(bytes(entry["bytes"]) for entry in content)
    assert spelled.decode(errors="replace") == choice["message"]["content"]
    assert any(entry["token"].startswith("bytes:\\x") for entry in content)
    for entry in content:
        if not entry["token"].startswith("bytes:"):
            assert entry["token"].encode() == bytes(entry["bytes"])
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 4 and values == sorted(values, reverse=True)
        for top in entry["top_logprobs"]:
            if top["token"] == entry["token"]:
                assert top["logprob"] == entry["logprob"]


def test_no_alternatives_are_asked_for(server):
    [choice] = chat(server, max_tokens=2, logprobs=True)["choices"]
    assert [entry["top_logprobs"] for entry in choice["logprobs"]["content"]] == [[], []]


def test_the_end_of_a_message_is_in_its_logprobs_only(server):
    """ChatML ends a message with a token of its own."""
    eos = server.json("/tokenizer_info?model=bytes")["eos_token"]
    spelled = {"model": "bytes", "prompt": eos, "parse_special": True, "add_special_tokens": False}
    [token] = server.json("/tokenize", spelled)["tokens"]
    [choice] = chat(server, max_tokens=3, logprobs=True, seed=1, logit_bias={str(token): 100})["choices"]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == ""
    [entry] = choice["logprobs"]["content"]
    assert entry["token"] == eos and entry["bytes"] == []


def test_without_a_limit_the_rest_of_the_context_is_there(server):
    answer = chat(server, "pieces", ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] in (256, 257)  # the last token chosen needs no place


def test_a_generated_history_is_worth_a_prompt(server, serve, made):
    """The second turn, whose history this server generated, against a server that has never seen it."""
    reply = chat(server, max_tokens=60, seed=9)["choices"][0]["message"]["content"]
    messages = [*CONVERSATION, {"role": "assistant", "content": reply}, {"role": "user", "content": "And then?"}]
    again = chat(server, messages=messages, max_tokens=30, seed=10, logprobs=True, top_logprobs=2)
    fresh = chat(serve([made["bytes"]]), messages=messages, max_tokens=30, seed=10, logprobs=True, top_logprobs=2)
    assert again["choices"] == fresh["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_text_that_diverges(server):
    body = {"model": "broken", "messages": [{"role": "user", "content": "az"}], "max_tokens": 2}
    reply = request(server, "POST", "/v1/chat/completions", body)
    if reply.error["code"] != "chat_template_unsupported":
        assert reply.error["code"] == "descent_diverged"
    assert reply.status == 400
