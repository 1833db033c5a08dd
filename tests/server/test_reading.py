"""Bodies that take long to read: the loop goes on meanwhile, whoever leaves, and the server ends when it is told to."""
import http.client
import json
import select
from urllib.parse import urlsplit

import pytest
from conftest import request

NAME = "nrgpt-shakespeare"
TEXT = json.dumps({"prompt": "ROMEO: to be or not to be\n" * 60_000}).encode()  # 1.6 MB, of as many tokens
NUMBERS = json.dumps({"model": NAME, "prompt": [1] * 600_000}).encode()


def send(server, path, body):
    """A connection on which the whole body was sent."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return connection


@pytest.mark.parametrize("path, body, status", [("/tokenize", TEXT, 200), ("/v1/completions", NUMBERS, 400)])
def test_others_are_answered_meanwhile(serve, shipped, path, body, status):
    server = serve([shipped(NAME)])
    with_body, answered = send(server, path, body), 0
    while not select.select([with_body.sock], [], [], 0)[0]:
        answered += request(server, "GET", "/health").status == 200
    answer = with_body.getresponse()
    assert (answer.status, answered > 5) == (status, True), answered
    assert len(answer.read()) > 100
    with_body.close()


def test_a_client_that_leaves_is_forgotten(serve, shipped):
    server = serve([shipped(NAME)])
    for path, body in [("/tokenize", TEXT), ("/v1/completions", NUMBERS)]:
        send(server, path, body).close()
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
