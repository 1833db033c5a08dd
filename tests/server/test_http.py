"""The transport: requests, bodies, whole answers and streams, byte by byte."""
import re
import signal
import socket
import subprocess
import time

import pytest

from wire import BINARY, PATIENCE, Wire, echo  # noqa: F401 (a fixture)

COMMENT = b": keep-alive\n\n"
EVENT = b"data: xxxxxxxx\n\n"


# ---- Requests and whole answers ----

def test_an_answer_has_its_length_and_an_id(echo):
    wire = echo().wire()
    answer = wire.post("/echo", b"hello")
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["content-length"] == "5" and answer.headers["x-echo"] == "POST"
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert set(answer.headers) == {"date", "content-length", "content-type", "x-echo", "x-request-id"}
    assert wire.post("/echo", b"again").headers["x-request-id"] != answer.headers["x-request-id"]


@pytest.mark.parametrize("given, kept", [("a.B-9_z", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("a\x01", False),
                                         ("", False)])
def test_a_request_id_is_kept_where_it_is_one(echo, given, kept):
    answer = echo().wire().get("/peer", f"X-Request-Id: {given}\r\n")
    assert (answer.headers["x-request-id"] == given) == kept
    assert answer.text == f"127.0.0.1 1 {answer.headers['x-request-id']}"


def test_pipelined_requests_are_answered_in_order(echo):
    wire = echo().wire()
    one = "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{}"
    wire.send(one.format("/echo", "a") + one.format("/later?ms=30", "b") + one.format("/echo", "c") + one.format("/pair", "d"))
    assert [wire.answer().body for _ in range(3)] == [b"a", b"b", b"c"]
    assert wire.answer().body == COMMENT + b"data: a\n\ndata: b\n\n"


def test_head_has_no_body(echo):
    wire = echo().wire()
    for path, length in (("/peer", None), ("/nowhere", "19"), ("/stream", "0")):
        wire.ask("HEAD", path)
        answer = wire.answer(body=False)
        assert length is None or answer.headers["content-length"] == length
    assert wire.post("/echo", b"still in step").body == b"still in step"


def test_paths_are_decoded_but_for_nul(echo):
    wire = echo().wire()
    assert wire.get("/a%20b%2Fc?x=1").text == "nothing at /a b/c"
    assert wire.get("/a%00b%zz%").text == "nothing at /a%00b%zz%"


def test_targets_in_absolute_form(echo):
    """As clients send them to proxies: every server must take them (RFC 9112, 3.2.2)."""
    server = echo()
    wire = server.wire()
    for target, path in [("http://localhost:80/a/b%20c?x=1", "/a/b c"), ("HTTPS://[::1]/http://x", "/http://x"),
                         ("http://localhost", "/"), ("http://localhost?x=/y", "/"), ("ftp://x/y", "ftp://x/y"), ("http:/y", "http:/y")]:
        assert wire.get(target).text == f"nothing at {path}"
    assert wire.get("http://localhost/peer").text.startswith("127.0.0.1 ")
    assert wire.get("http://localhost/stream?n=1&ms=1").body.count(b"data") == 1
    for target in ("http:///a", "http://", "http://user@localhost/a"):
        wire = server.wire()
        answer = wire.get(target)
        assert answer.status == 400 and "must name a host" in answer.error["message"] and wire.rest() == b""


@pytest.mark.parametrize("version, keep", [("1.0", False), ("1.1", True)])
def test_keep_alive_follows_the_version(echo, version, keep):
    wire = echo().wire()
    wire.ask("POST", "/echo", b"x", version=version)
    assert wire.answer().body == b"x"
    if keep:
        assert wire.post("/echo", b"y").body == b"y"
    else:
        assert wire.rest() == b""


def test_who_has_connected_before_the_end_is_answered(echo):
    """The end was asked for before they came, but nobody had told the kernel."""
    server = echo()
    server.process.send_signal(signal.SIGSTOP)
    server.process.stdin.close()
    wires = [server.wire() for _ in range(3)]
    wires[0].ask("GET", "/peer")
    wires[1].ask("POST", "/echo", b"x" * 5000)
    wires[2].ask("POST", "/refused", b"x" * 300000)
    server.process.send_signal(signal.SIGCONT)
    assert [wire.answer().status for wire in wires] == [200, 200, 413]
    assert wires[0].rest() == wires[1].rest() == b""
    with pytest.raises(ConnectionRefusedError):
        server.wire()
    assert server.process.wait(PATIENCE) == 0


def test_who_still_sends_at_the_end_reads_his_answer(echo):
    server = echo()
    wire = server.wire()
    wire.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n")
    answer = wire.answer()
    assert answer.status == 413 and "refused" in answer.text
    server.process.send_signal(signal.SIGSTOP)
    server.process.stdin.close()
    wire.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:  # all that the kernel takes: more than is read in a turn of the loop
            wire.socket.send(b"x" * 65536)
    server.process.send_signal(signal.SIGCONT)
    assert server.process.wait(PATIENCE) == 0
    assert wire.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0  # it was not reset
    wire.close()


def test_who_says_nothing_does_not_hold_up_the_end(echo):
    server = echo()
    silent, begun = server.wire(), server.wire()
    begun.send("GET /peer HT")
    server.wait(lambda c: c["connections"] == 2)
    begin = time.monotonic()
    server.close()
    assert time.monotonic() - begin < PATIENCE / 2 and silent.rest() == begun.rest() == b""


# ---- Bodies ----

def test_bodies_of_every_size_up_to_the_limit(echo):
    server = echo(max_body=100000)
    wire = server.wire()
    for size in (0, 1, 4095, 4096, 4097, 99999, 100000):
        body = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        assert wire.post("/echo", body).body == body
    answer = wire.post("/echo", b"x" * 100001)
    assert answer.status == 413 and "longer" in answer.error["message"] and wire.rest() == b""
    assert server.counters()["complete"] == 7


def test_a_gigabyte_declared_is_refused_before_it_comes(echo):
    wire = echo().wire()
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
    assert wire.answer().status == 413


def test_chunked_bodies(echo):
    wire = echo(max_body=1000).wire()
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n")
    assert wire.answer().body == b"abcd"
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + "x" * 1000 + "\r\n0\r\n\r\n")
    assert wire.answer().body == b"x" * 1000


