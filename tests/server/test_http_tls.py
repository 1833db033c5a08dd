"""TLS: the same answers, and the same clients that leave; a certificate that is replaced while the server runs."""
import signal
import socket
import ssl
import subprocess

import pytest

from wire import BINARY, echo, tls_pair, trusting  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    return [tls_pair(directory, name) for name in ("first", "second")]


@pytest.fixture
def secure(echo, pairs):
    def start(**options):
        server = echo(tls_cert=pairs[0][0], tls_key=pairs[0][1], **options)
        server.context = trusting(pairs[0][0])
        return server

    return start


def test_answers_and_streams(secure):
    wire = secure().wire()
    assert wire.socket.version() in ("TLSv1.3", "TLSv1.2")
    assert wire.post("/echo", b"x" * 300000).body == b"x" * 300000
    assert wire.get("/stream?n=3&ms=20").body.count(b"data") == 3
    assert wire.post("/later?ms=20", b"y").body == b"y"


@pytest.mark.parametrize("path", ["/stream?n=100000&ms=20", "/stream?n=1&ms=100000", "/later?ms=100000"])
def test_a_client_that_leaves_is_noticed(secure, path):
    server = secure()
    wire = server.wire()
    wire.ask("POST", path, b"x")
    server.wait(lambda c: c["complete"] == 1)
    wire.close()
    server.wait(lambda c: c["gone"] == 1 and c["connections"] == 0)


def test_early_answers(secure):
    server = secure(max_body=1000)
    wire = server.wire()
    wire.ask("POST", "/refused", b"x" * 3000000)
    assert wire.answer().status == 413
    wire = server.wire()
    wire.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + "x" * 4096 + "\r\n")
    answer = wire.answer()
    assert answer.status == 413 and "longer" in answer.error["message"]


def test_a_handshake_that_does_not_come_is_cut(secure):
    server = secure(header_seconds=1)
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    plain.sendall(b"\x16\x03\x01")
    before = server.counters()
    assert plain.recv(100) == b""
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    plain.sendall(b"GET /peer HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not plain.recv(1000).startswith(b"HTTP")
    after = server.wait(lambda c: c["connections"] == 0)
    assert after["turns"] - before["turns"] < 200 and after["cpu"] - before["cpu"] < 0.3  # waited for, not spun on


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_handshake_in_small_pieces(secure, version):
    server = secure()
    server.context.minimum_version = server.context.maximum_version = version
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = server.context.wrap_bio(incoming, outgoing, server_hostname="localhost")

    def flush():
        data = outgoing.read()
        for at in range(0, len(data), 7):
            raw.sendall(data[at:at + 7])

    def until_done(step):
        while True:
            try:
                done = step()
                flush()
                return done
            except ssl.SSLWantReadError:
                flush()
                incoming.write(raw.recv(16))

    until_done(session.do_handshake)
    assert session.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
    session.write(b"POST /echo HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
    flush()
    got = b""
    while not got.endswith(b"hello"):
        got += until_done(lambda: session.read(1000))
    raw.close()


def test_a_new_certificate_is_for_new_connections(echo, pairs, tmp_path):
    cert, key = tmp_path / "cert", tmp_path / "key"
    cert.write_bytes(pairs[0][0].read_bytes())
    key.write_bytes(pairs[0][1].read_bytes())
    server = echo(tls_cert=cert, tls_key=key)

    def reload():
        server.process.send_signal(signal.SIGHUP)
        return server.process.stdout.readline()

    server.context = trusting(pairs[0][0])
    old = server.wire()
    assert old.post("/echo", b"1").body == b"1"
    cert.write_bytes(pairs[1][0].read_bytes())
    assert "is not the key of" in reload()  # the key is still the first one's: the old pair stays
    assert server.wire().post("/echo", b"2").body == b"2"
    key.write_bytes(pairs[1][1].read_bytes())
    assert reload() == "reload: ok\n"
    assert old.post("/echo", b"3").body == b"3"
    with pytest.raises(ssl.SSLCertVerificationError):
        server.wire()
    server.context = trusting(pairs[1][0])
    assert server.wire().post("/echo", b"4").body == b"4"
    cert.write_text("no certificate")
    assert str(cert) in reload()
    assert server.wire().post("/echo", b"5").body == b"5"


def test_closing_with_streams_in_flight(secure):
    server = secure()
    wire = server.wire()
    wire.ask("GET", "/stream?n=1000&ms=10")
    wire.head()
    assert wire.chunk() == b": keep-alive\n\n"
    assert server.close()["gone"] >= 1


@pytest.mark.parametrize("wrong", ["cert", "key", "other"])
def test_a_pair_that_is_none_is_said_at_the_start(pairs, tmp_path, wrong):
    cert, key = pairs[0]
    if wrong == "cert":
        cert = tmp_path / "missing"
    elif wrong == "key":
        (tmp_path / "key").write_text("no key")
        key = tmp_path / "key"
    else:
        key = pairs[1][1]
    done = subprocess.run([BINARY, f"tls_cert={cert}", f"tls_key={key}"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and str(cert if wrong == "cert" else key) in done.stderr
