"""Bodies that take long to read: the loop goes on meanwhile, whoever leaves, and the server ends when it is told to."""
import http.client
import json
import select
import signal
import time
from urllib.parse import urlsplit

import pytest
from conftest import request

NAME = "nrgpt-shakespeare"
TEXT = json.dumps({"prompt": "ROMEO: to be or not to be\n" * 60_000}).encode()  # 1.6 MB, of as many tokens
NUMBERS = json.dumps({"model": NAME, "prompt": [1] * 600_000}).encode()


def send(server, path, body, hold=0):
    """A connection on which the whole body was sent, but for its last `hold` bytes."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    connection.request("POST", path, body[:len(body) - hold], {"Content-Type": "application/json", "Content-Length": str(len(body))})
    return connection


@pytest.mark.parametrize("path, body, status", [("/tokenize", TEXT, 200), ("/v1/completions", NUMBERS, 400)])
def test_others_are_answered_meanwhile(serve, shipped, path, body, status):
    """It takes a second or so, in which a busy machine may keep who asks waiting: then it is sent again."""
    server = serve([shipped(NAME)])
    deadline = time.monotonic() + 60
    answered = 0
    while answered <= 5:
        with_body, answered = send(server, path, body), 0
        while not select.select([with_body.sock], [], [], 0)[0]:
            answered += request(server, "GET", "/health").status == 200
        answer = with_body.getresponse()
        assert answer.status == status and len(answer.read()) > 100
        with_body.close()
        assert time.monotonic() < deadline, answered


def test_a_client_that_leaves_is_forgotten(serve, shipped):
    server = serve([shipped(NAME)])
    for path, body in [("/tokenize", TEXT), ("/v1/completions", NUMBERS)]:
        connection = send(server, path, body, hold=1)
        server.process.send_signal(signal.SIGSTOP)  # it finds the last byte and the end together
        connection.sock.sendall(body[-1:])
        connection.close()
        server.process.send_signal(signal.SIGCONT)
    server.until(lambda: sum('"status":0' in line for line in server.log) == 2, "the two are not logged")
    assert server.metric("descent_generated_tokens_total") == 0


def test_a_drain_waits_for_it(serve, shipped):
    """What was being read when the server came to its end is refused, and may come again."""
    server = serve([shipped(NAME)])
    connection = send(server, "/v1/completions", NUMBERS)
    request(server, "GET", "/health")  # what was sent before is being read
    server.terminate()
    answer = connection.getresponse()
    assert answer.status in (400, 503) and (answer.status == 400 or answer.headers["Retry-After"])
    connection.close()
    assert server.process.wait(30) == 0
