"""Limits of time and number, and running out of descriptors."""
import signal
import time

import pytest

from wire import Wire, echo  # noqa: F401 (a fixture)


def dribble(wire, first, seconds):
    """Sends `first`, then a byte every 0.1 s until the other side has had enough, which it must at some time. How long that took."""
    begin = time.monotonic()
    wire.send(first)
    while wire.quiet(0.1):
        assert time.monotonic() - begin < 10 * seconds
        wire.send("x")
    return time.monotonic() - begin


@pytest.mark.parametrize("option, first", [
    ("header_seconds", "GET /peer HTTP/1.1\r\nHost: x\r\nX: "),
    ("body_seconds", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"),
    ("body_seconds", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n")])
def test_a_byte_now_and_then_does_not_set_a_limit_back(echo, option, first):
    server = echo(**{option: 1}, discard_seconds=60)
    wire = server.wire()
    assert wire.post("/echo", b"a request before it").status == 200
    assert 0.9 < dribble(wire, first, 1)
    answer = wire.answer()
    assert answer.status == 408 and "in time" in answer.error["message"]
    assert wire.rest() == b""
    server.wait(lambda c: c["connections"] == 0)


@pytest.mark.parametrize("limits, before", [((0.5, 60), 1), ((60, 0.5), 0)], ids=["between requests", "before the first"])
def test_an_idle_connection_is_closed(echo, limits, before):
    server = echo(idle_seconds=limits[0], header_seconds=limits[1])
    begin = time.monotonic()
    wire = server.wire()
    for _ in range(before):
        wire.post("/echo", b"x")
    assert wire.rest() == b"" and 0.4 < time.monotonic() - begin


def test_a_request_takes_longer_than_its_connection_may_be_idle(echo):
    """Both requests are there when the server looks, however late that is."""
    server = echo(idle_seconds=0.2, header_seconds=0.2, body_seconds=0.2)
    server.process.send_signal(signal.SIGSTOP)
    wire = server.wire()
    wire.ask("POST", "/later?ms=600", b"x")
    wire.ask("GET", "/stream?n=3&ms=200")
    server.process.send_signal(signal.SIGCONT)
    assert wire.answer().body == b"x"
    assert wire.answer().body.count(b"data") == 3


def test_more_connections_than_allowed_wait_for_a_place(echo):
    server = echo(max_connections=2)
    first, second = server.wire(), server.wire()
    assert first.post("/echo", b"1").body == b"1" and second.post("/echo", b"2").body == b"2"
    third = server.wire()
    third.ask("POST", "/echo", b"3")
    turns = server.counters()["turns"]
    assert third.quiet(0.5)
    assert server.counters()["turns"] - turns < 60  # it waits; it does not spin
    first.close()
    assert third.answer().body == b"3"
    assert server.counters()["connections"] == 2


def test_an_address_has_so_many_connections(echo):
    server = echo(max_per_address=2)
    first, second = server.wire(), server.wire()
    assert first.post("/echo", b"1").body == b"1" and second.post("/echo", b"2").body == b"2"
    refused = server.wire()
    refused.send("GET /peer HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = refused.answer()
    assert answer.status == 429 and answer.error["type"] == "rate_limit_error" and refused.rest() == b""
    assert answer.headers["retry-after"] == "1"
    first.close()
    refused.close()
    server.wait(lambda c: c["connections"] == 1)
    assert server.wire().post("/echo", b"3").body == b"3"


def test_trusted_proxies_are_exempt_and_believed(echo):
    server = echo(max_per_address=1, trusted=["127.0.0.0/8", "10.1.0.0/16", "fd00::/8"])
    wires = [server.wire() for _ in range(4)]
    for given, peer in [("", "127.0.0.1 1"), ("X-Forwarded-For: 9.8.7.6\r\n", "9.8.7.6 0"),
                        ("X-Forwarded-For: 1.1.1.1, 9.8.7.6:1234, 10.1.2.3 \r\n", "9.8.7.6 0"),
                        ("X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2\r\n", "2.2.2.2 0"),
                        ("X-Forwarded-For: [2001:db8::1]:99, fd12::1\r\n", "2001:db8::1 0"),
                        ("X-Forwarded-For: 10.1.0.1\r\n", "10.1.0.1 0"), ("X-Forwarded-For: unknown\r\n", "127.0.0.1 1"),
                        ("X-Forwarded-For: ::ffff:5.6.7.8\r\n", "5.6.7.8 0"), ("X-Forwarded-For: 10.2.0.1, ,\r\n", "127.0.0.1 1")]:
        for wire in wires:
            assert wire.get("/peer", given).text.startswith(peer + " "), given


def test_who_is_no_proxy_is_not_believed(echo):
    assert echo(trusted="10.0.0.0/8").wire().get("/peer", "X-Forwarded-For: 9.8.7.6\r\n").text.startswith("127.0.0.1 1 ")


def test_no_descriptors_left_is_waited_for_and_not_spun_on(echo):
    server = echo(descriptors=40)
    wires = [server.wire() for _ in range(60)]
    counts = [0]

    def settled(c):
        counts.append(c["connections"])
        return counts[-1] == counts[-2] >= 10

    server.wait(settled)  # the second listener has kept descriptors for itself
    before = server.counters()
    time.sleep(1)  # the time that is measured
    after = server.counters()
    assert after["cpu"] - before["cpu"] < 0.3 and after["turns"] - before["turns"] < 100
    counts = [server.counters()["connections"] for _ in range(20)]
    assert counts[-1] - after["connections"] <= 1  # and gets them back: otherwise each of these lets one more in
    for wire in wires[:30]:
        wire.close()
    for wire in wires[30:35]:
        assert wire.post("/echo", b"x").body == b"x"
    for wire in wires[35:]:
        wire.close()
    server.wait(lambda c: c["connections"] <= 5)
    assert server.wire().post("/echo", b"y").body == b"y"


def test_many_idle_connections_cost_the_others_nothing(echo):
    """Work per event does not grow with connections that do nothing: the processor time of the same streams, alone and among
    500 that are idle or in the middle of a header."""
    server = echo()

    def cost():
        best = float("inf")
        for _ in range(3):
            before = server.counters()["cpu"]
            streams = [server.wire() for _ in range(10)]
            for wire in streams:
                wire.ask("GET", "/stream?n=100&ms=2")
            for wire in streams:
                assert wire.answer().body.count(b"data") == 100
                wire.close()
            best = min(best, server.counters()["cpu"] - before)
        return best

    alone = cost()
    crowd = [Wire(server.port) for _ in range(500)]
    for wire in crowd[::2]:
        wire.send("GET /peer HTTP/1.1\r\nHost: x\r\nX: ")
    server.wait(lambda c: c["connections"] >= 500)
    among = cost()
    for wire in crowd:
        wire.close()
    assert among < 1.5 * alone + 0.02