def test_a_chunked_body_without_end_is_refused_where_it_is_too_long(echo):
    server = echo(max_body=100000, discard_bytes=1 << 20)
    wire = server.wire()
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = 0
    with pytest.raises(OSError):
        while sent < 64 << 20:
            wire.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            sent += 4096
    assert 100000 < sent < 16 << 20  # what the socket buffers hold comes on top of what is discarded
    answer = wire.answer()
    assert answer.status == 413 and answer.headers["connection"] == "close"
    assert "longer" in answer.error["message"] and "x-request-id" in answer.headers
    server.wait(lambda c: c["connections"] == 0)


@pytest.mark.parametrize("length", ["Content-Length: 200000", "Transfer-Encoding: chunked"])
def test_all_bodies_together_have_a_limit(echo, length):
    """Whatever is coming in counts with what it takes; what has been answered, or has left, does not."""
    server = echo(max_body=200000, max_body_total=300000)
    half = server.wire()
    half.send(f"POST /echo HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n" + ("249f0\r\n" if "chunked" in length else "") + "x" * 150000)
    server.wait(lambda c: c["body_bytes"] >= 150000)
    refused = server.wire()
    answer = refused.post("/echo", b"y" * 150000)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1") and "no room" in answer.error["message"]
    assert server.wire().post("/echo", b"y" * 50000).body == b"y" * 50000
    half.close()
    server.wait(lambda c: c["body_bytes"] == 0)
    assert server.wire().post("/echo", b"y" * 200000).body == b"y" * 200000


def test_expect_100_continue(echo):
    wire = echo().wire()
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert wire.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
    wire.send("abc")
    assert wire.answer().body == b"abc"
    wire.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert wire.until(b"\r\n").startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("headers, status", [
    ("Transfer-Encoding: gzip, chunked\r\n", 501), ("Transfer-Encoding: identity\r\n", 501),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 501),
    ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400), ("Content-Length: 3\r\nContent-Length: 4\r\n", 400),
    ("Host: y\r\n", 400), ("X: " + "y" * 70000 + "\r\n", 431)])
