"""The program http_echo (server/http.h and nothing else) and what is needed to talk to it byte by byte."""
import json
import os
import select
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build")) / "tests" / "http_echo"
PATIENCE = 20  # seconds until a test that waits for something gives up: instrumented programs on busy cores are slow


class Answer:
    def __init__(self, status, headers, body, whole=True):
        self.status, self.headers, self.body = status, headers, body
        self.whole = whole  # its end was sent, rather than the connection closed in the middle

    @property
    def text(self):
        return self.body.decode()

    @property
    def error(self):
        return json.loads(self.body)["error"]


class Wire:
    """A connection. What is read and not yet used stays in `have`."""

    def __init__(self, port, host="127.0.0.1", context=None, receive_bytes=None):
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE)
        self.socket.connect((host, port))
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.have = b""

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def more(self):
        """Reads once; False at the end."""
        got = self.socket.recv(65536)
        self.have += got
        return bool(got)

    def until(self, mark):
        """Everything up to and with `mark`."""
        while mark not in self.have:
            assert self.more(), f"closed before {mark!r}, after {self.have!r}"
        at = self.have.index(mark) + len(mark)
        out, self.have = self.have[:at], self.have[at:]
        return out

    def exactly(self, count):
        while len(self.have) < count:
            if not self.more():
                return None
        out, self.have = self.have[:count], self.have[count:]
        return out

    def rest(self):
        """All there is until the other side closes."""
        while self.more():
            pass
        out, self.have = self.have, b""
        return out

    def quiet(self, seconds):
        """True where nothing comes for so long."""
        return not self.have and not select.select([self.socket], [], [], seconds)[0]

    def head(self):
        """Status and headers, lower case."""
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {}
        for line in lines[1:-2]:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        return int(lines[0].split()[1]), headers

    def chunk(self):
        """One chunk of a body; b"" for the last one; None where the connection ends instead."""
        while b"\r\n" not in self.have:
            if not self.more():
                assert not self.have, self.have
                return None
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size + 2)
        assert data is not None and data.endswith(b"\r\n")
        return data[:-2]

    def answer(self, body=True):
        status, headers = self.head()
        while status == 100:
            status, headers = self.head()
        if not body or status == 204:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            data = b""
            while (piece := self.chunk()):
                data += piece
            return Answer(status, headers, data, piece is not None)
        if "content-length" in headers:
            data = self.exactly(int(headers["content-length"]))
            return Answer(status, headers, data or b"", data is not None)
        return Answer(status, headers, self.rest())

    def ask(self, method, path, body=b"", headers="", version="1.1"):
        """Sends a request with its length."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        self.send(f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n{length}{headers}\r\n".encode() + body)

    def get(self, path, headers=""):
        self.ask("GET", path, headers=headers)
        return self.answer()

    def post(self, path, body, headers=""):
        self.ask("POST", path, body, headers)
        return self.answer()

    def close(self):
        self.socket.close()

    def reset(self):
        """Leaves with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


class Echo:
    """A running http_echo. `close` ends it with whatever is in flight, and gives its counters."""

    def __init__(self, **options):
        assert BINARY.is_file(), f"{BINARY} is missing: build first, or set DESCENT_BUILD_DIR"
        arguments = [f"{name}={value}" for name, values in options.items()
                     for value in (values if isinstance(values, list) else [values])]
        self.process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.port, self.admin_port = map(int, line.split())
        self.context = None
        self.wires = []
        self.looks = 0  # at the counters

    def wire(self, **how):
        wire = Wire(self.port, context=self.context, **how)
        self.wires.append(wire)
        return wire

    def counters(self):
        """Read on the second listener, so that they wait for no place; without the requests that read them, of which the last
        is not done."""
        wire = Wire(self.admin_port)
        found = json.loads(wire.get("/counters", "Connection: close\r\n").body)
        wire.close()
        self.looks += 1
        for name, looks in (("headers", self.looks), ("complete", self.looks), ("done", self.looks - 1)):
            found[name] -= looks
        return found

    def wait(self, condition):
        """The counters once `condition` holds for them."""
        deadline = time.monotonic() + PATIENCE
        while not condition(found := self.counters()):
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        return found

    def close(self):
        if self.process.stdin.closed:
            return None
        self.process.stdin.close()
        out, err = self.process.stdout.read(), self.process.stderr.read()
        assert self.process.wait(PATIENCE) == 0, err  # a leak, a data race, a handle left open
        assert err == ""
        counters = json.loads(out.splitlines()[-1])
        assert counters["done"] == counters["headers"], "every request ends exactly once"
        assert counters["gone"] <= counters["done"] and counters["body_bytes"] == 0
        return counters


@pytest.fixture
def echo():
    """echo(name=value...): starts http_echo with these options. At the end it must close cleanly."""
    started = []

    def start(**options):
        started.append(Echo(**options))
        return started[-1]

    yield start
    failed = []
    for one in started:
        try:
            one.close()
        except AssertionError as error:
            one.process.kill()
            failed.append(error)
        for wire in one.wires:
            wire.close()
    if failed:
        raise failed[0]


def tls_pair(directory, name):
    """A certificate for localhost and its key, self-signed."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def trusting(cert):
    return ssl.create_default_context(cafile=str(cert))
