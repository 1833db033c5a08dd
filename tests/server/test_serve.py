"""The command: what it says at its start, each of its limits, its signals, and what it does not say in its log."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from conftest import ROOT, events, generate, request
from serving import BINARY, Server

NAME = "nrgpt-shakespeare"
LONG = {"model": "endless", "prompt": "a", "max_tokens": 60000, "temperature": 0, "ignore_eos": True}
SHORT = {"model": NAME, "prompt": "ROMEO:", "max_tokens": 1, "temperature": 0}


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A model whose tokens come at once and whose texts last longer than any of these tests."""
    model = tmp_path_factory.mktemp("endless") / "endless.gguf"
    generate(["nrgpt", str(model), "--width", "32", "--heads", "2", "--hidden", "32", "--vocab", "300", "--context", "65536",
              "--steps", "4"])
    return model


def run(*arguments, **how):
    return subprocess.run([BINARY, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=60, **how)


class Stream:
    """A streamed completion, read on a thread of its own."""

    def __init__(self, server, body):
        where = urlsplit(server.url)
        self.socket = socket.create_connection((where.hostname, where.port), timeout=60)
        data = json.dumps({**body, "stream": True}).encode()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.got, self.changed = b"", threading.Condition()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while True:
            try:
                piece = self.socket.recv(65536)
            except OSError:
                piece = b""
            with self.changed:
                self.got += piece
                self.changed.notify_all()
            if not piece or self.got.endswith(b"0\r\n\r\n"):
                return

    def begun(self):
        with self.changed:
            assert self.changed.wait_for(lambda: b"data: " in self.got, 60), self.got
        return self

    def ended(self):
        self.thread.join(60)
        assert not self.thread.is_alive(), self.got[-300:]
        self.socket.close()
        return self.got.decode(errors="replace")  # a character may lie in two chunks of the transfer


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH") or os.sched_getscheduler(0) != os.SCHED_OTHER, reason="of the usual policy of Linux")
@pytest.mark.parametrize("threads", [1, 2])
def test_http_gives_way_to_threads_that_wait_for_each_other(serve, shipped, threads):
    server = serve([shipped(NAME)], "--threads", str(threads))
    assert server.ask("/v1/completions", SHORT)[0] == 200
    loop = server.process.pid
    policies = {}
    for task in os.listdir(f"/proc/{loop}/task"):
        with contextlib.suppress(ProcessLookupError):  # a thread may have ended
            policies[int(task)] = os.sched_getscheduler(int(task))
    assert policies.pop(loop) == (os.SCHED_BATCH if threads > 1 else os.SCHED_OTHER)
    assert policies and set(policies.values()) == {os.SCHED_OTHER}


def message(server, words):
    """The message of the first line with these words, once it is there."""
    server.until(lambda: any(words in line for line in server.log), f"no line with {words}")
    return next(json.loads(line)["message"] for line in server.log if words in line)


# ---- The start ---------------------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_what_it_serves_and_a_request_that_works(serve, shipped):
    models = [shipped(NAME), shipped("nrgpt-listops"), f"bible={shipped('cem-kjv')}"]
    for i in range(len(models)):  # the request is to the first
        server = serve(models[i:] + models[:i])
        assert message(server, "listening on ") == f"listening on {server.url}" and json.loads(server.log[0])["level"] == "info"
        for name in [NAME, "nrgpt-listops", "bible"]:
            assert re.search(r"serving " + name + r": .*, T \S+, context \d+, \d+ parameters", message(server, f"serving {name}:"))
        command = message(server, "curl ").split("try: ")[1]
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
        answer = json.loads(done.stdout)
        assert answer["choices"][0]["text"] and answer["usage"]["completion_tokens"] > 0, done


def test_for_people_the_log_is_text(serve, shipped):
    server = serve([shipped(NAME)], "--log-format", "text")
    request(server, "GET", "/health")
    server.until(lambda: any("GET /health 200" in line for line in server.log), "no line about the request")
    assert any(line.endswith(f"listening on {server.url}") for line in server.log)
    assert any(line.startswith(f"    curl {server.url}/v1/completions") for line in server.log)
    assert not [line for line in server.log if line.startswith("{")]


@pytest.mark.parametrize("arguments, words", [
    ([ROOT / "missing.gguf"], "missing.gguf': No such file"), ([ROOT / "README.md"], "README.md: not a usable GGUF file"),
    (["{model}", "{model}"], "two models are named nrgpt-shakespeare"), (["=x.gguf"], "expected NAME=FILE"),
    (["{model}", "--host", "256.1.1.1"], "256.1.1.1"), (["{model}", "--host", "192.0.2.1"], "192.0.2.1"),
    (["{model}", "--trusted-proxy", "10.0.0.0/33"], "10.0.0.0/33")])
def test_what_is_in_the_way_is_one_line(shipped, arguments, words):
    done = run(*[str(a).format(model=shipped(NAME)) for a in arguments], "--port", "0")
    said = [line for line in done.stderr.splitlines() if line.startswith("descent: ")]
    assert done.returncode == 1 and len(said) == 1 and words in said[0], done.stderr


def test_a_port_in_use(shakespeare, shipped):
    port = urlsplit(shakespeare.url).port
    done = run(shipped(NAME), "--port", port)
    assert done.returncode == 1
    assert done.stderr == f"descent: cannot listen on 127.0.0.1 port {port}: the port is in use\n"
    done = run(shipped(NAME), "--port", 0, "--admin-listen", f"127.0.0.1:{port}")
    assert done.returncode == 1 and done.stderr.endswith(f"descent: cannot listen on 127.0.0.1 port {port}: the port is in use\n")


def test_while_models_load_only_probes_are_answered(serve, shipped, tmp_path):
    """A file that ends with 192 MiB of nothing takes its time to be read; a busy machine may need longer to ask, and begins anew."""
    model = tmp_path / "large.gguf"
    shutil.copy(shipped(NAME), model)
    os.truncate(model, 192 << 20)
    ask = [("GET", "/ready", None), ("POST", "/v1/completions", SHORT), ("GET", "/v1/models", None), ("GET", "/props", None)]
    ask += [("GET", path, None) for path in ["/health", "/metrics", "/openapi.json"]]
    for _ in range(10):
        server = serve([model], ready=False)
        with ThreadPoolExecutor(len(ask)) as pool:
            replies = list(pool.map(lambda what: request(server, *what), ask))
        if request(server, "GET", "/ready").status == 503:
            break
    refused, others = replies[:4], replies[4:]
    for reply in refused:
        assert (reply.status, reply.error["code"]) == (503, "loading") and 1 <= int(reply.headers["retry-after"]) <= 60
    assert [reply.status for reply in others] == [200, 200, 200]
    assert others[0].json == {"status": "loading"} and "descent_requests_running 0\n" in others[1].body.decode()
    server.until(lambda: request(server, "GET", "/ready").status == 200, "not ready")
    assert request(server, "GET", "/health").json == {"status": "ok"}
    assert 'descent_requests_rejected_total{reason="loading"} 3\n' in request(server, "GET", "/metrics").body.decode()


@pytest.mark.parametrize("what", ["shrinks", "vanishes", "changes"])
def test_what_becomes_of_a_file_is_no_matter(serve, shipped, tmp_path, what):
    model = tmp_path / f"{NAME}.gguf"
    shutil.copy(shipped(NAME), model)
    server = serve([model])
    body = {**SHORT, "max_tokens": 20}
    before = request(server, "POST", "/v1/completions", body).json
    if what == "shrinks":
        os.truncate(model, 100)
    elif what == "vanishes":
        model.unlink()
    else:
        model.write_bytes(bytes(model.stat().st_size))
    after = request(server, "POST", "/v1/completions", {**body, "prompt": "JULIET:"}).json
    again = request(server, "POST", "/v1/completions", body).json
    assert after["choices"][0]["text"] and again["choices"] == before["choices"]


# ---- Limits ------------------------------------------------------------------------------------------------------------

LIMITS = ["max-body", "max-body-total", "json-depth", "prompt-tokens", "max-steps", "max-sequences", "max-queue", "max-running", "chunk", "stop-strings",
          "stop-bytes", "logit-bias-entries", "max-sweep-token-steps", "request-time", "header-time", "body-time", "idle-time", "sse-keepalive", "vanished-time", "stream-interval",
          "max-connections", "max-per-address", "stall", "drain-delay", "drain", "host", "port", "page-type"]
OTHERS = ["admin-listen", "threads", "cache-bytes", "trusted-proxy", "api-key-file", "share-cache", "tls-cert", "tls-key",
          "allowed-host", "cors", "chat-template", "draft-steps", "log-format"]


def test_help_has_a_line_and_a_default_for_each_limit(shakespeare):
    text = run("--help").stdout
    blocks = {}
    for line in text.splitlines():
        if (found := re.match(r"  (?:-\w,|   ) --([a-z-]+)", line)):
            blocks[name := found.group(1)] = ""
        if blocks and line.startswith("  "):
            blocks[name] += " " + line.strip()
    assert set(blocks) == {*LIMITS, *OTHERS, "help"}
    assert [name for name in LIMITS if not re.search(r"default \S+\)", blocks[name])] == []
    said = request(shakespeare, "GET", "/props").json["limits"]
    shown = {name.replace("-", "_"): re.search(r"default (\S+)\)", blocks[name]).group(1) for name in LIMITS}
    assert said.pop("max_body") == int(shown["max_body"].removesuffix("M")) << 20
    assert {name: int(shown[name]) for name in said} == said


TOO_MUCH = [
    ("--max-body", 100, {"prompt": "a" * 100}, 413, None), ("--json-depth", 2, {"x": [[1]]}, 400, None),
    ("--prompt-tokens", 5, {"prompt": "ROMEO:"}, 400, "prompt"), ("--max-steps", 7, {"descent": {"steps": 8}}, 400, "descent.steps"),
    ("--max-sequences", 2, {"n": 3}, 400, "n"), ("--stop-strings", 1, {"stop": ["a", "b"]}, 400, "stop"),
    ("--stop-bytes", 2, {"stop": "abc"}, 400, "stop"), ("--logit-bias-entries", 1, {"logit_bias": {"1": 1, "2": 1}}, 400, "logit_bias"),
    ("--max-queue", 2, {"n": 3}, 400, None), ("--cache-bytes", "4K", {}, 400, None)]
JUST = {"--max-body": {}, "--json-depth": {"x": [1]}, "--prompt-tokens": {"prompt": "ROMEO"}, "--max-steps": {"descent": {"steps": 7}},
        "--max-sequences": {"n": 2}, "--stop-strings": {"stop": ["a"]}, "--stop-bytes": {"stop": "ab"},
        "--logit-bias-entries": {"logit_bias": {"1": 1}}, "--max-queue": {"n": 2}}


@pytest.mark.parametrize("flag, value, body, status, param", TOO_MUCH, ids=[case[0] for case in TOO_MUCH])
def test_a_limit_is_where_its_flag_puts_it(serve, shipped, flag, value, body, status, param):
    server = serve([f"a={shipped(NAME)}"], flag, value)
    small = {"model": "a", "prompt": "a", "max_tokens": 1, "temperature": 0}
    reply = request(server, "POST", "/v1/completions", {**small, **body})
    assert reply.status == status, reply.body
    assert str(value).rstrip("K") in reply.error["message"], reply.error
    if param:
        assert reply.error["param"].startswith(param), reply.error
    if flag in JUST:
        reply = request(server, "POST", "/v1/completions", {**small, **JUST[flag]})
        assert reply.status == 200, reply.body


def may_send(server, size):
    """True where the server would take a body of that size now."""
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as wire:
        wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
        return wire.recv(1 << 16).startswith(b"HTTP/1.1 100 ")


def test_bodies_at_once(serve, shipped):
    """Half a body holds its room until it is whole or its client leaves."""
    server = serve([shipped(NAME)], "--max-body", "1M", "--max-body-total", "1M")
    where, big = urlsplit(server.url), {**SHORT, "user": "x" * 600_000}
    with socket.create_connection((where.hostname, where.port), timeout=60) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 1000000\r\n\r\n" + b" " * 700_000)
        server.until(lambda: not may_send(server, 600_000), "there is room")  # a body that came would take what the half needs
        reply = request(server, "POST", "/v1/completions", big)
        assert (reply.status, reply.error["code"]) == (503, "bodies_full") and "--max-body-total" in reply.error["message"]
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert request(server, "POST", "/v1/completions", SHORT).status == 200
    server.until(lambda: request(server, "POST", "/v1/completions", big).status == 200, "there is still no room")
    rejected = re.search(r'rejected_total{reason="queue_full"} (\d+)', request(server, "GET", "/metrics").body.decode())
    assert int(rejected.group(1)) >= 2
    done = run(shipped(NAME), "--max-body-total", "1M")
    assert done.returncode == 2 and "--max-body-total must be at least --max-body" in done.stderr


def test_a_full_queue_is_a_429(serve, endless):
    server = serve([endless], "--max-queue", 4, "--max-running", 2)
    assert request(server, "GET", "/props").json["total_slots"] == 2
    stream = Stream(server, {**LONG, "n": 3}).begun()
    # the second choice begins where the prompt of the first is known, which may be after the first has sent something
    server.running(2)
    assert server.metric("descent_requests_running") == 2 and server.metric("descent_requests_waiting") == 1
    few = {**LONG, "max_tokens": 1, "n": 2}
    reply = request(server, "POST", "/v1/completions", few)
    assert reply.status == 429 and 1 <= int(reply.headers["retry-after"]) <= 60 and reply.error["type"] == "rate_limit_error"
    stream.socket.shutdown(socket.SHUT_RDWR)
    stream.ended()
    server.idle()
    assert request(server, "POST", "/v1/completions", few).status == 200
    assert 'descent_requests_rejected_total{reason="queue_full"} 1\n' in request(server, "GET", "/metrics").body.decode()


def test_time_for_a_request(serve, endless):
    server = serve([endless], "--request-time", 2)
    answer = request(server, "POST", "/v1/completions", LONG).json
    assert answer["choices"][0]["finish_reason"] == "length" and answer["descent"]["stop"] == "time"
    assert 0 < answer["usage"]["completion_tokens"] < 60000


def test_time_for_a_stream(serve, endless):
    """Of two choices one has its turn: both get their final chunk, and the last one says what it took."""
    server = serve([endless], "--request-time", 2, "--max-running", 1)
    *chunks, done = events(request(server, "POST", "/v1/completions", {**LONG, "n": 2, "temperature": 1, "stream": True}))
    ends = [chunk for chunk in chunks if chunk["choices"][0]["finish_reason"]]
    assert sorted((end["choices"][0]["index"], end["choices"][0]["finish_reason"]) for end in ends) == [(0, "length"), (1, "length")]
    assert ends == chunks[-2:] and [end.get("descent", {}).get("stop") for end in ends] == [None, "time"]
    assert done == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_time_for_a_request_that_never_has_its_turn(serve, endless, stream):
    """Its body comes late, and meanwhile another, whose time ends later, took the only place."""
    server = serve([endless], "--request-time", 3, "--max-running", 1)
    where = urlsplit(server.url)
    body = json.dumps({**LONG, "prompt": "b", "n": 2, "stream": stream}).encode()
    with socket.create_connection((where.hostname, where.port), timeout=60) as late:
        late.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        request(server, "GET", "/health")
        time.sleep(0.3)  # by so much its time ends earlier
        first = Stream(server, LONG).begun()
        late.sendall(body[5:])
        head, _, rest = b"".join(iter(lambda: late.recv(65536), b"")).decode().partition("\r\n\r\n")
    assert '"code":"request_timeout"' in rest and "--request-time" in rest and "[DONE]" not in rest
    if stream:
        assert " 200 " in head and not rest.endswith("0\r\n\r\n")
        assert '"finish_reason":"' not in rest  # no final chunk before the error either
    else:
        assert " 504 " in head and "x-should-retry: false" in head and json.loads(rest)["error"]["type"] == "server_error"
    assert '"stop":"time"' in first.ended()


@pytest.mark.parametrize("flag, sent", [("--header-time", b"GET /health HTTP/1.1\r\nHost: loc"), ("--idle-time", b""),
                                        ("--body-time", b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                                        b"application/json\r\nContent-Length: 9\r\n\r\n{")])
def test_time_for_what_a_client_sends(serve, shipped, flag, sent):
    server = serve([shipped(NAME)], flag, 0.2)
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=15) as plain:  # every default is longer
        if flag == "--idle-time":
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in plain.recv(4096)
        plain.sendall(sent)
        while plain.recv(4096):
            pass


