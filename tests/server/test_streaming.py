"""Streams, as bytes on a socket: what a chunk is, where text may be cut, who leaves and who reads slowly."""
import http.client
import json
import socket
import struct
import threading
import time
from urllib.parse import urlsplit

import pytest
from conftest import events, open_stream, request
from wire import Wire

LONG = {"model": "slow", "prompt": "ab", "max_tokens": 4000, "ignore_eos": True}


@pytest.fixture
def server(several):
    return several


def chunks_of(server, path, body):
    reply = request(server, "POST", path, {**body, "stream": True})
    assert reply.status == 200
    *chunks, done = events(reply)
    assert done == "[DONE]" and reply.body.endswith(b"data: [DONE]\n\n")
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert len({(chunk["object"], chunk["created"], chunk["model"], chunk["system_fingerprint"]) for chunk in chunks}) == 1
    return reply, chunks


def completion(server, prompt, **fields):
    body = {"prompt": prompt, "seed": 5, **fields}
    _, chunks = chunks_of(server, "/v1/completions", body)
    whole = server.json("/v1/completions", body)
    return [choice for chunk in chunks for choice in chunk["choices"]], chunks, whole


def test_the_frame_of_a_stream(server):
    body = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 5}
    reply, chunks = chunks_of(server, "/v1/completions", body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache" and reply.headers["x-accel-buffering"] == "no"
    assert reply.body.startswith(b":")
    assert {chunk["object"] for chunk in chunks} == {"text_completion"} and not any("usage" in chunk for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert chunks[-1]["choices"][0]["text"] == ""
    assert chunks[-1]["descent"]["steps"] == 4 and isinstance(chunks[-1]["descent"]["seed"], int)
    assert chunks[-1]["timings"]["predicted_n"] == 5


@pytest.mark.parametrize("model", ["nrgpt-shakespeare", "bytes", "pieces"])
@pytest.mark.parametrize("echo", [False, True])
def test_chunks_are_the_whole_answer_in_pieces(server, model, echo):
    prompt = "ROMEO:" if model == "nrgpt-shakespeare" else "né €"
    parts, chunks, whole = completion(server, prompt, model=model, max_tokens=60, logprobs=2, echo=echo, temperature=1.7)
    expected = whole["choices"][0]
    assert "".join(part["text"] for part in parts) == expected["text"]
    assert parts[-1]["finish_reason"] == expected["finish_reason"]
    for field, values in expected["logprobs"].items():
        assert [v for part in parts if part["logprobs"] for v in part["logprobs"][field]] == values
    assert len(parts) > 5
    if echo:
        assert parts[0]["text"] == prompt and parts[0]["logprobs"]["token_logprobs"][0] is None
    for part in parts[:-1]:  # a character is never in two chunks, and its tokens travel with it
        spelled = b"".join(exact(token) for token in part["logprobs"]["tokens"] if token != "<s>")
        assert spelled.decode(errors="ignore") == part["text"].replace("\ufffd", "")


@pytest.mark.parametrize("n", [1, 2])
def test_long_chunks_come_in_their_order(server, n):
    """An echo with logprobs is written on another thread: what follows waits for it, that of other choices too."""
    fields = {"model": "bytes", "max_tokens": 40, "logprobs": 20, "echo": True, "n": n}
    parts, chunks, whole = completion(server, "abcdefgh" * 50, **fields)
    for choice in whole["choices"]:
        own = [part for part in parts if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in own) == choice["text"] and own[0]["text"] == "abcdefgh" * 50
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + [choice["finish_reason"]]
        for field, values in choice["logprobs"].items():
            assert [v for part in own if part["logprobs"] for v in part["logprobs"][field]] == values
    assert ["timings" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def exact(token):
    if not token.startswith("bytes:"):
        return token.encode()
    return bytes.fromhex(token[len("bytes:"):].replace("\\x", ""))


def test_choices_of_a_stream_are_those_of_the_whole_answer(server):
    parts, _, whole = completion(server, ["ROMEO:", "JULIET:"], model="nrgpt-shakespeare", max_tokens=20, n=2)
    for choice in whole["choices"]:
        own = [part for part in parts if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in own) == choice["text"]
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + [choice["finish_reason"]]


def test_chat_chunks(server):
    body = {"model": "bytes", "messages": [{"role": "user", "content": "é"}], "max_tokens": 30, "seed": 2, "logprobs": True,
            "top_logprobs": 1, "stream_options": {"include_usage": True}}
    _, chunks = chunks_of(server, "/v1/chat/completions", body)
    del body["stream_options"]
    whole = server.json("/v1/chat/completions", body)["choices"][0]
    *deltas, usage = chunks
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert all(chunk["usage"] is None for chunk in deltas)
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == len(whole["logprobs"]["content"])
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    first, *middle, last = [chunk["choices"][0] for chunk in deltas]
    assert first["delta"] == {"role": "assistant", "content": ""} and first["finish_reason"] is None
    assert last["delta"] == {} and last["finish_reason"] == whole["finish_reason"]
    assert all(list(part["delta"]) == ["content"] for part in middle)
    assert "".join(part["delta"]["content"] for part in middle) == whole["message"]["content"]
    assert [entry for part in middle for entry in part["logprobs"]["content"]] == whole["logprobs"]["content"]


@pytest.mark.parametrize("usage", [False, True])
def test_usage_comes_when_it_is_asked_for(server, usage):
    body = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 4, "stream_options": {"include_usage": usage}}
    _, chunks = chunks_of(server, "/v1/completions", body)
    assert [chunk["choices"] == [] for chunk in chunks] == [False] * (len(chunks) - 1) + [usage]
    assert "descent" in chunks[-1] and "timings" in chunks[-1]
    if usage:
        assert chunks[-1]["usage"]["completion_tokens"] == 4


def test_no_part_of_a_stop_string_is_sent(server):
    plain = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 80, "seed": 6, "logprobs": 0}
    text = server.json("/v1/completions", plain)["choices"][0]["text"]
    stop = text[30:36]
    _, chunks = chunks_of(server, "/v1/completions", {**plain, "stop": stop})
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == text[:text.index(stop)]
    assert parts[-1]["finish_reason"] == "stop"
    tokens = [token for part in parts if part["logprobs"] for token in part["logprobs"]["tokens"]]
    assert "".join(tokens) == text[:text.index(stop)]


def test_traces_travel_with_a_stream(server):
    body = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 6, "descent": {"trace": True, "steps": 3}}
    _, chunks = chunks_of(server, "/v1/completions", body)
    traces = [trace for chunk in chunks for choice in chunk["choices"] for trace in choice.get("descent", {}).get("trace", [])]
    assert [trace["position"] for trace in traces] == [5, 6, 7, 8, 9, 10]  # each token was read from the one before it
    assert {trace["steps"] for trace in traces} == {3}
    assert {len(trace["descents"][0]["energy"]["attention"]) for trace in traces} == {4}


