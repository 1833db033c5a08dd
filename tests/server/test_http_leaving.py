"""Clients that leave: each is noticed at once, told to the handler once, and its request ends once."""
import ctypes
import socket
import struct
import time

import pytest

from wire import echo  # noqa: F401 (a fixture)

REQUESTS = {"streaming": "/stream?n=100000&ms=20", "quiet stream": "/stream?n=1&ms=100000", "waiting": "/later?ms=100000"}


def started(server, path, others=0):
    wire = server.wire()
    wire.ask("POST", path, b"x")
    server.wait(lambda c: c["complete"] == others + 1)
    return wire


def ended(server, gone=1):
    """Left once, ended once."""
    return server.wait(lambda c: c["gone"] == gone and c["connections"] == 0 and c["done"] == c["headers"])


@pytest.mark.parametrize("path", REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
def test_a_client_that_leaves_is_noticed_at_once(echo, path, how):
    server = echo()
    wire = started(server, path)
    if how == "half-close":
        wire.socket.shutdown(socket.SHUT_WR)
    elif how == "reset":
        wire.reset()
    else:
        wire.close()
    begin = time.monotonic()
    ended(server)
    assert time.monotonic() - begin < 5


def test_a_client_that_half_closes_is_told_that_this_cancels(echo):
    server = echo()
    wire = started(server, REQUESTS["waiting"])
    wire.socket.shutdown(socket.SHUT_WR)
    answer = wire.answer()
    assert answer.status == 400 and "closed its side" in answer.error["message"]
    assert wire.rest() == b""


@pytest.mark.parametrize("path", ["/echo", "/nowhere", "/pair"])
def test_a_client_that_half_closes_still_gets_what_is_answered_at_once(echo, path):
    server = echo()
    wire = server.wire()
    wire.ask("POST", path, b"x")
    wire.socket.shutdown(socket.SHUT_WR)
    answer = wire.answer()
    assert answer.status in (200, 404) and answer.body and answer.whole
    assert wire.rest() == b""
    assert server.wait(lambda c: c["connections"] == 0)["gone"] == 0


def test_a_client_that_leaves_in_the_middle_of_its_body(echo):
    server = echo()
    wire = server.wire()
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
    server.wait(lambda c: c["headers"] == 1)
    wire.close()
    counters = ended(server)
    assert counters["headers"] - counters["complete"] == 1


def test_a_client_that_leaves_between_requests_is_no_ones_loss(echo):
    server = echo()
    wire = server.wire()
    wire.post("/echo", b"x")
    wire.close()
    server.wire().reset()
    assert ended(server, gone=0)


def vanish(wire):
    """From here this socket takes nothing: no acknowledgement, no reset goes back. As if the cable were cut."""
    SO_ATTACH_FILTER = 26
    program = struct.pack("HBBI", 6, 0, 0, 0)  # BPF_RET | BPF_K: keep 0 bytes
    code = ctypes.create_string_buffer(program)
    wire.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(code)))


def test_clients_that_vanish_or_never_read_are_noticed_after_a_while(echo):
    server = echo(vanished_seconds=2)
    wires = [started(server, path, others) for others, path in enumerate(REQUESTS.values())]
    deaf = server.wire(receive_bytes=4096)
    deaf.ask("GET", "/flood?bytes=20000000")
    begin = time.monotonic()
    for wire in wires:
        vanish(wire)
    ended(server, gone=4)
    assert time.monotonic() - begin > 0.9


@pytest.mark.parametrize("path, version, leaves", [("/stream?n=100000&ms=5", "1.1", True), ("/stream?n=2&ms=5&how=abort", "1.1", False),
                                                   ("/stream?n=2&ms=5", "1.0", False), ("/flood?bytes=1000", "1.1", True)])
def test_a_closed_stream_is_closed_though_older_connections_stay(echo, path, version, leaves):
    """libmicrohttpd by itself cleans up behind a content reader that ends a connection when it looks at it the next time, which
    it does for the oldest connection only."""
    server = echo()
    older = server.wire()
    assert older.post("/echo", b"x").body == b"x"
    wires = [server.wire() for _ in range(5)]
    for wire in wires:
        wire.ask("GET", path, version=version)
        wire.head()
    for wire in wires:
        if leaves:
            wire.close()
        else:
            assert b"data: x" in wire.rest()
    server.wait(lambda c: c["connections"] == 1)
    assert older.post("/echo", b"y").body == b"y"


def test_a_client_that_left_while_others_stream_disturbs_none(echo):
    server = echo()
    others = [server.wire() for _ in range(4)]
    for wire in others:
        wire.ask("GET", "/stream?n=100&ms=5")
    for _ in range(10):
        wire = server.wire()
        wire.ask("GET", "/stream?n=100000&ms=5")
        wire.head()
        wire.reset()
    for wire in others:
        assert wire.answer().body.count(b"data:") == 100
    assert server.wait(lambda c: c["gone"] == 10)