def test_comments_of_a_stream(serve, endless):
    server = serve([endless], "--sse-keepalive", 0.05, "--max-running", 1)
    first = Stream(server, LONG).begun()
    second = Stream(server, LONG)  # waits
    with second.changed:
        assert second.changed.wait_for(lambda: len(re.findall(rb"^:", second.got, re.M)) >= 4, 30)
        assert b"data: " not in second.got
    for stream in [first, second]:
        stream.socket.shutdown(socket.SHUT_RDWR)
        stream.ended()


def test_connections_of_an_address(serve, shipped):
    server = serve([shipped(NAME)], "--max-per-address", 2)
    where = urlsplit(server.url)
    plain = [socket.create_connection((where.hostname, where.port), timeout=30) for _ in range(3)]
    for one in plain:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert [b"200 OK" in answer_of(one) for one in plain] == [True, True, False]
    for one in plain:
        one.close()
    trusted = serve([shipped(NAME)], "--max-per-address", 1, "--trusted-proxy", "127.0.0.0/8")
    where = urlsplit(trusted.url)
    plain = [socket.create_connection((where.hostname, where.port), timeout=30) for _ in range(3)]
    for one in plain:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n")
    assert [b"200 OK" in answer_of(one) for one in plain] == [True, True, True]
    trusted.until(lambda: sum('"peer":"192.0.2.7"' in line for line in trusted.log) == 3, "the proxy was not believed")
    for one in plain:
        one.close()