def test_a_stream_begins_on_admission(serve, made):
    """Its status, headers and first comment are there while another text has all there is."""
    server = serve([made["slow"]], "--max-running", "1")
    first, response = open_stream(server, "/v1/completions", LONG)
    response.readline()
    second, waiting = open_stream(server, "/v1/completions", {**LONG, "max_tokens": 1})
    assert waiting.readline().startswith(b":")
    server.until(lambda: server.metric("descent_requests_waiting") == 1, "the second text does not wait")
    first.close()
    assert waiting.read().endswith(b"data: [DONE]\n\n")
    second.close()


def opened(server):
    """A connection on which an answer and a stream were read: the server may hold what it begins with from there on."""
    where = urlsplit(server.url)
    wire = Wire(where.port, where.hostname)
    assert wire.get("/health").status == 200
    ask_on(wire, {**LONG, "max_tokens": 1})
    assert wire.answer().body.endswith(b"data: [DONE]\n\n")
    return wire


def ask_on(wire, body):
    wire.ask("POST", "/v1/completions", json.dumps({**body, "stream": True}).encode(), "Content-Type: application/json\r\n")


@pytest.mark.parametrize("interval, soonest, latest", [("0.03", 0, 0.15), ("30", 0.1, 60)])
def test_a_stream_with_nothing_to_say_begins_after_an_interval(serve, made, interval, soonest, latest):
    """Or after the fifth of a second for which the system holds what a socket sends. The quickest of several, since a machine that
    is busy may be late."""
    server = serve([made["slow"]], "--max-running", "1", "--stream-interval", interval)
    wires = [opened(server) for _ in range(8)]
    first, response = open_stream(server, "/v1/completions", LONG)
    response.readline()
    took = []
    for wire in wires:
        begun = time.monotonic()
        ask_on(wire, {**LONG, "max_tokens": 1})
        assert wire.head()[0] == 200 and wire.chunk().startswith(b":")
        took.append(time.monotonic() - begun)
    assert soonest <= min(took) <= latest
    first.close()
    for wire in wires:
        assert wire.chunk().startswith(b"data: ")


def test_a_stream_that_fails_ends_without_its_end(server):
    """The prompt is sound; a token that was made to follow it is not."""
    tokens = server.json("/tokenize", {"model": "broken", "prompt": "z"})["tokens"]
    body = {"model": "broken", "prompt": "ab", "max_tokens": 9, "logit_bias": {str(tokens[-1]): 100}}
    connection, response = open_stream(server, "/v1/completions", body)
    with pytest.raises(http.client.IncompleteRead) as left:
        response.read()
    connection.close()
    *chunks, last = [line[6:] for line in left.value.partial.decode().split("\n") if line.startswith("data: ")]
    assert json.loads(chunks[0])["choices"][0]["text"] == "z" and "[DONE]" not in chunks
    error = json.loads(last)["error"]
    assert error["code"] == "descent_diverged" and error["type"] == "invalid_request_error" and "token 2" in error["message"]
    server.idle()


def first_chunk(response):
    while not (line := response.readline()).startswith(b"data: "):
        assert line, "the stream ended without a chunk"


# ---- Clients that leave, and slow ones -----------------------------------------------------------------------------------


def leave(connection, how):
    if how == "reset":
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sock.close()
    connection.close()


