"""Who may ask: keys and their files, the Host check, CORS, TLS, the second listener."""
import json
import signal
import socket
import ssl
import subprocess
from urllib.parse import urlsplit

import pytest
from conftest import request
from serving import BINARY
from wire import tls_pair

KEYS = ["sk-first-0123456789", "sk-second", "x" * 255]
OPEN = ["/", "/app.js", "/app.css", "/health", "/ready", "/openapi.json"]
GUARDED = [("GET", "/v1/models", None), ("GET", "/v1/models/nrgpt-shakespeare", None), ("GET", "/props", None),
           ("GET", "/metrics", None), ("GET", "/tokenizer_info", None), ("POST", "/tokenize", {"prompt": "a"}),
           ("POST", "/detokenize", {"tokens": [1]}), ("POST", "/v1/completions", {"model": "nrgpt-shakespeare", "prompt": "a", "max_tokens": 1}),
           ("POST", "/v1/chat/completions", {}), ("POST", "/v1/descent/trace", {}),
           ("POST", "/v1/descent/scaling", {})]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{KEYS[0]}\n\n  {KEYS[1]}  \r\n")
    return path


def fails(models, *flags):
    """What a server that must not start says: one line, exit status 1."""
    done = subprocess.run([BINARY, "serve", *models, "--port", "0", *flags], capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    return lines[0]


# ---- Keys --------------------------------------------------------------------------------------------------------------


def test_everything_but_probes_wants_a_key(serve, shipped, key_file, tmp_path):
    more = tmp_path / "more"
    more.write_text(KEYS[2])
    server = serve([shipped("nrgpt-shakespeare")], "--api-key-file", key_file, "--api-key-file", more)
    for path in OPEN:
        assert request(server, "GET", path).status == 200
        assert request(server, "GET", path, headers=bearer("wrong")).status == 200
    assert request(server, "OPTIONS", "/v1/models").status == 204 and request(server, "OPTIONS", "/nope").status == 404
    wrong = [{}, bearer("wrong"), bearer(""), bearer(KEYS[0][:-1]), bearer(KEYS[0] + "0"), bearer(KEYS[0].upper()), bearer("x" * 256),
             bearer("# ours"), bearer(" "), {"Authorization": KEYS[0]}, {"Authorization": f"Basic {KEYS[0]}"}, {"X-Api-Key": KEYS[0]}]
    for method, path, body in GUARDED:
        for headers in wrong:
            reply = request(server, method, path, body, headers)
            assert (reply.status, reply.error["code"]) == (401, "invalid_api_key"), (path, headers, reply.body)
            assert reply.headers["www-authenticate"] == "Bearer"
        for key in KEYS:
            assert request(server, method, path, body, bearer(key)).status not in (401, 403)
    assert request(server, "GET", "/v1/models", headers={"Authorization": f"bearer {KEYS[1]}"}).status == 200
    assert request(server, "GET", "/nope", headers=bearer("wrong")).status == 401  # nobody learns what is there
    text = request(server, "GET", "/metrics", headers=bearer(KEYS[0])).body.decode()
    assert f'descent_requests_rejected_total{{reason="unauthorized"}} {len(GUARDED) * len(wrong) + 1}\n' in text
    assert not [line for line in server.log for key in KEYS + ["wrong", "ours"] if key in line]


def test_a_hangup_reads_the_keys_again(serve, shipped, key_file):
    server = serve([shipped("nrgpt-shakespeare")], "--api-key-file", key_file)

    def accepted(key):
        return request(server, "GET", "/v1/models", headers=bearer(key)).status == 200

    def reload(words):
        count = len(server.log)
        server.process.send_signal(signal.SIGHUP)
        server.until(lambda: any(words in line for line in server.log[count:]), f"no line with {words}")

    key_file.write_text(f"{KEYS[1]}\nnew\n")
    assert accepted(KEYS[0]) and not accepted("new")
    reload("keys read again")
    assert not accepted(KEYS[0]) and accepted(KEYS[1]) and accepted("new")
    key_file.write_text("secret-one\nsecret two\n")
    reload(f"{key_file}:2: a key is printable ASCII without spaces")
    assert accepted("new") and not accepted("secret-one")
    key_file.unlink()
    reload(str(key_file))
    assert accepted("new")
    assert not [line for line in server.log if "secret-one" in line or "secret two" in line]


@pytest.mark.parametrize("text, words", [("", "no new key"), ("# none\n\n", "no new key"), ("a\nb c-secret\n", ":2: a key is printable"),
                                         ("a\n" + "x" * 256, ":2: a key of 256 bytes; at most 255"), ("k\u00e9y\n", ":1: a key is")])
def test_files_without_keys_are_refused(shipped, tmp_path, text, words):
    path = tmp_path / "keys"
    path.write_text(text)
    line = fails([shipped("nrgpt-shakespeare")], "--api-key-file", path)
    assert str(path) in line and words in line and "secret" not in line
    assert "No such file" in fails([shipped("nrgpt-shakespeare")], "--api-key-file", tmp_path / "missing")


@pytest.mark.parametrize("flags, shared", [([], False), (["--share-cache"], True)])
def test_what_one_key_asked_is_cached_for_that_key_only(serve, shipped, key_file, flags, shared):
    server = serve([shipped("nrgpt-shakespeare")], "--api-key-file", key_file, *flags)

    def cached(key):
        body = {"model": "nrgpt-shakespeare", "prompt": "FIRST CITIZEN: before we proceed any further, hear me speak.\n" * 2, "max_tokens": 1}
        usage = request(server, "POST", "/v1/completions", body, bearer(key)).json["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(KEYS[0]) == 0
    assert (cached(KEYS[1]) > 0) == shared
    assert cached(KEYS[0]) > 0 and cached(KEYS[1]) > 0


# ---- Host --------------------------------------------------------------------------------------------------------------

FOREIGN = ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "1.2.3.4", "[::2]:80", "10.0.0.1",
           "notlocalhost", ".localhost", "", "[::1].evil.example", "[::1", "[::1]evil:80", "127.0.0.1@evil.example"]
OURS = ["localhost", "localhost:1234", "LOCALHOST", "127.0.0.1", "127.5.6.7:80", "[::1]", "[::1]:8080", "a.localhost", "my.name",
        "MY.NAME:8080"]


def test_only_a_host_that_means_this_machine(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare")], "--allowed-host", "other", "--allowed-host", "my.name")
    for host in FOREIGN:
        for path in ["/health", "/v1/models", "/nope"]:
            reply = request(server, "GET", path, headers={"Host": host})
            assert (reply.status, reply.error["code"]) == (403, "host_not_allowed"), (host, reply.body)
            assert reply.error["type"] == "permission_error"
    for host in OURS:
        assert request(server, "GET", "/v1/models", headers={"Host": host}).status == 200, host


def test_a_target_in_absolute_form_says_whom_it_is_for(shakespeare):
    for host in FOREIGN:
        reply = request(shakespeare, "GET", f"http://{host}/v1/models", headers={"Host": "localhost"})
        assert (reply.status, reply.error["code"]) == (403, "host_not_allowed"), host
    for host in OURS[:-2]:
        assert request(shakespeare, "GET", f"http://{host}/v1/models", headers={"Host": "evil.example"}).status == 200, host
    shakespeare.until(lambda: any('"path":"/v1/models","' in line for line in shakespeare.log), "the path is not logged")


def test_a_request_of_old_without_a_host(shakespeare):
    with socket.create_connection(("127.0.0.1", urlsplit(shakespeare.url).port), timeout=60) as plain:
        plain.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 200 OK" in plain.recv(4096)


@pytest.mark.parametrize("how", ["keys", "address"])
def test_with_keys_or_on_other_addresses_any_host_will_do(serve, shipped, key_file, how):
    flags = ["--api-key-file", key_file] if how == "keys" else ["--host", "0.0.0.0"]
    server = serve([shipped("nrgpt-shakespeare")], *flags)
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert request(server, "GET", "/v1/models", headers={"Host": "evil.example", **bearer(KEYS[0])}).status == 200


# ---- CORS --------------------------------------------------------------------------------------------------------------


def cors(reply):
    return {name: value for name, value in reply.headers.items() if name.startswith("access-control")}


ASKED = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST",
         "Access-Control-Request-Headers": "authorization, content-type, x-stainless-lang"}


def test_cors_is_off(shakespeare):
    for method, path in [("GET", "/v1/models"), ("OPTIONS", "/v1/completions")]:
        reply = request(shakespeare, method, path, headers=ASKED)
        assert not cors(reply) and "vary" not in reply.headers


@pytest.mark.parametrize("origins, origin", [(["https://page.example"], "https://page.example"), (["https://a.example", "*"], "*")])
def test_cors(serve, shipped, key_file, origins, origin):
    flags = [flag for one in origins for flag in ("--cors", one)]
    server = serve([shipped("nrgpt-shakespeare")], "--api-key-file", key_file, *flags)
    reply = request(server, "OPTIONS", "/v1/chat/completions", headers=ASKED)
    assert (reply.status, reply.body) == (204, b"")
    given = cors(reply)
    assert given["access-control-allow-origin"] == origin
    assert given["access-control-allow-headers"] == ASKED["Access-Control-Request-Headers"]
    assert "POST" in given["access-control-allow-methods"] and int(given["access-control-max-age"]) > 0
    assert set(reply.headers["vary"].split(", ")) == {"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"}
    # The answer itself, and errors too: a page reads neither otherwise.
    for status, headers in [(200, bearer(KEYS[0])), (401, {})]:
        reply = request(server, "GET", "/v1/models", headers={"Origin": "https://page.example", **headers})
        assert reply.status == status and cors(reply)["access-control-allow-origin"] == origin
        assert cors(reply)["access-control-expose-headers"] == "x-request-id, retry-after" and reply.headers["vary"] == "Origin"
    body = {"model": "nrgpt-shakespeare", "prompt": "ROMEO:", "max_tokens": 1, "stream": True}
    reply = request(server, "POST", "/v1/completions", body, {"Origin": "https://page.example", **bearer(KEYS[0])})
    assert reply.status == 200 and cors(reply)["access-control-allow-origin"] == origin
    if origin != "*":
        assert not cors(request(server, "OPTIONS", "/v1/models", headers={**ASKED, "Origin": "https://page.example.evil"}))


# ---- TLS ---------------------------------------------------------------------------------------------------------------


def test_tls_and_a_new_certificate(shipped, tmp_path, serve):
    cert, key = tls_pair(tmp_path, "first")
    server = serve([shipped("nrgpt-shakespeare")], "--tls-cert", cert, "--tls-key", key, ready=False)
    assert server.url.startswith("https://")
    first = ssl.create_default_context(cafile=cert)
    server.until(lambda: request(server, "GET", "/ready", context=first).status == 200, "the server is not ready")
    reply = request(server, "POST", "/tokenize", {"prompt": "ROMEO:"}, context=first)
    assert reply.json["count"] == 6
    new_cert, new_key = tls_pair(tmp_path, "second")
    second = ssl.create_default_context(cafile=new_cert)
    with pytest.raises(ssl.SSLCertVerificationError):
        request(server, "GET", "/health", context=second)
    cert.write_bytes(new_cert.read_bytes())
    key.write_bytes(new_key.read_bytes())
    server.process.send_signal(signal.SIGHUP)
    server.until(lambda: any("certificate read again" in line for line in server.log), "no new certificate")
    assert request(server, "GET", "/health", context=second).status == 200
    cert.write_text("none")
    server.process.send_signal(signal.SIGHUP)
    server.until(lambda: any("certificate stays as it was" in line for line in server.log), "a certificate that is none was taken")
    assert request(server, "GET", "/health", context=second).status == 200
    curl = next(json.loads(line)["message"] for line in server.log if "curl" in line)
    assert "curl -k https://" in curl


def test_tls_files_that_are_none(shipped, tmp_path):
    cert, key = tls_pair(tmp_path, "a")
    other = tls_pair(tmp_path, "b")[1]
    for flags in [["--tls-cert", cert, "--tls-key", other], ["--tls-cert", key, "--tls-key", key],
                  ["--tls-cert", tmp_path / "missing", "--tls-key", key]]:
        assert fails([shipped("nrgpt-shakespeare")], *flags)
    done = subprocess.run([BINARY, "serve", shipped("nrgpt-shakespeare"), "--tls-cert", cert], capture_output=True, text=True)
    assert done.returncode == 2 and "--tls-key is missing" in done.stderr


# ---- The second listener -----------------------------------------------------------------------------------------------


def test_probes_answer_when_the_main_port_is_full(serve, shipped, key_file):
    server = serve([shipped("nrgpt-shakespeare")], "--admin-listen", "127.0.0.1:0", "--max-connections", "1", "--api-key-file", key_file,
                   ready=False)
    server.until(lambda: any("/metrics also on" in line for line in server.log), "no line names the second listener")
    line = next(json.loads(line)["message"] for line in server.log if "/metrics also on" in line)
    port = int(line.split("port ")[1].split()[0])
    assert port != urlsplit(server.url).port

    class Admin:
        url = f"http://127.0.0.1:{port}"

    server.until(lambda: request(Admin, "GET", "/ready").status == 200, "not ready")
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=60) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 OK" in plain.recv(4096)  # it is the one connection now
        for path in ["/health", "/ready", "/metrics"]:
            assert request(Admin, "GET", path, headers={"Host": "probe"}).status == 200
            assert request(Admin, "HEAD", path).status == 200
        for path in ["/v1/models", "/openapi.json", "/props"]:
            assert request(Admin, "GET", path).status == 404
        assert request(Admin, "POST", "/v1/completions", {"prompt": "a"}).status == 404


@pytest.mark.parametrize("value", ["9090", ":9090", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "[::1]"])
def test_where_the_second_listener_is_must_be_said_whole(shipped, value):
    done = subprocess.run([BINARY, "serve", shipped("nrgpt-shakespeare"), "--admin-listen", value], capture_output=True, text=True)
    assert done.returncode == 2 and "must be HOST:PORT" in done.stderr