def answer_of(plain):
    try:
        return plain.recv(4096)
    except OSError:
        return b""


def test_few_descriptors_are_few_connections(serve, shipped, tmp_path):
    """The limit of the process, once raised, is what there is: the server says so, waits where it is reached, and does not spin."""
    limited = tmp_path / "descent"
    limited.write_text(f'#!/bin/sh\nulimit -Sn 64\nulimit -Hn 160\nexec {BINARY} "$@"\n')
    limited.chmod(0o755)
    server = serve([shipped(NAME)], binary=limited)
    assert "160 descriptors" in message(server, "connections at once instead of")
    allowed = int(message(server, "connections at once instead of").split()[0])
    assert allowed > 64 / 2  # the soft limit was raised to the hard one
    where = urlsplit(server.url)
    held = [socket.create_connection((where.hostname, where.port), timeout=60) for _ in range(allowed + 20)]
    for one in held[:allowed]:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in one.recv(4096)
    held[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    before = cpu_seconds(server)
    time.sleep(1)  # what the server does with a second is measured
    assert cpu_seconds(server) - before < 0.5
    for one in held[:-1]:
        one.close()
    assert b"200 OK" in held[-1].recv(4096)
    held[-1].close()


def cpu_seconds(server):
    fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_stalled_scheduler_is_no_health(serve, endless):
    server = serve([endless], "--stall", 1e-9)  # less than any step is ago
    assert request(server, "GET", "/health").status == 200
    stream = Stream(server, LONG).begun()
    reply = request(server, "GET", "/health")
    assert (reply.status, reply.error["code"]) == (503, "stalled") and "endless" in reply.error["message"]
    assert request(server, "GET", "/ready").status == 200
    stream.socket.shutdown(socket.SHUT_RDWR)
    stream.ended()
    server.idle()
    assert request(server, "GET", "/health").status == 200


def test_what_the_engine_is_given(serve, shipped):
    """Cache, threads, chunk and page type: the figure of the one, the same text with the others."""
    plain = serve([shipped(NAME)], "--cache-bytes", "64M")
    other = serve([shipped(NAME), f"b={shipped(NAME)}"], "--cache-bytes", "64M", "--chunk", 1, "--threads", 2, "--page-type", "f16")
    assert plain.metric("descent_cache_limit_bytes") == other.metric("descent_cache_limit_bytes") == 64 << 20
    answers = [request(server, "POST", "/v1/completions", {**SHORT, "max_tokens": 20}).json for server in (plain, other)]
    assert answers[0]["system_fingerprint"] != answers[1]["system_fingerprint"]
    assert all(answer["usage"]["completion_tokens"] == 20 for answer in answers)


def test_a_chat_template_for_models_without_one(serve, shipped):
    chat = {"model": NAME, "messages": [{"role": "user", "content": "ROMEO"}], "max_tokens": 2}
    server = serve([shipped(NAME)])
    reply = request(server, "POST", "/v1/chat/completions", chat)
    assert (reply.status, reply.error["code"]) == (400, "chat_template_unsupported") and "--chat-template" in reply.error["message"]
    server = serve([shipped(NAME)], "--chat-template", "plain")
    assert request(server, "POST", "/v1/chat/completions", chat).json["choices"][0]["message"]["role"] == "assistant"
    assert request(server, "GET", "/tokenizer_info").json["chat_template"] == "plain"
    done = run(shipped(NAME), "--chat-template", "none")
    assert done.returncode == 2 and "plain, chatml, llama2 or llama3" in done.stderr


@pytest.mark.parametrize("flag", ["--max-body=0", "--json-depth=0", "--max-steps=65536", "--max-running=5000", "--port=65536",
                                  "--request-time=0", "--stall=-1", "--page-type=f8", "--log-format=xml", "--max-steps=x"])
def test_values_that_are_none(shipped, flag):
    done = run(shipped(NAME), flag)
    assert done.returncode == 2 and flag.split("=")[0] + " must be" in done.stderr


# ---- Signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_before_a_drain(shipped, signum):
    """At once not ready but serving."""
    server = Server([shipped(NAME)], "--drain-delay", 100, "--drain", 120)
    try:
        server.told = True
        server.process.send_signal(signum)
        server.until(lambda: request(server, "GET", "/ready").status == 404, "still ready")
        assert request(server, "GET", "/health").json == {"status": "draining"}
        assert request(server, "POST", "/v1/completions", SHORT).status == 200
    finally:
        server.kill()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_drain(shipped, endless, signum):
    """After the delay refusing, running streams to their ends, then gone."""
    server = Server([shipped(NAME), endless], "--drain-delay", 0.5, "--drain", 120)
    try:
        server.told = True
        stream = Stream(server, {**LONG, "max_tokens": 200}).begun()
        held = Stream(server, LONG).begun()  # until its client leaves
        server.process.send_signal(signum)
        server.until(lambda: request(server, "GET", "/v1/models").status == 503, "still serving")
        reply = request(server, "POST", "/v1/completions", SHORT)
        assert (reply.status, reply.error["code"]) == (503, "draining")
        assert 1 <= int(reply.headers["retry-after"]) <= 60 and reply.headers["connection"].lower() == "close"
        assert request(server, "GET", "/ready").status == 404 and request(server, "GET", "/health").status == 200
        counted = re.search(r'rejected_total{reason="draining"} (\d+)', request(server, "GET", "/metrics").body.decode())
        assert int(counted.group(1)) >= 2
        assert stream.ended().count('"finish_reason":"length"') == 1 and stream.got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.process.poll() is None
        held.socket.shutdown(socket.SHUT_RDWR)
        held.ended()
        assert server.process.wait(30) == 0
        server.kill()
        assert json.loads(server.log[-1])["message"] == "ended"
    finally:
        server.kill()
        print("\n".join(server.log[-20:]))  # shown where the test fails


def test_what_outlasts_the_drain_is_ended(endless):
    server = Server([endless], "--drain-delay", 0, "--drain", 0.5)
    try:
        stream = Stream(server, LONG).begun()
        waiting = {}
        asked = threading.Thread(target=lambda: waiting.update(reply=request(server, "POST", "/v1/completions", LONG)))
        asked.start()
        server.running(2)
        server.terminate()
        text = stream.ended()
        assert '"error"' in text and "[DONE]" not in text and not stream.got.endswith(b"0\r\n\r\n")
        asked.join(60)
        assert waiting["reply"].status == 503 and waiting["reply"].error["type"] == "server_error"
        assert server.process.wait(30) == 0
    finally:
        server.kill()


def test_a_second_signal_ends_it_at_once(endless):
    server = Server([endless], "--drain-delay", 100, "--drain", 100)
    try:
        stream = Stream(server, LONG).begun()
        server.terminate()
        server.until(lambda: request(server, "GET", "/ready").status == 404, "still ready")
        server.terminate()
        assert server.process.wait(30) == 128 + signal.SIGTERM
        stream.ended()
    finally:
        server.kill()


def test_a_reader_that_is_gone_does_not_end_it(serve, endless):
    server = serve([endless])
    stream = Stream(server, LONG).begun()
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stream.socket.shutdown(socket.SHUT_RD)
    stream.ended()
    server.idle()
    assert request(server, "GET", "/health").status == 200


# ---- The log -----------------------------------------------------------------------------------------------------------


def test_no_prompt_and_no_text_is_in_the_log(serve, shipped):
    server = serve([shipped(NAME)], "--chat-template", "plain")
    secret = "Wherefore art thou"
    bodies = [{**SHORT, "prompt": secret}, {**SHORT, "prompt": secret + "\u00e9"}, {**SHORT, "prompt": [secret, 3]},
              {**SHORT, "prompt": {"a": secret}}, {**SHORT, "stop": secret, "max_tokens": 5}, {**SHORT, "suffix": secret},
              {**SHORT, "user": secret}, {**SHORT, "temperature": secret}, {**SHORT, "logit_bias": secret},
              {"model": NAME, "texts": [secret]}, {"model": NAME, "texts": [secret + "\u00e9"]}, {"model": NAME, "texts": secret},
              {"model": NAME, "records": [{"prompt": secret, "choices": ["a", secret + "\u00e9"], "answer": 0}]},
              {"model": NAME, "records": [{"prompt": secret, "choices": secret, "answer": secret}]},
              {"model": NAME, "texts": [[1, 2]], "steps": [secret]},
              {"messages": [{"role": "user", "content": secret}], "model": NAME, "max_tokens": 3},
              {"messages": [{"role": "user", "content": [{"type": "text", "text": secret}]}], "model": NAME}]
    for body in bodies:
        for path in ["/v1/completions", "/v1/chat/completions", "/v1/descent/trace", "/v1/descent/scaling", "/tokenize", "/detokenize"]:
            request(server, "POST", path, body)
    raw = b'{"prompt": "Wherefore art thou' + b"\xff"
    request(server, "POST", "/v1/completions", raw, {"Content-Type": "application/json"})
    text = request(server, "POST", "/v1/completions", {**SHORT, "max_tokens": 32, "seed": 1}).json["choices"][0]["text"]
    server.until(lambda: sum('"path":"/v1/completions"' in line for line in server.log) == len(bodies) + 2, "lines are missing")
    log = "\n".join(server.log)
    assert "Wherefore" not in log and "art thou" not in log and text[10:30] not in log and "\\xff" not in log


def test_a_line_a_request(serve, shipped):
    server = serve([shipped(NAME)])
    reply = request(server, "POST", "/v1/completions", {**SHORT, "max_tokens": 7}, {"X-Request-Id": "a-b_c.1"})
    request(server, "GET", "/nope?prompt=secret", headers={"X-Request-Id": "bad id"})
    server.until(lambda: any('"/nope' in line for line in server.log), "no line about the request")
    lines = [json.loads(line) for line in server.log if '"id"' in line]
    one = next(line for line in lines if line["id"] == "a-b_c.1")
    usage = reply.json["usage"]
    assert reply.headers["x-request-id"] == "a-b_c.1"
    assert (one["method"], one["path"], one["status"], one["model"]) == ("POST", "/v1/completions", 200, NAME)
    assert (one["prompt_tokens"], one["generated_tokens"], one["token_steps"]) == (6, 7, usage["descent_steps"])
    assert one["finish"] == "length" and one["sequences"] == 1 and one["seconds"] >= one["compute_seconds"] > 0
    other = next(line for line in lines if line["path"].startswith("/nope"))
    assert other["status"] == 404 and other["path"] == "/nope" and other["id"] != "bad id" and "secret" not in str(other)


def test_streams_come_in_events(shakespeare):
    reply = request(shakespeare, "POST", "/v1/completions", {**SHORT, "stream": True})
    assert events(reply)[-1] == "[DONE]" and reply.headers["content-type"].startswith("text/event-stream")