def ask(server, body):
    """A connection that has sent a request and has no answer yet."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


@pytest.mark.parametrize("how", ["finished", "reset"])
@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_frees_its_rows(serve, made, how, stream):
    """While generating, in the prompt, and in the queue."""
    server = serve([made["slow"]], "--max-running", "1", "--request-time", "300")
    generating = ask(server, {**LONG, "stream": stream})
    server.running()
    waiting = ask(server, {**LONG, "prompt": "a" * 4000, "n": 2, "stream": stream})
    server.until(lambda: server.metric("descent_requests_waiting") == 2, "the second request does not wait")
    queued = ask(server, {**LONG, "stream": stream})
    server.until(lambda: server.metric("descent_requests_waiting") == 3, "the third request does not wait")
    leave(queued, how)
    server.until(lambda: server.metric("descent_requests_waiting") == 2, "who left still waits")
    leave(generating, how)  # now the long prompt is read
    server.until(lambda: server.metric("descent_requests_waiting") == 1, "the next one does not begin")
    leave(waiting, how)
    server.idle()
    server.until(lambda: len(lines(server)) == 3, "a request is not logged")  # which is behind the freeing of its rows
    assert [line["finish"] for line in lines(server)] == ["cancelled"] * 3
    reply = server.json("/v1/completions", {"model": "slow", "prompt": "ab", "max_tokens": 1})
    assert reply["usage"]["completion_tokens"] == 1


def test_the_log_and_the_metrics_add_up(serve, made):
    """What a client that left had computed for it is counted too."""
    server = serve([made["slow"]])
    connection, response = open_stream(server, "/v1/completions", LONG)
    first_chunk(response)
    connection.sock.close()
    connection.close()
    server.idle()
    for n in (1, 3):
        server.json("/v1/completions", {"model": "slow", "prompt": ["ab", "abab"], "n": n, "max_tokens": 3, "ignore_eos": True})
    server.until(lambda: len(lines(server)) == 3, "a request is not logged")
    for metric, field in (("descent_prompt_tokens_total", "prompt_tokens"), ("descent_cached_tokens_total", "cached_tokens"),
                          ("descent_generated_tokens_total", "generated_tokens"),
                          ("descent_token_steps_total", "token_steps")):
        assert server.metric(metric) == sum(line[field] for line in lines(server))
    by_finish = {line["finish"]: line for line in lines(server)}
    assert set(by_finish) == {"cancelled", "length"} and by_finish["cancelled"]["generated_tokens"] >= 1
    assert server.metric("descent_time_to_first_token_seconds_count") == 3


def lines(server):
    return [line for line in map(json.loads, server.log) if line.get("path") == "/v1/completions"]


def test_a_reader_of_one_byte_at_a_time_holds_nobody_up(serve, made):
    """Its buffers are small and it stops reading: its text is finished all the same, and so are those of the others."""
    server = serve([made["bytes"]])
    where = urlsplit(server.url)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    slow.connect((where.hostname, where.port))
    body = json.dumps({"model": "bytes", "prompt": "ab", "max_tokens": 450, "ignore_eos": True, "stream": True, "logprobs": 20,
                       "seed": 1}).encode()
    slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: " + where.netloc.encode() +
                 b"\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " + str(len(body)).encode() +
                 b"\r\n\r\n" + body)
    got = slow.recv(1)
    finished = []
    readers = [threading.Thread(target=lambda: finished.append(len(completion(server, "ab", model="bytes", max_tokens=100)[0])))
               for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
        got += slow.recv(1)
    assert len(finished) == 3
    server.idle()  # computed to its end, though it was not read
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # the rest at once
    while True:
        more = slow.recv(65536)
        if not more:
            break
        got += more
    slow.close()
    assert got.count(b"data: ") > 300 and b"data: [DONE]" in got


def test_a_drain_that_ends_sends_the_error_event(serve, made):
    server = serve([made["slow"]], "--drain", "0.3")
    connection, response = open_stream(server, "/v1/completions", LONG)
    first_chunk(response)
    plain = ask(server, LONG)
    server.running(2)
    server.terminate()
    with pytest.raises(http.client.IncompleteRead) as left:
        response.read()
    last = [line[6:] for line in left.value.partial.decode().split("\n") if line.startswith("data: ")][-1]
    assert json.loads(last)["error"]["type"] == "server_error"
    reply = plain.getresponse()
    assert reply.status == 503 and json.loads(reply.read())["error"]["type"] == "server_error"
    connection.close()
    plain.close()
    assert server.process.wait(20) == 0


def test_texts_that_end_while_their_job_is_written(serve, shipped):
    """Texts of one token end within microseconds, each of them heard of while those before it are being sent."""
    server = serve([shipped("nrgpt-shakespeare")])
    body = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 1, "n": 16, "stream": True, "descent": {"steps": 1}}
    found = []

    def ask_often():
        found.extend(request(server, "POST", "/v1/completions", body).body.endswith(b"data: [DONE]\n\n") for _ in range(15))

    askers = [threading.Thread(target=ask_often) for _ in range(6)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(120)
    assert found == [True] * 90
