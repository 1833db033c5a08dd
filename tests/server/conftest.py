"""What the tests of the whole server share: `serve`, which starts one on a free port, and requests a byte more exact than
urllib's."""
import http.client
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools")]

import descent_generate.cli  # noqa: E402
import generated  # noqa: E402
from serving import Server  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than 20 s on two cores")


@pytest.fixture(scope="session")
def shipped():
    """Path of a model that ships, by name."""
    return lambda name: ROOT / "models" / f"{name}.gguf"


@pytest.fixture
def serve():
    """serve(models, *flags): a server of this test's own, which ends by itself, without a leak, when it is told to."""
    started = []

    def start(models, *flags, **how):
        started.append(Server(models, "--drain-delay", "0", "--drain", "5", *flags, **how))
        return started[-1]

    yield start
    for server in reversed(started):
        end(server)


@pytest.fixture(scope="session")
def shakespeare(shipped):
    """A server of one small model, with every option at its default, for tests that leave nothing behind."""
    server = Server([shipped("nrgpt-shakespeare")], "--drain-delay", "0", "--drain", "5")
    yield server
    end(server)


@pytest.fixture(scope="session")
def made(tmp_path_factory, shipped):
    """Paths of the small models of generated.py, by name."""
    return generated.write_all(tmp_path_factory.mktemp("models"), shipped("nrgpt-shakespeare"))


@pytest.fixture(scope="session")
def several(made, shipped):
    """A server of them, of the shipped Shakespeare model and of three golden ones, for tests that leave nothing behind."""
    golden = [Path(os.environ["DESCENT_GOLDEN_DIR"]) / f"{name}.gguf" for name in ("nrgpt-ff2w", "cem-shared-r8-silu", "gpt")]
    server = Server([*made.values(), shipped("nrgpt-shakespeare"), *golden], "--drain-delay", "0", "--drain", "5")
    yield server
    end(server)


def end(server):
    """One signal, and the exit status of a server that had nothing left to do: sanitizers have their say in it."""
    running = server.process.poll() is None
    if running:
        server.terminate()
    try:
        code = server.process.wait(30)
    finally:
        server.kill()
    assert code == 0 or not running, f"status {code}:\n" + "\n".join(server.log[-40:])
    assert running or server.told, "the server ended by itself:\n" + "\n".join(server.log[-40:])


def generate(arguments):
    """A small random model, by tools/generate_model.py."""
    assert descent_generate.cli.main(arguments) == 0


class Reply:
    def __init__(self, answer):
        self.status, self.body = answer.status, answer.read()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


def request(server, method, path, body=None, headers=(), context=None, timeout=60):
    """One request on a connection of its own. A body that is no bytes is sent as JSON; `headers` go over those it needs."""
    where = urlsplit(server.url)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.hostname, where.port, timeout=timeout, **({"context": context} if context else {}))
    sent = dict(headers)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **sent}
    try:
        connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        if body is not None and "Content-Length" not in sent:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def events(reply):
    """The data of a stream's events, the last of which may be "[DONE]"."""
    found = [line[6:] for line in reply.body.decode().split("\n") if line.startswith("data: ")]
    return [text if text == "[DONE]" else json.loads(text) for text in found]


def open_stream(server, path, body, timeout=60):
    """(connection, response) of a stream whose status has come; whoever closes the connection leaves."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return connection, response
