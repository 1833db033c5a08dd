"""--stream-interval: tokens that come within it are sent together. It is a minute here, longer than any of these tests is let
wait: what comes at all was not held."""
import json
from urllib.parse import urlsplit

import pytest
from conftest import end, events, request
from generated import SLOW_STEPS
from serving import Server
from wire import Wire

SHORT = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 50, "seed": 4}
LONG = {"model": "slow", "prompt": "ab", "max_tokens": 4000, "ignore_eos": True}


@pytest.fixture(scope="module")
def holding(made, shipped):
    server = Server([shipped("nrgpt-shakespeare"), made["slow"]], "--stream-interval", "60", "--drain-delay", "0", "--drain", "5")
    yield server
    end(server)


def ask(server, body):
    """A connection whose stream has begun."""
    where = urlsplit(server.url)
    wire = Wire(where.port, where.hostname)
    wire.ask("POST", "/v1/completions", json.dumps({**body, "stream": True}).encode(), "Content-Type: application/json\r\n")
    assert wire.head()[0] == 200
    return wire


def chunks_of(wire):
    chunks = list(iter(wire.chunk, b""))
    wire.close()
    assert None not in chunks
    return chunks


def said(text):
    return [json.loads(line[6:]) for line in text.decode().split("\n") if line.startswith("data: {")]


def test_tokens_are_sent_together_and_are_the_same(holding, shakespeare):
    chunks = chunks_of(ask(holding, SHORT))
    assert chunks[0].startswith(b":") and len(chunks) <= 3  # the head, the first token, the rest with the end
    assert chunks[-1].endswith(b"data: [DONE]\n\n")
    apart = [event for event in events(request(shakespeare, "POST", "/v1/completions", {**SHORT, "stream": True}))[:-1]]
    together = said(b"".join(chunks))
    assert [event["choices"] for event in together] == [event["choices"] for event in apart] and len(together) == 51
    assert together[-1]["descent"] == apart[-1]["descent"]


def test_no_interval_sends_each_token_as_it_comes(serve, made):
    server = serve([made["slow"]], "--stream-interval", "0")
    wire = ask(server, LONG)
    chunks = [wire.chunk() for _ in range(5)]  # a loop that is late sends several, but not all
    assert said(chunks[-1]) and b"[DONE]" not in chunks[-1]
    wire.close()


@pytest.mark.parametrize("n", [1, 2])
def test_the_first_token_of_a_text_is_not_held(holding, n):
    wire = ask(holding, {**LONG, "n": n})
    seen = set()
    while len(seen) < n:
        seen |= {event["choices"][0]["index"] for event in said(wire.chunk())}
    assert holding.metric("descent_requests_running") == n  # and the texts go on
    wire.close()
    holding.idle()


def test_texts_of_one_request_end_by_themselves(holding):
    """Each choice's first token and end go out as they come, and take along what is held."""
    body = {**LONG, "n": 2, "max_tokens": 30}
    chunks = chunks_of(ask(holding, body))
    assert len(chunks) <= 5
    parts = [choice for event in said(b"".join(chunks)) for choice in event["choices"]]
    for index in (0, 1):
        own = [part for part in parts if part["index"] == index]
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + ["length"]
        assert len(own) > 1


@pytest.mark.parametrize("how", ["close", "reset"])
def test_who_leaves_while_its_tokens_are_held_is_noticed(holding, how):
    wire = ask(holding, LONG)
    while not said(wire.chunk()):
        pass
    assert holding.metric("descent_requests_running") == 1
    getattr(wire, how)()
    holding.idle()


def test_the_end_of_a_drain_takes_along_what_is_held(serve, made):
    server = serve([made["slow"]], "--stream-interval", "60", "--drain", "0.3")
    wire = ask(server, LONG)
    while not said(wire.chunk()):
        pass
    before = server.metric("descent_batch_rows_count")
    server.until(lambda: server.metric("descent_batch_rows_count") > before + 4 * SLOW_STEPS, "no token comes")
    server.terminate()
    *parts, last = said(b"".join(iter(wire.chunk, None)))  # to the connection's end; an event may lie in two chunks
    assert last["error"]["code"] == "draining" and len(parts) >= 3
    wire.close()
    assert server.process.wait(20) == 0