def test_bodies_that_two_readers_could_take_for_different_ones(echo, headers, status):
    server = echo()
    wire = server.wire()
    wire.send(f"POST /echo HTTP/1.1\r\nHost: x\r\n{headers}\r\n")
    assert wire.answer().status == status
    assert wire.rest() == b""
    assert server.counters()["complete"] == 0


@pytest.mark.parametrize("length, status", [("-1", 400), ("3x", 400), ("9" * 23, 413)])
def test_lengths_that_are_none(echo, length, status):
    wire = echo().wire()
    wire.send(f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
    assert wire.head()[0] == status
    wire.rest()  # libmicrohttpd 0.9.75 writes the head of this answer twice, then closes


@pytest.mark.parametrize("text, status", [
    ("GET /peer HTTP/1.1\r\n\r\n", 400), ("GET /peer HTTP/1.0\r\n\r\n", 200), ("GET /peer HTTP/3.0\r\nHost: x\r\n\r\n", 505),
    ("\x16\x03\x01\x02\x00\x01\r\n\r\n", None), ("\r\n\r\n\r\nGET /peer HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ("PROPFIND /peer HTTP/1.1\r\nHost: x\r\n\r\n", 200), ("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400)])
def test_what_is_no_request_is_answered_or_cut(echo, text, status):
    server = echo()
    wire = server.wire()
    wire.send(text)
    if status is None:
        assert wire.rest() == b""
    else:
        assert wire.answer().status == status
    assert server.wire().post("/echo", b"others live on").body == b"others live on"


# ---- Answers before the body ----

def test_an_early_answer_is_read_by_a_client_that_sends_all_first(echo):
    server = echo()
    wire = server.wire()
    wire.ask("POST", "/refused", b"x" * (5 << 20))  # blocks until the server has taken nearly all of it
    answer = wire.answer()
    assert answer.status == 413 and answer.body == b'{"error": "refused"}' and answer.headers["connection"] == "close"
    assert wire.rest() == b""  # an end, no reset
    counters = server.counters()
    assert (counters["complete"], counters["gone"], counters["done"]) == (0, 0, 1)


def test_an_early_answer_without_a_body_keeps_the_connection(echo):
    wire = echo().wire()
    assert wire.get("/refused").status == 413
    assert wire.post("/echo", b"x").body == b"x"


def test_what_follows_an_early_answer_is_discarded_up_to_a_size(echo):
    server = echo(discard_bytes=1 << 20, discard_seconds=60)
    wire = server.wire()
    wire.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
    sent = 0
    with pytest.raises(OSError):
        while sent < 1 << 30:
            wire.send(b"x" * 65536)
            sent += 65536
    assert sent >= 1 << 20
    assert wire.answer().status == 413
    server.wait(lambda c: c["connections"] == 0)


def test_what_follows_an_early_answer_is_discarded_up_to_a_time(echo):
    patient, hasty = echo(discard_seconds=60), echo(discard_seconds=0.3)
    for server in (patient, hasty):
        wire = server.wire()
        wire.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
        assert wire.answer().status == 413
    assert patient.counters()["connections"] == 1  # it lingers
    hasty.wait(lambda c: c["connections"] == 0)


# ---- Streams ----

def chunk_of(data):
    return b"%X\r\n%s\r\n" % (len(data), data)


END = chunk_of(b"")


def read_once(wire):
    """What there is when the client looks, which is still to be read by the wire's other methods."""
    assert not wire.have
    assert wire.more()
    return wire.have


def comes_as(wire, path, *pieces):
    """Asks until a body comes in these pieces, each in a read of its own, the first with the head. A client that is late finds
    several in one, and the kernel of a server that is late lets go what is held; so it is asked again, for a while."""
    deadline = time.monotonic() + PATIENCE
    while True:
        wire.ask("GET", path)
        reads = [read_once(wire)]
        while (body := b"".join(reads).partition(b"\r\n\r\n")[2]) != b"".join(pieces):
            assert b"".join(pieces).startswith(body), reads
            wire.have = b""
            reads.append(read_once(wire))
        wire.have = b""
        assert reads[0].startswith(b"HTTP/1.1 200 ")
        if (reads[0].partition(b"\r\n\r\n")[2], *reads[1:]) == pieces:
            return
        assert time.monotonic() < deadline, reads


def test_a_stream_is_chunks_that_come_as_they_are_written(echo):
    wire = echo().wire()
    wire.ask("GET", "/stream?n=1&ms=5")
    status, headers = wire.head()
    assert status == 200 and headers["content-type"] == "text/event-stream" and headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no" and headers["transfer-encoding"] == "chunked" and "content-length" not in headers
    assert [wire.chunk() for _ in range(3)] == [COMMENT, EVENT, b""]
    comes_as(wire, "/stream?n=4&ms=100", chunk_of(COMMENT), *[chunk_of(EVENT)] * 4, END)  # none with another
    assert wire.post("/echo", b"next").body == b"next"


def test_what_is_written_in_one_turn_is_one_chunk(echo):
    wire = echo().wire()
    wire.ask("POST", "/pair", b"x")
    wire.head()
    assert wire.chunk() == COMMENT + b"data: a\n\ndata: b\n\n"
    assert wire.chunk() == b""


def test_a_streams_head_leaves_with_its_first_bytes(echo):
    """Each send wakes the client. A client that waits reads what was sent apart in several reads, sooner or later; so here it
    asks often, and each time it is one. Only with the first answer of a connection the daemon does not let it be held."""
    wire = echo().wire()
    assert wire.get("/stream?n=0&ms=1").status == 200
    for _ in range(100):
        wire.ask("GET", "/stream?n=0&ms=20")
        assert b"\r\n\r\n" + chunk_of(COMMENT) in read_once(wire)
        assert wire.head()[0] == 200 and wire.chunk() == COMMENT and wire.chunk() == b""


def test_what_a_stream_says_last_leaves_with_its_end(echo):
    """All of this one is written in one turn, and comes in one read."""
    wire = echo().wire()
    assert wire.post("/pair", b"x").status == 200
    for _ in range(300):
        wire.ask("POST", "/pair", b"x")
        assert read_once(wire).endswith(b"\r\n\r\n" + chunk_of(COMMENT + b"data: a\n\ndata: b\n\n") + END)
        wire.have = b""


@pytest.mark.parametrize("until, words, with_it", [("word", 2, [EVENT]), ("tick", 1, [])])
def test_the_begin_of_a_stream_is_held_until_it_is_let_go(echo, until, words, with_it):
    """What is written before, its first word, leaves with it; where nothing is, it leaves by itself."""
    wire = echo().wire()
    assert wire.get("/stream?n=0&ms=1").status == 200
    for _ in range(30):
        comes_as(wire, f"/stream?n={words}&ms=20&hold={until}", b"".join(map(chunk_of, [COMMENT, *with_it])), chunk_of(EVENT), END)


def test_what_a_stream_says_in_between_is_not_held(echo):
    """Nor on a connection on which a stream has ended."""
    wire = echo().wire()
    assert wire.get("/stream?n=0&ms=1").body == COMMENT
    for _ in range(2):
        comes_as(wire, "/stream?n=2&ms=100", chunk_of(COMMENT), chunk_of(EVENT), chunk_of(EVENT), END)
        assert wire.get("/stream?n=0&ms=1").body == COMMENT
    assert wire.post("/echo", b"next").body == b"next"


def test_an_aborted_stream_has_no_final_chunk(echo):
    server = echo()
    wire = server.wire()
    wire.ask("GET", "/stream?n=2&ms=5&how=abort")
    answer = wire.answer()
    assert answer.body == COMMENT + 2 * EVENT and not answer.whole
    assert server.counters()["gone"] == 0


def test_a_stream_for_http_1_0_ends_with_the_connection(echo):
    wire = echo().wire()
    wire.ask("GET", "/stream?n=2&ms=5", version="1.0")
    answer = wire.answer()
    assert answer.headers["connection"] == "close" and "transfer-encoding" not in answer.headers
    assert answer.body == COMMENT + 2 * EVENT


def test_a_quiet_stream_is_kept_alive(echo):
    wire = echo(keepalive_seconds=0.1).wire()
    begin = time.monotonic()
    wire.ask("GET", "/stream?n=1&ms=100000")
    wire.head()
    comments = b""
    while len(comments) < 5 * len(COMMENT):
        comments += wire.chunk()
    assert comments == COMMENT * (len(comments) // len(COMMENT)) and time.monotonic() - begin > 0.39


def test_a_busy_stream_is_not_commented(echo):
    wire = echo(keepalive_seconds=0.6).wire()
    assert wire.get("/stream?n=80&ms=10").body == COMMENT + 80 * EVENT


def test_large_events_arrive_whole(echo):
    wire = echo().wire()
    body = wire.get("/stream?n=3&ms=1&bytes=1000000").body
    assert body == COMMENT + 3 * (b"data: " + b"x" * 999992 + b"\n\n")


def test_a_slow_reader_grows_its_own_buffer_and_delays_nobody(echo):
    server = echo()
    before = server.counters()["rss_kb"]
    slow = server.wire(receive_bytes=4096)
    slow.ask("GET", "/flood?bytes=30000000")
    slow.socket.recv(1)
    grown = server.counters()["rss_kb"] - before
    assert 25000 < grown < 4 * 30000  # in 1,024-byte units; instrumented memory lies double
    other = server.wire()
    start = time.monotonic()
    assert other.get("/stream?n=50&ms=2").body == COMMENT + 50 * EVENT
    assert time.monotonic() - start < 5
    cpu = server.counters()["cpu"]
    slow.socket.recv(1)
    assert server.counters()["cpu"] - cpu < 0.5
    slow.close()
    server.wait(lambda c: c["gone"] == 1 and c["connections"] == 1)


# ---- The program's beginning and end ----

def test_a_port_in_use_is_said(echo):
    server = echo()
    done = subprocess.run([BINARY, f"port={server.port}"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and f"127.0.0.1 port {server.port}: the port is in use" in done.stderr


@pytest.mark.parametrize("option, message", [("host=nowhere.invalid", "nowhere.invalid"), ("trusted=10.0.0.0/33", "10.0.0.0/33"),
                                             ("trusted=ten", "'ten' is no network")])
def test_options_that_are_wrong_are_said(option, message):
    done = subprocess.run([BINARY, option], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr


def test_ipv6(echo):
    server = echo(host="::1")
    assert Wire(server.port, "::1").get("/peer").text.startswith("::1 1 ")


def test_closing_ends_everything_in_flight(echo):
    server = echo()
    wires = [server.wire() for _ in range(9)]
    wires[0].ask("GET", "/stream?n=1000&ms=10")
    wires[1].ask("POST", "/later?ms=100000", b"x")
    wires[2].send("GET /pe")
    wires[3].send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12")
    wires[4].post("/echo", b"idle behind an answer")
    wires[5].ask("GET", "/flood?bytes=10000000")
    wires[6].send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12")
    wires[7].ask("GET", "/stream?n=1&ms=5&how=abort")
    wires[0].head()
    assert wires[0].chunk() == COMMENT
    assert wires[6].answer().status == 413
    server.wait(lambda c: c["headers"] >= 7)
    counters = server.close()
    assert counters["gone"] >= 4  # the stream, the one to come, the body that stopped, the flood
    body = b""
    while (piece := wires[0].chunk()):
        body += piece
    assert piece is None and set(body.split(b"\n\n")) <= {EVENT[:-2], b""}


def test_nothing_is_left_open(echo):
    server = echo()
    first = server.counters()["descriptors"]
    for _ in range(5):
        wires = [server.wire() for _ in range(10)]
        for i, wire in enumerate(wires):
            wire.ask("GET", ["/stream?n=1000&ms=10", "/peer", "/later?ms=1000"][i % 3])
        for wire in wires[::2]:
            wire.head() if wire is not wires[2] and wire is not wires[8] else None
        for i, wire in enumerate(wires):
            (wire.reset if i % 2 else wire.close)()
    server.wait(lambda c: c["connections"] == 0 and c["descriptors"] == first)
