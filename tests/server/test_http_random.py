"""Requests in pieces, in any order, broken off anywhere: nothing is left open, nothing spins, every request ends once."""
import random
import socket
import time

import pytest

from wire import Wire, echo, tls_pair, trusting  # noqa: F401 (a fixture)

PIECES = [b"GET /peer HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"POST /echo HTTP/1.1\r\nHost: x\r\n", b"Content-Length: 10\r\n",
          b"Content-Length: 30000\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nabcde\r\n", b"0\r\n\r\n", b"Connection: close\r\n",
          b"POST /refused HTTP/1.1\r\nHost: x\r\n", b"Expect: 100-continue\r\n", b"\0\xff", b"1234567890", b"X: " + b"y" * 40000,
          b"GET /stream?n=5&ms=3 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /stream?n=500&ms=1&how=abort HTTP/1.0\r\n\r\n",
          b"POST /later?ms=20 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"POST /pair HTTP/1.1\r\nHost: x\r\n\r\n",
          b"GET /flood?bytes=300000 HTTP/1.1\r\nHost: x\r\n\r\n", b"HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n"]


def talk(wire, choose):
    """A few pieces, with pauses and reads in between; the end is half of one at times."""
    wire.socket.settimeout(0.2)
    for _ in range(choose.randint(0, 6)):
        piece = choose.choice(PIECES)
        wire.send(piece if choose.random() < 0.9 else piece[:choose.randint(0, len(piece))])
        if choose.random() < 0.2:
            wire.socket.recv(choose.choice([1, 100, 65536]))
        if choose.random() < 0.1:
            time.sleep(choose.random() * 0.05)
        if choose.random() < 0.05:
            wire.socket.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("seed", range(2))
def test_anything(echo, tmp_path, seed):
    choose = random.Random(seed)
    options = dict(header_seconds=0.5, body_seconds=0.5, idle_seconds=0.5, discard_seconds=0.3, keepalive_seconds=0.05, max_body=20000,
                   max_connections=40)
    context = None
    if seed % 2:
        cert, key = tls_pair(tmp_path, "localhost")
        options.update(tls_cert=cert, tls_key=key)
        context = trusting(cert)
    server = echo(**options)
    older = Wire(server.port, context=context)  # idle behind all others, until its time is over
    begin = time.monotonic()
    open_ones = []
    for _ in range(60):
        try:
            wire = Wire(server.port, context=context if choose.random() < 0.8 else None)
            open_ones.append(wire)
            talk(wire, choose)
        except OSError:  # the server's good right, with what it is told
            pass
        while len(open_ones) > 20 or (open_ones and choose.random() < 0.6):
            wire = open_ones.pop(choose.randrange(len(open_ones)))
            (wire.reset if choose.random() < 0.5 else wire.close)()
    counters = server.counters()
    assert counters["turns"] < 2000 + 2000 * (time.monotonic() - begin)  # timers of 1 ms, and no spinning
    for wire in open_ones + [older]:
        wire.close()
    server.wait(lambda c: c["connections"] == 0)
    assert server.close()["headers"] >= 5
